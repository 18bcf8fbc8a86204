//! The commands `sendoff status`, `purge`, `reload`, `reopen`, `upgrade` and `stop`: find a server
//! of this user, send the command, print the answer.

use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::Serialize;

use crate::{Command, ControlAnswer, ServerReport, runtime_folder};

/// Time limit for a server to report its status; the server gives its front less.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// The shortest time to wait for a server's answer, after other servers have used up the time
/// limit. A time-out of zero would mean no time-out.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);

/// Advice for a server that another user has started.
const OTHER_USERS: &str = "ask as the user that has started it, or name its socket by --socket";

/// The selection of a server. A server that the same user has started is found without a socket.
#[derive(Debug, Clone, Copy)]
pub struct ServerSelection<'a> {
    /// An address or a port on which the server listens.
    pub listen: Option<&'a str>,
    /// The configuration file with which the server was started.
    pub config: Option<&'a Path>,
    /// The control socket of the server.
    pub socket: Option<&'a Path>,
}

/// The reason why no server has carried out a command: a sentence for the operator.
#[derive(Debug)]
pub enum CommandError {
    /// Several servers meet the selection.
    Ambiguous(String),
    /// No server meets the selection, or the server has not carried out the command.
    Failed(String),
}

impl CommandError {
    /// Wraps an error of the system: "what: error".
    fn system(what: &str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Failed(format!("{what}: {error}"))
    }
}

/// Sends a command to the selected server, and prints its answer.
///
/// # Errors
/// No such server runs, or it did not carry the command out.
pub fn run(command: &Command, which: &ServerSelection<'_>, json: bool) -> Result<(), CommandError> {
    let socket = match which.socket {
        Some(path) => path.to_owned(),
        None => find(&ServerCriteria::by(which, command))?,
    };
    let answer = ask(&socket, command).map_err(|error| {
        CommandError::Failed(format!("no sendoff server answers at {}: {error}", socket.display()))
    })?;
    let text = match answer {
        None if matches!(command, Command::Stop | Command::StopNow) => {
            "the server has ended\n".to_owned()
        }
        None => return Err(CommandError::Failed("the server has ended instead".to_owned())),
        Some(answer) => match answer {
            ControlAnswer::Failed(why) => return Err(CommandError::Failed(why)),
            ControlAnswer::Done(what) => format!("{what}\n"),
            ControlAnswer::Status(report) if json => in_json(&report)?,
            ControlAnswer::Purged(purged) if json => in_json(&purged)?,
            ControlAnswer::Purged(purged) => purged.to_string(),
            ControlAnswer::Status(report) => report.to_string(),
        },
    };
    io::stdout().lock().write_all(text.as_bytes()).map_err(CommandError::system("standard output"))
}

fn in_json(answer: &impl Serialize) -> Result<String, CommandError> {
    let text = serde_json::to_string_pretty(answer).map_err(io::Error::from);
    Ok(text.map_err(CommandError::system("the answer cannot be written"))? + "\n")
}

/// Interval between the queries of [`watch`].
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Moves to the first column and line of a terminal and removes what it shows (ECMA-48: CUP, ED).
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Prints the state of the selected server every second, until interrupted.
///
/// # Errors
/// No such server runs, or it has ended.
pub fn watch(which: &ServerSelection<'_>) -> Result<(), CommandError> {
    let is_terminal = io::stdout().is_terminal();
    loop {
        if is_terminal {
            print!("{CLEAR}");
        }
        run(&Command::Status, which, false)?;
        std::thread::sleep(WATCH_INTERVAL);
    }
}

/// Sends a command and waits for the answer; `None` if the server has closed the connection.
fn ask(socket: &Path, command: &Command) -> io::Result<Option<ControlAnswer>> {
    // Commands other than `status` may take as long as the server needs.
    let limit = (*command == Command::Status).then_some(STATUS_TIMEOUT);
    receive(send(socket, command)?, limit)
}

/// Sends a command.
///
/// # Errors
/// No server listens at the socket, or the server has stopped accepting connections (`WouldBlock`).
fn send(socket: &Path, command: &Command) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // A blocking connect would wait while the backlog is full.
    connect(&stream, &SocketAddrUnix::new(socket)?)?;
    let mut stream = UnixStream::from(stream);
    stream.set_nonblocking(false)?;
    writeln!(stream, "{command}")?;
    Ok(stream)
}

fn receive(stream: UnixStream, limit: Option<Duration>) -> io::Result<Option<ControlAnswer>> {
    stream.set_read_timeout(limit)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(if line.is_empty() { None } else { Some(serde_json::from_str(&line)?) })
}

/// A server whose control socket was found.
struct FoundServer {
    socket: PathBuf,
    /// Its listeners, as text for people; `None` if it has not answered.
    listeners: Option<String>,
    is_at_port: bool,
}

impl fmt::Display for FoundServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.listeners {
            Some(listeners) => f.write_str(listeners),
            // Socket files are named after the process.
            None => {
                let process = self.socket.file_stem().unwrap_or_default().display();
                write!(f, "process {process}, which does not answer")
            }
        }
    }
}

/// The criteria that select a server.
struct ServerCriteria<'a> {
    listen: Option<&'a str>,
    config: Option<PathBuf>,
    /// If several servers run, prefer the server on this port, which the URL to
    /// purge names.
    port: Option<u16>,
}

impl<'a> ServerCriteria<'a> {
    fn by(which: &ServerSelection<'a>, command: &Command) -> Self {
        let config = which.config;
        let config = config.map(|path| path.canonicalize().unwrap_or_else(|_| path.to_owned()));
        let port = match command {
            Command::Purge(Some(url)) => port_of(url),
            _ => None,
        };
        Self { listen: which.listen, config, port }
    }

    fn is_met_by(&self, report: &ServerReport) -> bool {
        self.listen.is_none_or(|listen| listens(report, listen))
            && (self.config.is_none() || self.config == report.config)
    }

    fn says(&self) -> Option<String> {
        let listens = self.listen.map(|listen| format!("listens on {listen}"));
        let reads = self.config.as_ref().map(|path| format!("was started with {}", path.display()));
        let both = [listens, reads].into_iter().flatten().collect::<Vec<_>>();
        (!both.is_empty()).then(|| both.join(" and "))
    }
}

/// The port in a URL, or the default port of its scheme.
fn port_of(url: &str) -> Option<u16> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    match authority.rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => port.parse().ok(),
        _ => Some(if scheme.eq_ignore_ascii_case("https") { 443 } else { 80 }),
    }
}

/// The control socket of the selected server, or of the only running server if there are no
/// criteria.
fn find(wanted: &ServerCriteria<'_>) -> Result<PathBuf, CommandError> {
    let mut asked = Vec::new();
    for folder in runtime_folder::candidates() {
        if !runtime_folder::is_ours(&folder) {
            continue;
        }
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "sock") {
                let sent = send(&path, &Command::Status);
                asked.push((path, sent));
            }
        }
    }
    let deadline = Instant::now() + STATUS_TIMEOUT;
    let mut found = Vec::new();
    for (socket, sent) in asked {
        // All servers are preparing their answers by now.
        let left = deadline.saturating_duration_since(Instant::now()).max(SHORTEST_WAIT);
        match sent.and_then(|stream| receive(stream, Some(left))) {
            Ok(Some(ControlAnswer::Status(report))) => {
                if wanted.is_met_by(&report) {
                    let is_at_port =
                        wanted.port.is_some_and(|port| listens(&report, &port.to_string()));
                    let listeners = Some(report.listeners.join(", "));
                    found.push(FoundServer { socket, listeners, is_at_port });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                found.push(FoundServer { socket, listeners: None, is_at_port: false });
            }
            // A killed server does not answer, and a server that is ending stops answering soon.
            Ok(_) | Err(_) => {}
        }
    }
    let says = wanted.says();
    if says.is_some() && found.iter().any(|found| found.listeners.is_some()) {
        found.retain(|found| found.listeners.is_some());
    }
    if found.iter().any(|found| found.is_at_port) {
        found.retain(|found| found.is_at_port);
    }
    let all = || found.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let nothing = "no sendoff server of this user";
    let says = match (&*found, says) {
        ([FoundServer { socket, listeners: Some(_), .. }], _) => return Ok(socket.clone()),
        ([], None) => format!("{nothing} runs on this machine: {OTHER_USERS}"),
        ([], Some(says)) => format!("{nothing} {says} on this machine: {OTHER_USERS}"),
        (silent, says) if silent.iter().all(|found| found.listeners.is_none()) => {
            let does = says.map_or("answers".to_owned(), |says| format!("says that it {says}"));
            format!("{nothing} {does} on this machine; there is {}", all())
        }
        _ => {
            let says =
                format!("several servers run, choose one by --listen or --config: {}", all());
            return Err(CommandError::Ambiguous(says));
        }
    };
    Err(CommandError::Failed(says))
}

/// True if the server listens on this address, or on this port if only a port is given.
fn listens(report: &ServerReport, wanted: &str) -> bool {
    let is_port = wanted.parse::<u16>().is_ok();
    report.listeners.iter().any(|listener| {
        listener == wanted
            || is_port && listener.rsplit_once(':').is_some_and(|(_, port)| port == wanted)
    })
}
