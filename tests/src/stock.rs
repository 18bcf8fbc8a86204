//! Debian's nginx and php-fpm on a site: the reference.

use crate::child::{collect_into, dies_with_us, exit_status};
use crate::fpm::php_fpm;
use crate::{Client, Request, Response, listener, processes, site, wait};
use rustix::process::Signal;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

const NGINX: &str = "/usr/sbin/nginx";

/// nginx and php-fpm in the usual configuration of a Debian system.
pub struct Stock {
    folder: PathBuf,
    addr: SocketAddr,
    children: Vec<Child>,
    log: Arc<Mutex<String>>,
}

impl Stock {
    /// Starts both on `root`, with four workers and php.ini settings (`KEY=VALUE`) on top of
    /// Debian's.
    ///
    /// # Panics
    /// If one of them does not start.
    pub fn start(root: &Path, ini: &[&str]) -> Self {
        let mut stock = Self::new(&[&php_fpm(), NGINX]);
        stock.start_php(root, ini);
        let php = format!(
            "index index.php index.html;
		location / {{ try_files $uri $uri/ /index.php?$query_string; }}
		location ~ \\.php(/|$) {{
			include /etc/nginx/snippets/fastcgi-php.conf;
			fastcgi_pass unix:{}/php.sock;
		}}",
            stock.folder.display()
        );
        stock.await_nginx(root, "", &php);
        stock
    }

    /// nginx alone, with lines of configuration for its `http` and its `server`.
    ///
    /// # Panics
    /// If it does not start.
    pub fn nginx(root: &Path, http: &str, server: &str) -> Self {
        let mut stock = Self::new(&[NGINX]);
        stock.await_nginx(root, http, server);
        stock
    }

    /// True for nginx before 1.23. Later versions refuse a response with a second `Content-Length`
    /// or a malformed one, and take the first of several `Content-Type` or `Location`.
    ///
    /// # Panics
    /// If nginx does not tell its version.
    pub fn is_lenient() -> bool {
        let said = Command::new(NGINX).arg("-v").output().expect("nginx").stderr;
        let said = String::from_utf8_lossy(&said);
        let (_, version) = said.split_once("nginx/").expect("its version");
        let mut parts = version.split('.').map_while(|part| part.parse().ok());
        (parts.next(), parts.next()) < (Some(1), Some(23))
    }

    fn new(programs: &[&str]) -> Self {
        for program in programs {
            assert!(
                Path::new(program).exists(),
                "no {program}; run: apt-get install nginx-light php-fpm"
            );
        }
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("sendoff-stock-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        // Debian's snippet includes it by a name relative to the configuration's folder.
        symlink("/etc/nginx/fastcgi.conf", folder.join("fastcgi.conf")).unwrap();
        Self { folder, addr: ([127, 0, 0, 1], 0).into(), children: Vec::new(), log: Arc::default() }
    }

    fn await_nginx(&mut self, root: &Path, http: &str, server: &str) {
        let started = (0..5).any(|_| self.start_nginx(root, http, server));
        assert!(started, "nginx does not start:\n{}", self.log());
    }

    fn start_php(&mut self, root: &Path, ini: &[&str]) {
        let folder = self.folder.display();
        let user = site::owner_name(root)
            .map(|name| format!("user = {name}\ngroup = {name}\nlisten.owner = {name}\n"));
        let user = user.unwrap_or_default();
        let config = format!(
            "[global]\nerror_log = /dev/stderr\ndaemonize = no\n\
             [www]\n{user}listen = {folder}/php.sock\nlisten.mode = 0666\npm = static\npm.max_children = 4\n"
        );
        fs::write(self.folder.join("php-fpm.conf"), config).unwrap();
        let mut command = dies_with_us(Path::new(&php_fpm()), "TERM");
        command.arg("-F").arg("-y").arg(self.folder.join("php-fpm.conf"));
        for setting in ini {
            command.arg("-d").arg(setting);
        }
        let mut child =
            command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("php-fpm");
        collect_into(&self.log, child.stderr.take().unwrap());
        self.children.push(child);
        let socket = self.folder.join("php.sock");
        wait::for_some("php-fpm", || std::os::unix::net::UnixStream::connect(&socket).ok());
    }

    fn start_nginx(&mut self, root: &Path, http: &str, server: &str) -> bool {
        let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let user = site::owner_name(root).map(|name| format!("user {name};")).unwrap_or_default();
        let folder = self.folder.display();
        let config = format!(
            "{user}
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr;
daemon off;
events {{ worker_connections 1024; }}
http {{
	sendfile on;
	tcp_nopush on;
	include /etc/nginx/mime.types;
	default_type application/octet-stream;
	access_log off;
	client_max_body_size 100m;
	client_body_temp_path {folder}/body;
	proxy_temp_path {folder}/proxy;
	fastcgi_temp_path {folder}/fastcgi;
	uwsgi_temp_path {folder}/uwsgi;
	scgi_temp_path {folder}/scgi;
	{http}
	server {{
		listen {addr};
		server_name example.test;
		root {root};
		location = /-/whose {{ return 200 '{addr} {folder}'; }}
		{server}
	}}
}}
",
            root = root.display()
        );
        fs::write(self.folder.join("nginx.conf"), config).unwrap();
        let mut child = dies_with_us(Path::new(NGINX), "TERM")
            .arg("-p")
            .arg(&self.folder)
            .args(["-e", "stderr", "-c"])
            .arg(self.folder.join("nginx.conf"))
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nginx");
        collect_into(&self.log, child.stderr.take().unwrap());
        let (ours, request) = (format!("{addr} {folder}"), Request::get("/-/whose"));
        let Some(child) = listener::up(child, addr, &request, &ours) else { return false };
        self.addr = addr;
        self.children.push(child);
        true
    }

    /// The address on which nginx listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The configuration file of nginx.
    pub fn config(&self) -> PathBuf {
        self.folder.join("nginx.conf")
    }

    /// One request on a connection of its own.
    ///
    /// # Panics
    /// If no whole response comes.
    #[track_caller]
    pub fn ask(&self, request: &Request) -> Response {
        Client::connect(self.addr).ask(request)
    }

    /// The process ids of nginx and php-fpm, with all their children.
    pub fn processes(&self) -> Vec<u32> {
        let main = self.children.iter().map(Child::id);
        main.flat_map(|pid| [vec![pid], processes::descendants(pid)].concat()).collect()
    }

    /// The log of nginx and php-fpm up to now.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        // nginx first, so that php-fpm has no clients when it ends.
        while let Some(mut child) = self.children.pop() {
            processes::signal(child.id(), Signal::TERM);
            if std::thread::panicking() {
                let _ = child.wait();
            } else {
                exit_status(&mut child, "the stock server");
            }
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
