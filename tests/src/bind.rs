//! Debian's BIND: a name server whose records a program changes by RFC 2136.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::{LIMIT, Site, dies_with_us, wait};

const NAMED: &str = "/usr/sbin/named";

/// A name server for the zone `test`.
pub struct Bind {
    child: Child,
    folder: PathBuf,
    /// Its address, over UDP and TCP.
    pub addr: SocketAddr,
}

impl Bind {
    /// Starts it. It keeps its files beside the site.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(site: &Site) -> Self {
        assert!(Path::new(NAMED).exists(), "no {NAMED}; run: tools/install heavy");
        let folder = site.outside("bind");
        fs::create_dir_all(&folder).unwrap();
        let key = Command::new("tsig-keygen").arg("sendoff").output().unwrap().stdout;
        fs::write(folder.join("key"), key).unwrap();
        let zone = "$TTL 1\n@ SOA ns hostmaster 1 60 60 60 1\n@ NS ns\nns A 127.0.0.1\n";
        fs::write(folder.join("zone"), zone).unwrap();
        (0..5).find_map(|_| Self::try_start(&folder)).expect("BIND starts at no port")
    }

    /// Starts it at a free port; `None` if another process was faster.
    fn try_start(folder: &Path) -> Option<Self> {
        // It listens at addresses of interfaces only.
        let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let text = format!(
            "options {{ directory \"{0}\"; listen-on port {1} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }};\n\
             pid-file none; session-keyfile none; recursion no; dnssec-validation no; }};\ncontrols {{ }};\ninclude \"{0}/key\";\n\
             zone \"test\" {{ type primary; file \"zone\"; allow-update {{ key sendoff; }}; }};\n",
            folder.display(),
            addr.port(),
        );
        fs::write(folder.join("named.conf"), text).unwrap();
        let mut command = dies_with_us(Path::new(NAMED), "KILL");
        let child = command.args(["-g", "-c"]).arg(folder.join("named.conf"));
        let log = fs::File::create(folder.join("log")).unwrap();
        let child = child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let bind = Self { child, folder: folder.to_owned(), addr };
        let up = || bind.log().contains(" running\n");
        assert!(wait::until(LIMIT, up), "BIND does not start:\n{}", bind.log());
        let listens = format!("listening on IPv4 interface lo, 127.0.0.1#{}\n", addr.port());
        bind.log().contains(&listens).then_some(bind)
    }

    /// The file with the key that allows changes.
    pub fn key(&self) -> PathBuf {
        self.folder.join("key")
    }

    /// Its log up to now.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Bind {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- BIND's log ---\n{}", self.log());
        }
    }
}
