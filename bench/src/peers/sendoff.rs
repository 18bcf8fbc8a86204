//! Sendoff itself, started with one command.

use super::{Daemon, OUTPUT_BUFFERING, Peer, Running, version_line};
use crate::report::SENDOFF;
use crate::site::Site;
use anyhow::{Result, bail};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// `sendoff serve`.
#[derive(Clone, Debug)]
pub(crate) struct Sendoff {
    /// The name in the report.
    pub(crate) name: &'static str,
    pub(crate) binary: PathBuf,
    /// Additional options of `sendoff serve`.
    pub(crate) extra_args: Vec<String>,
}

impl Peer for Sendoff {
    fn name(&self) -> &'static str {
        self.name
    }

    fn version(&self) -> Result<String> {
        if !self.binary.is_file() {
            bail!("the sendoff binary is not built");
        }
        let version = version_line(&self.binary, "--version")?;
        Ok([&[version], &self.extra_args[..]].concat().join(" "))
    }

    fn start(&self, site: &Site, dir: &Path) -> Result<Running> {
        self.start_with(site, dir, &[])
    }
}

impl Sendoff {
    /// The program at this path, or beside this one.
    pub(crate) fn at(binary: Option<&Path>, extra_args: Vec<String>) -> Result<Self> {
        let binary = match binary {
            Some(path) => path.to_owned(),
            None => std::env::current_exe()?.with_file_name("sendoff"),
        };
        Ok(Self { name: SENDOFF, binary, extra_args })
    }

    /// Starts it at an address of the caller's choice.
    pub(crate) fn start_at(&self, addr: SocketAddr, site: &Site, dir: &Path) -> Result<Running> {
        self.serve(addr, site, dir, &[])
    }

    /// Starts it with additional options.
    pub(super) fn start_with(&self, site: &Site, dir: &Path, more: &[String]) -> Result<Running> {
        self.serve(SocketAddr::from(([127, 0, 0, 1], 0)), site, dir, more)
    }

    fn serve(&self, addr: SocketAddr, site: &Site, dir: &Path, more: &[String]) -> Result<Running> {
        let mut args: Vec<String> = vec!["serve".into(), site.root.display().to_string()];
        args.extend(["--listen".into(), addr.to_string(), "--workers".into()]);
        args.extend([site.workers.to_string(), "--php-ini".into()]);
        args.push(format!("output_buffering={OUTPUT_BUFFERING}"));
        args.extend_from_slice(&self.extra_args);
        args.extend_from_slice(more);
        self.start_by(&args, dir)
    }

    /// Starts it with this command line.
    pub(super) fn start_by(&self, args: &[String], dir: &Path) -> Result<Running> {
        let mut daemon = Daemon::spawn(&self.binary, args, dir, Stdio::piped())?;

        let line = daemon.first_line()?;
        let addr = served_address(&line)
            .ok_or_else(|| daemon.failure(&format!("printed {line:?} instead of its address")))?;
        Ok(Running { addr, daemons: vec![daemon] })
    }
}

/// The first address in `sendoff: serving ROOT at http://ADDR:PORT/`.
fn served_address(line: &str) -> Option<SocketAddr> {
    let after = line.rsplit_once(" at http://")?.1;
    after.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_tells_the_address() {
        let addr = |line| served_address(line).map(|a| a.to_string());
        let one = "sendoff: serving /srv/a at http://b at http://127.0.0.1:80/\n";
        assert_eq!(addr(one).as_deref(), Some("127.0.0.1:80"));
        let two = "sendoff: serving /srv at http://127.0.0.1:8080/, http://[::1]:8080/\n";
        assert_eq!(addr(two).as_deref(), Some("127.0.0.1:8080"));
        assert_eq!(addr("sendoff: no\n"), None);
        assert_eq!(addr(""), None);
    }
}
