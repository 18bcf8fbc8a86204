//! Proxies in front of one nginx that serves the site's files: HTTP over kept connections. Only the
//! proxy is measured.

use super::nginx::{LASTING, start_nginx};
use super::{Daemon, Peer, Running, Sendoff};
use super::{find_program, free_port, path_str, version_line};
use crate::site::Site;
use anyhow::Result;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Stdio;

/// Idle connections to the upstream server, per process in nginx and in total in HAProxy: no proxy
/// has to open new ones.
const KEPT: usize = 64;

/// A proxy, in the usual configuration with kept connections that passes the client's address to
/// the application.
#[derive(Debug)]
pub(crate) enum Proxied {
    Nginx,
    HaProxy,
    Sendoff(Sendoff),
}

impl Peer for Proxied {
    fn name(&self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::HaProxy => "haproxy",
            Self::Sendoff(sendoff) => sendoff.name,
        }
    }

    fn version(&self) -> Result<String> {
        let nginx = version_line(&find_program(&["nginx"])?, "-v")?;
        let nginx = nginx.trim_start_matches("nginx version: ");
        let proxy = match self {
            Self::Nginx => nginx.to_owned(),
            Self::HaProxy => version_line(&find_program(&["haproxy"])?, "-v")?,
            Self::Sendoff(sendoff) => sendoff.version()?,
        };
        Ok(format!("{proxy}, in front of {nginx}"))
    }

    fn start(&self, site: &Site, dir: &Path) -> Result<Running> {
        let behind_dir = dir.join("behind");
        fs::create_dir(&behind_dir)?;
        let behind = free_port()?;
        let files = format!(
            "{LASTING}\n\topen_file_cache max=100;\n\tserver {{ listen {behind}; root {}; }}",
            site.root.display()
        );
        let server = start_nginx(site, &behind_dir, behind, &files)?.unmeasured();
        let mut running = match self {
            Self::Nginx => {
                let addr = free_port()?;
                let proxy = start_nginx(site, dir, addr, &nginx_proxy(addr, behind))?;
                Running { addr, daemons: vec![proxy] }
            }
            Self::HaProxy => start_haproxy(dir, behind)?,
            Self::Sendoff(sendoff) => {
                let config = dir.join("sendoff.toml");
                let root = site.root.display();
                let text = format!(
                    "listen = '127.0.0.1:0'\n[[site]]\nroot = '{root}'\n\
                     [[site.route]]\nprefix = '/'\nproxy = 'http://{behind}'\n"
                );
                fs::write(&config, text)?;
                sendoff
                    .start_by(&["run".into(), "--config".into(), path_str(&config)?.into()], dir)?
            }
        };
        running.daemons.push(server);
        Ok(running)
    }
}

fn nginx_proxy(addr: SocketAddr, behind: SocketAddr) -> String {
    format!(
        "{LASTING}
	upstream behind {{ server {behind}; keepalive {KEPT}; keepalive_requests 100000000; }}
	server {{
		listen {addr};
		location / {{
			proxy_pass http://behind;
			proxy_http_version 1.1;
			proxy_set_header Connection \"\";
			proxy_set_header Host $host;
			proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
			proxy_set_header X-Forwarded-Proto $scheme;
		}}
	}}"
    )
}

/// HAProxy with a thread per core, which is its default.
fn start_haproxy(dir: &Path, behind: SocketAddr) -> Result<Running> {
    let addr = free_port()?;
    let config = dir.join("haproxy.cfg");
    let text = format!(
        "defaults\n\tmode http\n\ttimeout connect 5s\n\ttimeout client 50s\n\ttimeout server 50s\n\
         \toption forwardfor\n\thttp-reuse always\n\
         frontend clients\n\tbind {addr}\n\tdefault_backend behind\n\
         backend behind\n\tserver behind {behind} pool-max-conn {KEPT}\n"
    );
    fs::write(&config, text)?;
    let args = ["-db", "-f", path_str(&config)?];
    let mut haproxy = Daemon::spawn(&find_program(&["haproxy"])?, &args, dir, Stdio::null())?;
    haproxy.wait_until(|| TcpStream::connect(addr).ok())?;
    Ok(Running { addr, daemons: vec![haproxy] })
}
