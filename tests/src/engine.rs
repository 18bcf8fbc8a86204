//! A Redis or Valkey that several nodes share.

use std::cell::RefCell;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::{Authority, Certificate, Site, dies_with_us, wait};

/// Servers, and the client that Debian packages with each.
const PROGRAMS: [[&str; 2]; 2] =
    [["/usr/bin/redis-server", "redis-cli"], ["/usr/bin/valkey-server", "valkey-cli"]];

/// The name of its socket.
pub(crate) const SOCKET: &str = "engine.sock";

/// Names another server.
const OTHER: &str = "SENDOFF_TEST_ENGINE";

/// A running engine at a UNIX socket. It keeps nothing on disk.
pub struct Engine {
    site: Site,
    options: Vec<String>,
    child: RefCell<Option<Child>>,
}

impl Engine {
    /// Starts an engine.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts an engine with these options on its command line.
    ///
    /// # Panics
    /// If it does not start.
    pub fn with(options: &[&str]) -> Self {
        Self::try_with(options).expect("the engine starts")
    }

    /// Starts an engine that also speaks TLS at a port of `localhost`, with a certificate of this
    /// authority. Also returns the port.
    ///
    /// # Panics
    /// If it does not start.
    pub fn with_tls(authority: &Authority) -> (Self, u16) {
        let keys = Site::new();
        let folder = keys.outside("keys");
        let Certificate { chain, key } = authority.issue(&["localhost"], &folder, "engine");
        let of_authority = keys.write_at(folder.join("authority.pem"), authority.pem());
        let [chain, key, authority] =
            [chain, key, of_authority].map(|path| path.display().to_string());
        let try_port = |_| {
            // Another process may be faster.
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let engine = Self::try_with(&[
                "--bind",
                "127.0.0.1",
                "--tls-port",
                &port.to_string(),
                "--tls-cert-file",
                &chain,
                "--tls-key-file",
                &key,
                "--tls-ca-cert-file",
                &authority,
                "--tls-auth-clients",
                "no",
            ]);
            Some((engine?, port))
        };
        (0..5).find_map(try_port).expect("the engine starts at no port")
    }

    /// Lets the engine also listen at a port of the loopback interface. Returns the port.
    ///
    /// # Panics
    /// If no port is free.
    pub fn listen(&self) -> u16 {
        let listen = |_| {
            // Another process may be faster.
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            self.ask(&["CONFIG", "SET", "port", &port.to_string()]).is_ok().then_some(port)
        };
        self.command(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
        (0..5).find_map(listen).expect("no port is free")
    }

    fn try_with(options: &[&str]) -> Option<Self> {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let engine = Self { site: Site::new(), options, child: RefCell::default() };
        engine.try_start().then_some(engine)
    }

    /// The URL of the engine.
    pub fn url(&self) -> String {
        format!("redis://unix:{}", self.socket().display())
    }

    /// Starts an engine that was [killed](Self::kill). It knows nothing any more.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_again(&self) {
        assert!(self.try_start(), "the engine does not start");
    }

    /// True once the engine answers, false if it has ended.
    fn try_start(&self) -> bool {
        let server = std::env::var(OTHER).unwrap_or_else(|_| programs()[0].to_owned());
        let log = File::create(self.log()).unwrap();
        let mut command = dies_with_us(Path::new(&server), "KILL");
        command.current_dir(self.site.outside("")).args(["--port", "0", "--save", ""]);
        command.arg("--unixsocket").arg(self.socket()).args(["--unixsocketperm", "777"]);
        let child = command.args(&self.options).stdin(Stdio::null()).stdout(log).spawn();
        let mut child = child.unwrap();
        let is_up = wait::for_some("the engine", || match child.try_wait().unwrap() {
            Some(_) => Some(false),
            None => self.ask(&["PING"]).is_ok().then_some(true),
        });
        self.child.replace(Some(child));
        is_up
    }

    /// Kills the engine.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill(&self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Stops the engine as a machine that hangs, or lets it go on.
    ///
    /// # Panics
    /// If it does not run.
    pub fn hang(&self, hangs: bool) {
        let pid = Pid::from_child(self.child.borrow().as_ref().unwrap());
        kill_process(pid, if hangs { Signal::STOP } else { Signal::CONT }).unwrap();
    }

    /// The answer to a command, as text.
    ///
    /// # Panics
    /// If there is an error.
    pub fn command(&self, words: &[&str]) -> String {
        self.ask(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    fn ask(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(programs()[1]);
        command.arg("-s").arg(self.socket()).arg("-e").args(words);
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stdout) + &text(&output.stderr)),
        }
    }

    /// Adds records to a stream whose field `purge` has this number of bytes and means nothing.
    pub fn add_long(&self, stream: &str, records: usize, bytes: usize) {
        let script = "for n = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'v', '1', 'by', 'y', \
                      'purge', string.rep('x', ARGV[2])) end";
        let [records, bytes] = [records, bytes].map(|number| number.to_string());
        self.command(&["EVAL", script, "1", stream, &records, &bytes]);
    }

    /// A figure of a section of `INFO`.
    ///
    /// # Panics
    /// If there is none.
    pub fn figure(&self, section: &str, name: &str) -> u64 {
        let info = self.command(&["INFO", section]);
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let digits = line.unwrap().trim_start_matches("calls=").split(',').next().unwrap();
        digits.trim().parse().unwrap()
    }

    /// A path of its own to the engine, which can be cut.
    pub fn path(&self, name: &str) -> EnginePath<'_> {
        let path = EnginePath { engine: self, at: self.site.outside(name) };
        path.mend();
        path
    }

    fn socket(&self) -> PathBuf {
        self.site.outside(SOCKET)
    }

    fn log(&self) -> PathBuf {
        self.site.outside("engine.log")
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.child.borrow().is_some() {
            self.kill();
        }
        if thread::panicking() {
            let log = fs::read_to_string(self.log()).unwrap_or_default();
            eprintln!("--- the engine's log ---\n{log}");
        }
    }
}

/// The way of one node to the engine.
pub struct EnginePath<'e> {
    engine: &'e Engine,
    at: PathBuf,
}

impl EnginePath<'_> {
    /// The URL of the engine for that node.
    pub fn url(&self) -> String {
        format!("redis://unix:{}", self.at.display())
    }

    /// Cuts it. Other nodes have to connect again.
    ///
    /// # Panics
    /// If it is cut already.
    pub fn cut(&self) {
        fs::remove_file(&self.at).unwrap();
        self.engine.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    }

    /// Mends it, for this number of bytes in a second to the node.
    ///
    /// # Panics
    /// If it is not cut.
    pub fn mend_slowly(&self, rate: usize) {
        let (listener, socket) = (UnixListener::bind(&self.at).unwrap(), self.engine.socket());
        fs::set_permissions(&self.at, Permissions::from_mode(0o777)).unwrap();
        thread::spawn(move || {
            for node in listener.incoming() {
                let (mut node, mut engine) = (node.unwrap(), UnixStream::connect(&socket).unwrap());
                let (mut to, mut from) = (engine.try_clone().unwrap(), node.try_clone().unwrap());
                // Both directions end with their connections.
                thread::spawn(move || drop(io::copy(&mut from, &mut to)));
                thread::spawn(move || {
                    let mut piece = vec![0; rate / 20];
                    while let Ok(read @ 1..) = engine.read(&mut piece)
                        && node.write_all(&piece[..read]).is_ok()
                    {
                        thread::sleep(Duration::from_secs(1) / 20);
                    }
                    let _ = node.shutdown(Shutdown::Both);
                });
            }
        });
    }

    /// Mends it.
    ///
    /// # Panics
    /// If it is not cut.
    pub fn mend(&self) {
        symlink(self.engine.socket(), &self.at).unwrap();
    }
}

fn programs() -> [&'static str; 2] {
    let installed = PROGRAMS.into_iter().find(|[server, _]| Path::new(server).exists());
    installed.expect("no Redis and no Valkey; run: tools/install test")
}
