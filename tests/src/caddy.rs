//! Debian's Caddy: the reference for Caddyfiles.

use crate::child::{collect_into, dies_with_us};
use crate::{Client, Request, Response, listener, processes};
use rustix::process::Signal;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

const CADDY: &str = "/usr/bin/caddy";

/// A Caddy with one site for tests.
pub struct Caddy {
    folder: PathBuf,
    addr: SocketAddr,
    child: Option<Child>,
    log: Arc<Mutex<String>>,
}

impl Caddy {
    /// Starts Caddy with these lines for the host `example.test`. `around` stands in front of the
    /// sites: global options and snippets.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(around: &str, lines: &str) -> Self {
        assert!(Path::new(CADDY).exists(), "no {CADDY}; run: apt-get install caddy");
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sendoff-caddy-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let addr = ([127, 0, 0, 1], 0).into();
        let mut caddy = Self { folder, addr, child: None, log: Arc::default() };
        let started = (0..5).any(|_| caddy.try_start(around, lines));
        assert!(started, "Caddy does not start:\n{}\n{lines}", caddy.log());
        caddy
    }

    fn try_start(&mut self, around: &str, lines: &str) -> bool {
        let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (folder, port) = (self.folder.display(), addr.port());
        let ours = format!("{addr} {folder}");
        let options = "\tadmin off\n\tauto_https off\n";
        let around = match around.strip_prefix("{\n") {
            Some(rest) => format!("{{\n{options}{rest}"),
            None => format!("{{\n{options}}}\n{around}"),
        };
        let text = format!(
            "{around}\nhttp://whose.test:{port} {{\n\tbind 127.0.0.1\n\trespond \"{ours}\"\n}}\n\
             http://example.test:{port} {{\n\tbind 127.0.0.1\n{lines}\n}}\n"
        );
        fs::write(self.config(), text).unwrap();
        let mut child = dies_with_us(Path::new(CADDY), "TERM")
            .args(["run", "--adapter", "caddyfile", "--config"])
            .arg(self.config())
            .env("HOME", &self.folder)
            .env("XDG_DATA_HOME", &self.folder)
            .env("XDG_CONFIG_HOME", &self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("caddy");
        collect_into(&self.log, child.stderr.take().unwrap());
        let request = Request::get("/").header("Host", "whose.test");
        let Some(child) = listener::up(child, addr, &request, &ours) else { return false };
        (self.addr, self.child) = (addr, Some(child));
        true
    }

    /// The address on which Caddy listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its Caddyfile.
    pub fn config(&self) -> PathBuf {
        self.folder.join("Caddyfile")
    }

    /// One request on a connection of its own.
    ///
    /// # Panics
    /// If no whole response comes.
    #[track_caller]
    pub fn ask(&self, request: &Request) -> Response {
        Client::connect(self.addr).ask(request)
    }

    /// Caddy's log up to now.
    ///
    /// # Panics
    /// Never.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }
}

impl Drop for Caddy {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            processes::signal(child.id(), Signal::TERM);
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
