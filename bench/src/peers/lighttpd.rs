//! Debian's lighttpd in front of Debian's php-fpm, by mod_fastcgi.

use super::{Daemon, Peer, Running, php_fpm};
use super::{find_program, free_port, path_str, version_line};
use crate::site::Site;
use anyhow::Result;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::thread::available_parallelism;

/// Some of Debian's media types. lighttpd answers by 304 only files of a known type.
const TYPES: &str = "mimetype.assign = (\".html\" => \"text/html\", \".txt\" => \"text/plain\", \
    \".gif\" => \"image/gif\", \".jpg\" => \"image/jpeg\")\n";

/// lighttpd + php-fpm, with a process per core.
#[derive(Debug)]
pub(crate) struct Lighttpd;

impl Peer for Lighttpd {
    fn name(&self) -> &'static str {
        "lighttpd+fpm"
    }

    fn version(&self) -> Result<String> {
        let lighttpd = version_line(&find_program(&["lighttpd"])?, "-v")?;
        Ok(format!("{lighttpd}, {}", php_fpm::version()?))
    }

    fn start(&self, site: &Site, dir: &Path) -> Result<Running> {
        let fpm = php_fpm::start(site, dir)?;
        let socket = dir.join(php_fpm::SOCKET);
        let text = format!(
            "server.modules = (\"mod_fastcgi\")\n\
             fastcgi.server = (\".php\" => ((\"socket\" => \"{}\")))\n",
            socket.display()
        );
        let (addr, lighttpd) = start_lighttpd(site, dir, &text)?;
        Ok(Running { addr, daemons: vec![lighttpd, fpm] })
    }
}

/// lighttpd with a process per core, and with these modules and rules.
pub(super) fn start_lighttpd(site: &Site, dir: &Path, rules: &str) -> Result<(SocketAddr, Daemon)> {
    let addr = free_port()?;
    let account = site.account.as_ref().map_or_else(String::new, |account| {
        let name = &account.name;
        format!("server.username = \"{name}\"\nserver.groupname = \"{name}\"\n")
    });
    let processes = available_parallelism().map_or(1, usize::from);
    let root = site.root.display();
    let text = format!(
        "server.document-root = \"{root}\"\n\
         server.bind = \"{}\"\nserver.port = {}\n{account}\
         server.max-worker = {processes}\n\
         server.max-keep-alive-requests = 100000000\n\
         {TYPES}\
         index-file.names = (\"index.php\", \"index.html\")\n{rules}",
        addr.ip(),
        addr.port(),
    );
    let config = dir.join("lighttpd.conf");
    fs::write(&config, text)?;
    let args = ["-D", "-f", path_str(&config)?];
    let program = find_program(&["lighttpd"])?;
    let mut lighttpd = Daemon::spawn(&program, &args, dir, Stdio::null())?;
    lighttpd.wait_until(|| TcpStream::connect(addr).ok())?;
    Ok((addr, lighttpd))
}
