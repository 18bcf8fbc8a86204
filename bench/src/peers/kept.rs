//! Page caches: pages of PHP that do not change, which PHP makes once. Only the cache is measured.

use super::nginx::{INCLUDED, LASTING, link_includes, start_nginx};
use super::php_fpm::{self, SOCKET};
use super::{Daemon, Peer, Running, Sendoff};
use super::{find_program, free_port, path_str, version_line};
use crate::site::Site;
use anyhow::Result;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Stdio;

/// A page cache that keeps each page for an hour.
#[derive(Debug)]
pub(crate) enum Kept {
    /// `fastcgi_cache`, in front of php-fpm.
    Nginx,
    /// In memory, in front of nginx and php-fpm.
    Varnish,
    /// `page_cache`.
    Sendoff(Sendoff),
}

impl Peer for Kept {
    fn name(&self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Varnish => "varnish",
            Self::Sendoff(sendoff) => sendoff.name,
        }
    }

    fn version(&self) -> Result<String> {
        match self {
            Self::Nginx => version_line(&find_program(&["nginx"])?, "-v"),
            Self::Varnish => version_line(&find_program(&["varnishd"])?, "-V"),
            Self::Sendoff(sendoff) => sendoff.version(),
        }
    }

    fn start(&self, site: &Site, dir: &Path) -> Result<Running> {
        if let Self::Sendoff(sendoff) = self {
            return start_sendoff(sendoff, site, dir);
        }
        let fpm = php_fpm::start(site, dir)?.unmeasured();
        link_includes(dir)?;
        let addr = free_port()?;
        let keeps = matches!(self, Self::Nginx);
        let nginx = start_nginx(site, dir, addr, &nginx_of_pages(site, dir, addr, keeps))?;
        if keeps {
            return Ok(Running { addr, daemons: vec![nginx, fpm] });
        }
        let mut running = start_varnish(dir, addr)?;
        running.daemons.extend([nginx.unmeasured(), fpm]);
        Ok(running)
    }
}

/// The `http` block of an nginx for PHP's pages; `keeps`: it keeps them.
fn nginx_of_pages(site: &Site, dir: &Path, addr: SocketAddr, keeps: bool) -> String {
    let (dir, root) = (dir.display(), site.root.display());
    let (folder, cache) = match keeps {
        true => (
            format!("fastcgi_cache_path {dir}/pages keys_zone=pages:10m;"),
            "fastcgi_cache pages; fastcgi_cache_key $host$request_uri; fastcgi_cache_valid 200 1h;",
        ),
        false => (String::new(), ""),
    };
    format!(
        r"{LASTING}
	{folder}
	server {{
		listen {addr};
		root {root};
		location ~ \.php$ {{
			include {include};
			fastcgi_pass unix:{dir}/{SOCKET};
			{cache}
		}}
	}}",
        include = INCLUDED[0],
    )
}

/// Varnish, with its pages in memory, and without users of its own, which could not enter the
/// folder of the benchmark.
fn start_varnish(dir: &Path, behind: SocketAddr) -> Result<Running> {
    let addr = free_port()?;
    let (listen, backend) = (addr.to_string(), behind.to_string());
    let args = ["-F", "-j", "none", "-n", path_str(dir)?, "-a", &listen, "-b", &backend];
    let args = [&args[..], &["-t", "3600", "-s", "malloc,64m"]].concat();
    let mut varnish = Daemon::spawn(&find_program(&["varnishd"])?, &args, dir, Stdio::null())?;
    varnish.wait_until(|| TcpStream::connect(addr).ok())?;
    Ok(Running { addr, daemons: vec![varnish] })
}

fn start_sendoff(sendoff: &Sendoff, site: &Site, dir: &Path) -> Result<Running> {
    let config = dir.join("sendoff.toml");
    let (root, pages) = (site.root.display(), dir.join("pages"));
    let text = format!(
        "listen = '127.0.0.1:0'\npage_cache_folder = '{}'\n[[site]]\nroot = '{root}'\n\
         [[site.route]]\nprefix = '/'\npage_cache = '1h'\n",
        pages.display()
    );
    fs::write(&config, text)?;
    sendoff.start_by(&["run".into(), "--config".into(), path_str(&config)?.into()], dir)
}
