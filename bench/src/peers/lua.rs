//! A Lua script that prints hello, in each place where it can run.

use super::lighttpd::start_lighttpd;
use super::{Peer, Running, Sendoff};
use super::{find_program, path_str, version_line};
use crate::site::Site;
use anyhow::{Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// Answers every request like the page [`Hello`](crate::site::Page::Hello).
const SCRIPT: &str = "lighty.header['Content-Type'] = 'text/html; charset=UTF-8'\n\
    lighty.content = { 'hello' }\nreturn 200\n";

/// The module in Debian's package lighttpd-modules-lua.
const MAGNET: &str = "/usr/lib/lighttpd/mod_magnet.so";

/// The place where the script runs.
#[derive(Debug)]
pub(crate) enum Lua {
    /// The event loops of Sendoff.
    Server(Sendoff),
    /// `sendoff-lua` behind Sendoff.
    Program(Sendoff),
    /// lighttpd's mod_magnet.
    Magnet,
}

impl Peer for Lua {
    fn name(&self) -> &'static str {
        match self {
            Self::Server(_) => "sendoff, Lua",
            Self::Program(_) => "sendoff-lua",
            Self::Magnet => "lighttpd, Lua",
        }
    }

    fn version(&self) -> Result<String> {
        match self {
            Self::Server(sendoff) => sendoff.version(),
            Self::Program(sendoff) => {
                let program = program(sendoff);
                ensure!(program.is_file(), "{} is not built", program.display());
                sendoff.version()
            }
            Self::Magnet => {
                ensure!(Path::new(MAGNET).is_file(), "{MAGNET} is not installed");
                version_line(&find_program(&["lighttpd"])?, "-v")
            }
        }
    }

    fn start(&self, site: &Site, dir: &Path) -> Result<Running> {
        let script = dir.join("hello.lua");
        fs::write(&script, SCRIPT)?;
        let script = path_str(&script)?;
        let root = path_str(&site.root)?;
        let head = "listen = '127.0.0.1:0'\n";
        let (sendoff, text) = match self {
            Self::Server(sendoff) => {
                let route = format!("[[site.route]]\nprefix = '/'\nlua = '{script}'\n");
                (sendoff, format!("{head}[[site]]\nroot = '{root}'\nphp = false\n{route}"))
            }
            Self::Program(sendoff) => {
                let user = site.account.as_ref();
                let user = user.map_or_else(String::new, |a| format!("user = '{}'\n", a.name));
                let command = format!("['{}', '{script}']", path_str(&program(sendoff))?);
                let pool = format!("[[pool]]\nname = 'scripts'\ncommand = {command}\n{user}");
                let site = format!("[[site]]\nroot = '{root}'\nphp = false\n");
                (sendoff, format!("{head}{pool}{site}fastcgi = {{ '/' = 'pool:scripts' }}\n"))
            }
            Self::Magnet => {
                let module = "server.modules = (\"mod_magnet\")\n";
                let rule = format!("magnet.attract-raw-url-to = (\"{script}\")\n");
                let (addr, lighttpd) = start_lighttpd(site, dir, &format!("{module}{rule}"))?;
                return Ok(Running { addr, daemons: vec![lighttpd] });
            }
        };
        let config = dir.join("sendoff.toml");
        fs::write(&config, text)?;
        sendoff.start_by(&["run".into(), "--config".into(), path_str(&config)?.into()], dir)
    }
}

/// `sendoff-lua` beside `sendoff`.
fn program(sendoff: &Sendoff) -> PathBuf {
    sendoff.binary.with_file_name("sendoff-lua")
}
