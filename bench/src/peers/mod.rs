//! The servers to compare. Each is started with its own configuration, in its own folder, on a free
//! port of 127.0.0.1, and ends with the benchmark.

mod apache;
mod back_end;
mod booted;
mod kept;
mod lighttpd;
mod lua;
mod modes;
mod nginx;
mod php_fpm;
mod proxied;
mod responder;
mod sendoff;
mod tls;

pub(crate) use apache::Apache;
pub(crate) use back_end::start_back_end;
pub(crate) use booted::Booted;
pub(crate) use kept::Kept;
pub(crate) use lighttpd::Lighttpd;
pub(crate) use lua::Lua;
pub(crate) use modes::{delivery_modes, responder_modes};
pub(crate) use nginx::Nginx;
pub(crate) use proxied::Proxied;
pub(crate) use sendoff::Sendoff;
pub(crate) use tls::Tls;

use crate::site::Site;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// PHP workers of every server.
pub(crate) const PHP_WORKERS: usize = 4;
/// PHP's output buffer in bytes, the same as in Debian's php.ini.
const OUTPUT_BUFFERING: usize = 4096;
/// Time limit for a server to become ready.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Time limit after SIGTERM; then the server is killed.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// Pause between two checks of a server that starts or ends.
const POLL: Duration = Duration::from_millis(10);

/// A server to measure.
pub(crate) trait Peer {
    /// The name in the report and for `--peers`.
    fn name(&self) -> &'static str;
    /// Program and version, for the report; an error names the missing program.
    fn version(&self) -> Result<String>;
    /// Starts the server for `site`; `dir` is an empty folder for its files.
    fn start(&self, site: &Site, dir: &Path) -> Result<Running>;
}

/// A server that answers requests. Dropping it ends its processes.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) addr: SocketAddr,
    daemons: Vec<Daemon>,
}

impl Running {
    /// The roots of the measured process trees.
    pub(crate) fn roots(&self) -> Vec<u32> {
        self.daemons.iter().filter(|d| d.is_measured).map(|d| d.child.id()).collect()
    }

    /// The last messages of its processes, each with the name of its process.
    pub(crate) fn last_messages(&self) -> String {
        self.daemons.iter().map(|daemon| format!("\n  {}:{}", daemon.name, daemon.tail())).collect()
    }
}

/// A process that runs until it is dropped.
#[derive(Debug)]
struct Daemon {
    child: Child,
    name: String,
    log: PathBuf,
    /// True if its CPU time counts as the server's.
    is_measured: bool,
}

impl Daemon {
    /// Starts `program`; its messages go to a file in `dir`. The kernel ends it if the benchmark is
    /// killed.
    fn spawn(program: &Path, args: &[impl AsRef<OsStr>], dir: &Path, out: Stdio) -> Result<Self> {
        Self::spawn_with(program, args, dir, Stdio::null(), out, &[])
    }

    /// Like [`Self::spawn`], with a standard input and additional environment variables.
    fn spawn_with(
        program: &Path,
        args: &[impl AsRef<OsStr>],
        dir: &Path,
        input: Stdio,
        out: Stdio,
        env: &[(&str, &OsStr)],
    ) -> Result<Self> {
        let name =
            program.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        let log = dir.join(format!("{name}.log"));
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "--"])
            .arg(program)
            .args(args)
            .envs(env.iter().copied())
            .stdin(input)
            .stdout(out)
            .stderr(File::create(&log)?)
            // lighttpd sends its signals to its whole process group.
            .process_group(0)
            .spawn()
            .context("cannot run setpriv (package util-linux)")?;
        Ok(Self { child, name, log, is_measured: true })
    }

    /// Excludes the process from the measurement.
    fn unmeasured(mut self) -> Self {
        self.is_measured = false;
        self
    }

    /// Calls `ready` repeatedly until it returns a value.
    fn wait_until<T>(&mut self, mut ready: impl FnMut() -> Option<T>) -> Result<T> {
        let started = Instant::now();
        loop {
            if let Some(value) = ready() {
                return Ok(value);
            }
            if let Some(status) = self.child.try_wait()? {
                return Err(self.failure(&format!("ended with {status}")));
            }
            if started.elapsed() > START_LIMIT {
                return Err(self.failure("did not get ready"));
            }
            thread::sleep(POLL);
        }
    }

    /// The first line that the program prints; it was started with `Stdio::piped()`.
    fn first_line(&mut self) -> Result<String> {
        let stdout = self.child.stdout.take().context("no standard output")?;
        let (announce, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            let read = BufReader::new(stdout).read_line(&mut line);
            let _nobody_waits_any_more = announce.send(read.map(|_| line));
        });
        let line = lines.recv_timeout(START_LIMIT).map_err(|_| self.failure("printed no line"))?;
        Ok(line?)
    }

    fn failure(&self, what: &str) -> anyhow::Error {
        anyhow::anyhow!("{} {what}; its last messages:{}", self.name, self.tail())
    }

    /// The last lines of its messages, each behind an end of line.
    fn tail(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(5)..].iter().map(|line| format!("\n  {line}")).collect()
    }

    fn signal(&self, signal: Signal) {
        // The id of a child that was not waited for cannot have been reused.
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _gone_already = kill_process(pid, signal);
        }
    }

    fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let started = Instant::now();
        while started.elapsed() < limit {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            thread::sleep(POLL);
        }
        None
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Ok(Some(_)) = self.child.try_wait() {
            return;
        }
        self.signal(Signal::TERM);
        if self.wait(STOP_LIMIT).is_none() {
            eprintln!("{} did not end on SIGTERM and is killed", self.name);
            self.signal(Signal::KILL);
            let _reaped = self.child.wait();
        }
    }
}

/// A port that was free a moment ago, for servers that cannot pick one themselves.
fn free_port() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Searches for the first of `names` on PATH and in the folders where Debian keeps servers.
fn find_program(names: &[&str]) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> =
        std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]).collect();
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|candidate| candidate.is_file())
        .with_context(|| format!("{} is not installed", names.join(" / ")))
}

fn path_str(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not valid UTF-8", path.display()))
}

/// The first line that `program ARG` prints, on either stream.
fn version_line(program: &Path, arg: &str) -> Result<String> {
    let output = Command::new(program)
        .arg(arg)
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let text = [output.stdout, output.stderr].concat();
    match String::from_utf8_lossy(&text).lines().next() {
        Some(line) => Ok(line.to_owned()),
        None => bail!("{} {arg} prints nothing", program.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_answers_a_proxy_is_not_measured() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let sleep = || {
            let program = Path::new("sleep");
            Daemon::spawn(program, &["60"], dir.path(), Stdio::null()).expect("a process")
        };
        let proxy = sleep();
        let id = proxy.child.id();
        let addr = SocketAddr::from(([127, 0, 0, 1], 80));
        let running = Running { addr, daemons: vec![proxy, sleep().unmeasured()] };
        assert_eq!(running.roots(), [id]);
    }
}
