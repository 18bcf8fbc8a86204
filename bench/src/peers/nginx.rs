//! Debian's nginx in front of Debian's php-fpm, in an administrator's usual configuration.

use super::php_fpm::{self, SOCKET};
use super::{Daemon, PHP_WORKERS, Peer, Running};
use super::{find_program, free_port, path_str, version_line};
use crate::site::Site;
use anyhow::{Result, bail};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;
use std::thread::available_parallelism;

/// The folder of the files that nginx.conf includes, in Debian.
const ETC_NGINX: &str = "/etc/nginx";
pub(super) const INCLUDED: &[&str] = &["fastcgi.conf", "mime.types"];

/// For nginx as a proxy or a cache, and for both sides of it: connections last as long as the
/// measurement, and nothing is logged.
pub(super) const LASTING: &str = "access_log off;\n\tkeepalive_requests 100000000;";

/// nginx + php-fpm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nginx {
    /// Debian's configuration, including the access log.
    Debian,
    /// The same without an access log.
    Unlogged,
    /// Without an access log, and with kept connections to php-fpm.
    KeepAlive,
    /// With further changes that administrators make for speed: open files are cached, and buffers
    /// hold large responses, which otherwise go through a temporary file.
    Tuned,
}

impl Peer for Nginx {
    fn name(&self) -> &'static str {
        match self {
            Self::Debian => "nginx+fpm-debian",
            Self::Unlogged => "nginx+fpm",
            Self::KeepAlive => "nginx+fpm-keepalive",
            Self::Tuned => "nginx+fpm-tuned",
        }
    }

    fn version(&self) -> Result<String> {
        if self.keeps_upstream() && connections_to_keep(PHP_WORKERS) == 0 {
            bail!(
                "nginx has a worker per core; keeping a connection each would lock out php-fpm's"
            );
        }
        let nginx = version_line(&find_program(&["nginx"])?, "-v")?;
        let fpm = php_fpm::version()?;
        let nginx = nginx.trim_start_matches("nginx version: ");
        Ok(format!("{nginx}, {fpm}"))
    }

    fn start(&self, site: &Site, dir: &Path) -> Result<Running> {
        let fpm = php_fpm::start(site, dir)?;
        link_includes(dir)?;
        let addr = free_port()?;
        let nginx = start_nginx(site, dir, addr, &self.http_block(site, dir, addr))?;
        Ok(Running { addr, daemons: vec![nginx, fpm] })
    }
}

impl Nginx {
    fn keeps_upstream(self) -> bool {
        matches!(self, Self::KeepAlive | Self::Tuned)
    }

    /// The `http` block of Debian's nginx.conf and default site, with PHP switched on.
    fn http_block(self, site: &Site, dir: &Path, addr: SocketAddr) -> String {
        let tuned = match self {
            Self::Debian => format!("access_log {}/access.log;", dir.display()),
            Self::Unlogged | Self::KeepAlive => "access_log off;".to_owned(),
            Self::Tuned => {
                "access_log off;\n\topen_file_cache max=1000;\n\tfastcgi_buffers 256 16k;"
                    .to_owned()
            }
        };
        let (upstream, keep_conn) = if self.keeps_upstream() {
            let kept = connections_to_keep(site.workers);
            (format!("keepalive {kept};"), "fastcgi_keep_conn on;")
        } else {
            (String::new(), "")
        };
        let (dir, root) = (dir.display(), site.root.display());
        format!(
            r"types_hash_max_size 2048;
	include mime.types;
	default_type application/octet-stream;
	gzip on;
	{tuned}
	upstream php {{
		server unix:{dir}/{SOCKET};
		{upstream}
	}}
	server {{
		listen {addr};
		root {root};
		index index.php index.html;
		location / {{ try_files $uri $uri/ =404; }}
		location ~ \.php$ {{
			fastcgi_split_path_info ^(.+?\.php)(/.*)$;
			try_files $fastcgi_script_name =404;
			set $path_info $fastcgi_path_info;
			fastcgi_param PATH_INFO $path_info;
			fastcgi_index index.php;
			include fastcgi.conf;
			fastcgi_pass php;
			{keep_conn}
		}}
	}}"
        )
    }
}

/// Makes the files of Debian's configuration available in `dir`.
pub(super) fn link_includes(dir: &Path) -> Result<()> {
    for name in INCLUDED {
        symlink(Path::new(ETC_NGINX).join(name), dir.join(name))?;
    }
    Ok(())
}

/// nginx in Debian's configuration, with a process per core, with room for more connections and
/// larger request bodies, and with all its files in `dir`.
/// `http`: additional text for the block of that name.
pub(super) fn start_nginx(site: &Site, dir: &Path, addr: SocketAddr, http: &str) -> Result<Daemon> {
    let user = site.account.as_ref().map_or_else(String::new, |a| format!("user {};", a.name));
    let shown = dir.display();
    let config = dir.join("nginx.conf");
    let text = format!(
        r"{user}
daemon off;
worker_processes auto;
pid {shown}/nginx.pid;
error_log stderr;
worker_rlimit_nofile 65536;
events {{ worker_connections 16384; }}
http {{
	sendfile on;
	tcp_nopush on;
	client_max_body_size 0;
	client_body_temp_path {shown}/client_body;
	fastcgi_temp_path {shown}/fastcgi;
	proxy_temp_path {shown}/proxy;
	scgi_temp_path {shown}/scgi;
	uwsgi_temp_path {shown}/uwsgi;
	{http}
}}
"
    );
    fs::write(&config, text)?;
    let args = ["-p", path_str(dir)?, "-e", "stderr", "-c", path_str(&config)?];
    let mut nginx = Daemon::spawn(&find_program(&["nginx"])?, &args, dir, Stdio::null())?;
    nginx.wait_until(|| TcpStream::connect(addr).ok())?;
    Ok(nginx)
}

/// Number of idle upstream connections that each nginx worker may keep.
///
/// A php-fpm worker serves one connection until it is closed. If nginx's workers together kept as
/// many idle connections as php-fpm has workers, no request on another connection would be answered
/// before nginx's keepalive_timeout of a minute. 0 if there are more nginx workers than idle
/// connections to keep.
fn connections_to_keep(php_workers: usize) -> usize {
    let nginx_workers = available_parallelism().map_or(1, usize::from);
    (php_workers - 1) / nginx_workers
}
