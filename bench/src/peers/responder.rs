//! Sendoff in front of a FastCGI program in C, in each delivery mode.

use super::{Daemon, Peer, Running, Sendoff, version_line};
use crate::site::Site;
use anyhow::{Context, Result, ensure};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// `sendoff serve --fastcgi` with a program that links libfcgi.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) name: &'static str,
    pub(crate) sendoff: Sendoff,
    /// True if the program listens on TCP; otherwise on a UNIX socket.
    pub(crate) over_tcp: bool,
    /// True if the program uses Debian's libfcgi; otherwise Sendoff's.
    pub(crate) stock: bool,
}

impl Peer for Responder {
    fn name(&self) -> &'static str {
        self.name
    }

    fn version(&self) -> Result<String> {
        let library = self.library();
        ensure!(library.is_file(), "{} is not built (make libfcgi)", library.display());
        let cc = version_line(Path::new("cc"), "--version")?;
        let whose = if self.stock { "Debian's" } else { "Sendoff's" };
        Ok(format!("{}, responder.c on {whose} libfcgi, built by {cc}", self.sendoff.version()?))
    }

    fn start(&self, site: &Site, dir: &Path) -> Result<Running> {
        let program = dir.join("responder");
        let source = dir.join("responder.c");
        std::fs::write(&source, include_str!("../../responder.c"))?;
        let compiled = Command::new("cc")
            .args(["-O2", "-Wall", "-o"])
            .args([&program, &source])
            .arg("-lfcgi")
            .output()
            .context("cannot run cc")?;
        let why = String::from_utf8_lossy(&compiled.stderr);
        ensure!(compiled.status.success(), "responder.c does not compile: {why}");

        let (listener, address): (OwnedFd, String) = if self.over_tcp {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let address = format!("tcp:{}", listener.local_addr()?);
            (listener.into(), address)
        } else {
            let path = dir.join("responder.sock");
            let listener = UnixListener::bind(&path)?;
            // The front may run as another user.
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))?;
            (listener.into(), format!("unix:{}", path.display()))
        };
        let mut daemons = Vec::new();
        for number in 0..site.workers {
            let log = dir.join(format!("responder-{number}"));
            std::fs::create_dir(&log)?;
            let stdin = Stdio::from(listener.try_clone()?);
            let library = self.library();
            let path = library.parent().context("a library without a folder")?;
            let ours = [("LD_LIBRARY_PATH", path.as_os_str())];
            let env = if self.stock { &[][..] } else { &ours };
            daemons.push(Daemon::spawn_with(&program, &[""; 0], &log, stdin, Stdio::null(), env)?);
        }
        let args = vec!["--fastcgi".to_owned(), format!("/responder={address}")];
        let mut running = self.sendoff.start_with(site, dir, &args)?;
        running.daemons.append(&mut daemons);
        Ok(running)
    }
}

impl Responder {
    fn library(&self) -> PathBuf {
        self.sendoff.binary.with_file_name("libfcgi.so.0")
    }
}
