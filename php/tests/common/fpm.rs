//! Debian's php-fpm with one worker, on a socket of its own.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::PoisonError;

use sendoff_config::PHP_VERSION;

use super::TempDir;
use super::link::{Link, Request, Response};
use super::master::SPAWNING;

pub struct Fpm {
    child: Child,
    dir: TempDir,
}

impl Fpm {
    pub fn start(settings: &[&str]) -> Self {
        let dir = TempDir::new();
        let root = rustix::process::geteuid().is_root();
        let account = if root { "user = root\ngroup = root\n" } else { "" };
        let config = format!(
            "[global]\nerror_log = /proc/self/fd/2\n[www]\nlisten = {}\npm = static\n\
             pm.max_children = 1\n{account}",
            dir.file("fpm.sock")
        );
        std::fs::write(dir.path().join("fpm.conf"), config).unwrap();
        let mut command = Command::new(format!("php-fpm{PHP_VERSION}"));
        command.arg("-F").arg("-y").arg(dir.path().join("fpm.conf"));
        if root {
            command.arg("-R");
        }
        for setting in settings {
            command.arg("-d").arg(setting);
        }
        let mut child = {
            let _alone = SPAWNING.lock().unwrap_or_else(PoisonError::into_inner);
            command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("php-fpm")
        };
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let ready = log.by_ref().any(|line| line.unwrap().contains("ready to handle connections"));
        assert!(ready, "php-fpm does not start");
        // Keep reading, or php-fpm would block on a full pipe.
        std::thread::spawn(move || log.for_each(drop));
        Self { child, dir }
    }

    /// Process id of its only worker.
    pub fn worker(&self) -> i32 {
        let pid = self.child.id();
        let children = format!("/proc/{pid}/task/{pid}/children");
        let children = std::fs::read_to_string(children).unwrap();
        children.trim().parse().expect("one child")
    }

    pub fn ask(&self, request: &Request) -> Response {
        Link::new(UnixStream::connect(self.dir.file("fpm.sock")).unwrap()).ask(request)
    }
}

impl Drop for Fpm {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::QUIT,
        );
        let _ = self.child.wait();
    }
}
