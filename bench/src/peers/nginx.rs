//! Debian's nginx in front of Debian's php-fpm, in an administrator's usual configuration.

use super::{Daemon, OUTPUT_BUFFERING, PHP_WORKERS, Peer, Running};
use super::{find_program, free_port, path_str, version_line};
use crate::site::Site;
use anyhow::{Result, bail};
use sendoff_config::PHP_VERSION;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::available_parallelism;

/// Where Debian keeps the files nginx.conf includes.
const ETC_NGINX: &str = "/etc/nginx";
const INCLUDED: &[&str] = &["fastcgi.conf", "mime.types"];

/// php-fpm of the version that the build is for.
fn fpm() -> Result<PathBuf> {
    find_program(&[&format!("php-fpm{PHP_VERSION}"), "php-fpm"])
}

/// nginx + php-fpm, with a new upstream connection for each request (the default) or with kept ones.
#[derive(Debug)]
pub(crate) struct Nginx {
    pub(crate) keep_upstream: bool,
}

impl Peer for Nginx {
    fn name(&self) -> &'static str {
        if self.keep_upstream { "nginx+fpm-keepalive" } else { "nginx+fpm" }
    }

    fn version(&self) -> Result<String> {
        if self.keep_upstream && connections_to_keep() == 0 {
            bail!(
                "nginx has a worker per core; keeping a connection each would lock out php-fpm's"
            );
        }
        let nginx = version_line(&find_program(&["nginx"])?, "-v")?;
        let fpm = version_line(&fpm()?, "-v")?;
        let nginx = nginx.trim_start_matches("nginx version: ");
        Ok(format!("{nginx}, {fpm}"))
    }

    fn start(&self, site: &Site, dir: &Path) -> Result<Running> {
        let fpm = fpm()?;
        let fpm_conf = dir.join("php-fpm.conf");
        fs::write(&fpm_conf, fpm_config(site, dir))?;
        let args = ["--nodaemonize", "--fpm-config", path_str(&fpm_conf)?];
        let mut fpm = Daemon::spawn(&fpm, &args, dir, Stdio::null())?;
        fpm.wait_until(|| UnixStream::connect(dir.join("fpm.sock")).ok())?;

        for name in INCLUDED {
            symlink(Path::new(ETC_NGINX).join(name), dir.join(name))?;
        }
        let addr = free_port()?;
        let nginx = start_nginx(site, dir, addr, &self.http_block(site, dir, addr))?;
        Ok(Running { addr, daemons: vec![nginx, fpm] })
    }
}

impl Nginx {
    /// The `http` block of Debian's nginx.conf and default site, with PHP switched on.
    fn http_block(&self, site: &Site, dir: &Path, addr: SocketAddr) -> String {
        let (upstream, keep_conn) = if self.keep_upstream {
            let kept = connections_to_keep();
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
	upstream php {{
		server unix:{dir}/fpm.sock;
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

/// nginx as Debian configures it, with a process per core, everything that it writes in `dir`, and no access log. `http` is what the block
/// of that name has besides.
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
events {{ worker_connections 768; }}
http {{
	sendfile on;
	tcp_nopush on;
	access_log off;
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

/// How many idle upstream connections each nginx worker may keep.
///
/// A php-fpm worker serves one connection until it is closed. If nginx's workers together kept as many idle connections as php-fpm has
/// workers, no request on another connection would be answered before nginx's keepalive_timeout of a minute. 0 if there
/// are more nginx workers than idle connections to keep.
fn connections_to_keep() -> usize {
    let nginx_workers = available_parallelism().map_or(1, usize::from);
    (PHP_WORKERS - 1) / nginx_workers
}

fn fpm_config(site: &Site, dir: &Path) -> String {
    let account = site.account.as_ref().map_or_else(String::new, |a| {
        let name = &a.name;
        format!("user = {name}\ngroup = {name}\nlisten.owner = {name}\nlisten.group = {name}\n")
    });
    let dir = dir.display();
    format!(
        "[global]\npid = {dir}/fpm.pid\nerror_log = /proc/self/fd/2\n\
         [www]\n{account}listen = {dir}/fpm.sock\n\
         pm = static\npm.max_children = {PHP_WORKERS}\n\
         php_admin_value[output_buffering] = {OUTPUT_BUFFERING}\n\
         php_admin_value[opcache.enable] = 1\n"
    )
}
