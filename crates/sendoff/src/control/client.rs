//! The commands `sendoff status`, `reload`, `reopen` and `stop`: find a server of this user, ask it, print its answer.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Answer, Command, Report};
use crate::failure::Failure;
use crate::options::Control;
use crate::runtime_folder;

/// How long a server may take to say what it does; it gives its front less.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// Asks the server that the options mean, and prints its answer.
///
/// # Errors
/// There is no such server, or it has not done what it was asked to do.
pub(crate) fn run(command: Command, which: &Control, json: bool) -> Result<(), Failure> {
    let socket = match &which.socket {
        Some(path) => path.clone(),
        None => find(which.listen.as_deref())?,
    };
    let answer = ask(&socket, command).map_err(|error| {
        Failure::System(format!("no sendoff server answers at {}: {error}", socket.display()))
    })?;
    let text = match answer {
        None if matches!(command, Command::Stop | Command::StopNow) => {
            "the server has ended\n".to_owned()
        }
        None => return Err(Failure::System("the server has ended instead".to_owned())),
        Some(answer) => match answer {
            Answer::Failed(why) => return Err(Failure::System(why)),
            Answer::Done(what) => format!("{what}\n"),
            Answer::Status(report) if json => {
                let text = serde_json::to_string_pretty(&report).map_err(io::Error::from);
                text.map_err(Failure::system("the status cannot be written"))? + "\n"
            }
            Answer::Status(report) => report.to_string(),
        },
    };
    io::stdout().lock().write_all(text.as_bytes()).map_err(Failure::system("standard output"))
}

/// `None`: the server has closed the connection.
fn ask(socket: &Path, command: Command) -> io::Result<Option<Answer>> {
    let mut stream = UnixStream::connect(socket)?;
    // The others may take as long as the server needs.
    let limit = (command == Command::Status).then_some(STATUS_TIMEOUT);
    stream.set_read_timeout(limit)?;
    writeln!(stream, "{command}")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(if line.is_empty() { None } else { Some(serde_json::from_str(&line)?) })
}

/// The control socket of the server that listens at an address or a port; without either, of the only server that runs.
fn find(listen: Option<&str>) -> Result<PathBuf, Failure> {
    let mut found: Vec<(PathBuf, Box<Report>)> = Vec::new();
    for folder in runtime_folder::candidates() {
        if !runtime_folder::is_ours(&folder) {
            continue;
        }
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            // Sockets of servers that were killed do not answer.
            if path.extension().is_some_and(|extension| extension == "sock")
                && let Ok(Some(Answer::Status(report))) = ask(&path, Command::Status)
                && listen.is_none_or(|listen| listens(&report, listen))
            {
                found.push((path, report));
            }
        }
    }
    match (&*found, listen) {
        ([(path, _)], _) => Ok(path.clone()),
        ([], None) => {
            Err(Failure::System("no sendoff server of this user runs on this machine".to_owned()))
        }
        ([], Some(listen)) => Err(Failure::System(format!(
            "no sendoff server of this user listens on {listen} on this machine"
        ))),
        (several, _) => {
            let all: Vec<_> = several.iter().map(|(_, r)| r.listeners.join(", ")).collect();
            let all = all.join("; ");
            Err(Failure::Input(format!("several servers run, choose one by --listen: {all}")))
        }
    }
}

/// Whether the server listens on an address, or on a port if only that is given.
fn listens(report: &Report, wanted: &str) -> bool {
    let is_port = wanted.parse::<u16>().is_ok();
    report.listeners.iter().any(|listener| {
        listener == wanted
            || is_port && listener.rsplit_once(':').is_some_and(|(_, port)| port == wanted)
    })
}
