//! Debian's lighttpd with mod_magnet: the reference for Lua scripts in the server.

use crate::child::dies_with_us;
use crate::{Client, Request, Response, listener};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

const LIGHTTPD: &str = "/usr/sbin/lighttpd";

/// A lighttpd that serves a folder.
pub struct Lighttpd {
    folder: PathBuf,
    addr: SocketAddr,
    child: Option<Child>,
}

impl Lighttpd {
    /// Starts lighttpd on `root`, with lines of configuration.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(root: &Path, lines: &str) -> Self {
        assert!(
            Path::new("/usr/lib/lighttpd/mod_magnet.so").exists(),
            "no {LIGHTTPD} with mod_magnet; run: apt-get install lighttpd lighttpd-modules-lua"
        );
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sendoff-lighttpd-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let mut server = Self { folder, addr: ([127, 0, 0, 1], 0).into(), child: None };
        let started = (0..5).any(|_| server.try_start(root, lines));
        assert!(started, "lighttpd does not start:\n{}", server.log());
        server
    }

    fn try_start(&mut self, root: &Path, lines: &str) -> bool {
        let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (folder, ours) = (self.folder.display(), format!("{addr} {}", self.folder.display()));
        let whose = self.folder.join("whose.lua");
        fs::write(&whose, format!("lighty.content = {{ [[{ours}]] }} return 410")).unwrap();
        let config = format!(
            "server.modules = (\"mod_magnet\")\nserver.document-root = \"{}\"\n\
             server.bind = \"127.0.0.1\"\nserver.port = {}\nserver.errorlog = \"{folder}/error.log\"\n\
             mimetype.assign = (\".txt\" => \"text/plain\", \".html\" => \"text/html\")\n\
             index-file.names = (\"index.html\")\n{lines}\n\
             $HTTP[\"url\"] == \"/-/whose\" {{ magnet.attract-raw-url-to = (\"{}\") }}\n",
            root.display(),
            addr.port(),
            whose.display(),
        );
        let file = self.folder.join("lighttpd.conf");
        fs::write(&file, config).unwrap();
        let child = dies_with_us(Path::new(LIGHTTPD), "TERM")
            .args(["-D", "-f"])
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(self.folder.join("stderr.log")).unwrap())
            .spawn()
            .expect("lighttpd");
        let request = Request::get("/-/whose").header("Host", "whose.test");
        let Some(child) = listener::up(child, addr, &request, &ours) else { return false };
        (self.addr, self.child) = (addr, Some(child));
        true
    }

    /// One request on a connection of its own.
    ///
    /// # Panics
    /// If no whole response comes.
    #[track_caller]
    pub fn ask(&self, request: &Request) -> Response {
        Client::connect(self.addr).ask(request)
    }

    /// lighttpd's log up to now.
    pub fn log(&self) -> String {
        let read = |name| fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        read("stderr.log") + &read("error.log")
    }
}

impl Drop for Lighttpd {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
