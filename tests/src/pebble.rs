//! Pebble, Let's Encrypt's small authority for tests, with a name server of its own. Both are on an
//! address of 127.0.0.0/8 that no other test uses, so that their ports are free.

use crate::child::collect_into;
use crate::{Authority, LIMIT, Site, curl, dies_with_us, repository, wait};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

/// An authority that signs certificates for names under `.test`.
pub struct Pebble {
    child: Option<Child>,
    log: Arc<Mutex<String>>,
    folder: PathBuf,
    environment: Vec<(String, String)>,
    /// The addresses of the servers that ask for certificates. Names that begin with `b.` resolve
    /// to the second address, all others to the first.
    pub servers: [Ipv4Addr; 2],
    /// The port where the authority makes requests in the clear.
    pub http: u16,
    /// The port where it makes TLS connections.
    pub tls: u16,
    directory: SocketAddr,
    management: SocketAddr,
    resolver: SocketAddr,
}

/// Options of an authority.
pub struct Authorities<'o> {
    /// Environment variables of Pebble.
    pub environment: &'o [(&'o str, &'o str)],
    /// The lifetime of certificates, in seconds.
    pub validity: u64,
    /// It signs only for its customers (external account binding): for the account `kid-1` with
    /// the key [`CUSTOMER_KEY`].
    pub wants_customers: bool,
}

/// The key of a customer, in base64.
pub const CUSTOMER_KEY: &str = "c2VuZG9mZi1zZW5kb2ZmLXNlbmRvZmYtc2VuZG9mZi0_";

impl Default for Authorities<'_> {
    fn default() -> Self {
        Self { environment: &[], validity: 90 * 24 * 60 * 60, wants_customers: false }
    }
}

impl Pebble {
    /// An authority that does not run yet. It keeps its files beside the site.
    ///
    /// # Panics
    /// If there is no address for it.
    pub fn new(site: &Site, options: &Authorities<'_>) -> Self {
        static COUNTER: AtomicU8 = AtomicU8::new(1);
        let [.., high, low] = std::process::id().to_be_bytes();
        let number = COUNTER.fetch_add(2, Ordering::Relaxed);
        let servers = [number, number + 1].map(|number| Ipv4Addr::new(127, number, high, low));
        let [http, tls, directory, management] = [(); 4].map(|()| free(servers[0], servers[1]));
        let at = |port| SocketAddr::from((servers[0], port));
        let folder = site.outside("pebble");
        let own = Authority::new();
        let name = servers[0].to_string();
        let certificate = own.issue(&[&name], &folder, "pebble");
        std::fs::write(folder.join("roots.pem"), own.pem()).unwrap();
        let config = format!(
            r#"{{"pebble": {{"listenAddress": "{}", "managementListenAddress": "{}", "certificate": "{}", "privateKey": "{}",
            "httpPort": {http}, "tlsPort": {tls}, "domainBlocklist": ["blocked.test"], "keyAlgorithm": "ecdsa",
            "retryAfter": {{"authz": 1, "order": 1}}, "externalAccountBindingRequired": {},
            "externalAccountMACKeys": {{"kid-1": "{CUSTOMER_KEY}"}}, "profiles": {{"default": {{"description": "", "validityPeriod": {}}}}}}}}}"#,
            at(directory),
            at(management),
            certificate.chain.display(),
            certificate.key.display(),
            options.wants_customers,
            options.validity,
        );
        std::fs::write(folder.join("config.json"), config).unwrap();
        let environment = options.environment.iter();
        Self {
            child: None,
            log: Arc::default(),
            folder,
            environment: environment.map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            servers,
            http,
            tls,
            directory: at(directory),
            management: at(management),
            resolver: name_server(servers),
        }
    }

    /// Makes it ask another name server.
    pub fn ask_names_of(&mut self, resolver: SocketAddr) {
        self.resolver = resolver;
    }

    /// Starts it and waits until it is ready.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(&mut self) {
        let mut command = dies_with_us(&program(), "KILL");
        command.arg("-config").arg(self.folder.join("config.json"));
        command.arg("-dnsserver").arg(self.resolver.to_string());
        command.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_WFE_NONCEREJECT", "0");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        drop(collect_into(&self.log, child.stdout.take().unwrap()));
        self.child = Some(child);
        let up = || self.management("/roots/0").is_some();
        assert!(wait::until(LIMIT, up), "Pebble does not start:\n{}", self.log());
        std::fs::write(self.signer(), self.management("/roots/0").unwrap()).unwrap();
    }

    /// Ends it.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The keys of the configuration that lead to it.
    pub fn keys(&self) -> String {
        let roots = self.folder.join("roots.pem");
        format!(
            "acme_directory = 'https://{}/dir'\nacme_roots = '{}'\n",
            self.directory,
            roots.display()
        )
    }

    /// The file with the root that its certificates lead to.
    pub fn signer(&self) -> PathBuf {
        self.folder.join("signer.pem")
    }

    /// Pebble's log up to now.
    ///
    /// # Panics
    /// If another thread has panicked while it held the log.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// The number of certificates that it has signed for sites.
    pub fn signed(&self) -> usize {
        self.log().matches("Issued certificate serial").count()
    }

    fn management(&self, path: &str) -> Option<String> {
        let done = curl()
            .args(["--fail", "--cacert"])
            .arg(self.folder.join("roots.pem"))
            .arg(format!("https://{}{path}", self.management))
            .stderr(Stdio::null())
            .output()
            .unwrap();
        done.status.success().then(|| String::from_utf8(done.stdout).unwrap())
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            eprintln!("--- Pebble's log ---\n{}", self.log());
        }
    }
}

/// The path of the program, which `tools/pebble` builds at the first call.
fn program() -> PathBuf {
    let done = Command::new(repository::root().join("tools/pebble")).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "tools/pebble: {said}");
    Path::new(String::from_utf8(done.stdout).unwrap().trim()).to_owned()
}

/// A port that is free at both addresses, which no other test uses.
fn free(first: Ipv4Addr, second: Ipv4Addr) -> u16 {
    loop {
        let listener = TcpListener::bind((first, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        if TcpListener::bind((second, port)).is_ok() {
            return port;
        }
    }
}

/// Answers questions for addresses (RFC 1035 §4) until the process ends. Names that begin with `b.`
/// resolve to the second server, all others to the first.
fn name_server(servers: [Ipv4Addr; 2]) -> SocketAddr {
    // Pebble asks by TCP, where a length comes first (§4.2.2).
    let listener = TcpListener::bind((servers[0], 0)).unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer_all(stream, servers));
        }
    });
    addr
}

/// Answers until the client has no more questions.
fn answer_all(mut stream: TcpStream, servers: [Ipv4Addr; 2]) -> io::Result<()> {
    let mut len = [0; 2];
    loop {
        stream.read_exact(&mut len)?;
        let mut question = vec![0; usize::from(u16::from_be_bytes(len))];
        stream.read_exact(&mut question)?;
        let answer = answer(&question, servers);
        let len = u16::try_from(answer.len()).unwrap().to_be_bytes();
        stream.write_all(&[&len[..], &answer].concat())?;
    }
}

fn answer(question: &[u8], servers: [Ipv4Addr; 2]) -> Vec<u8> {
    const HEADER: u8 = 12;
    let name = question[usize::from(HEADER)..].iter().position(|byte| *byte == 0).unwrap();
    let end = usize::from(HEADER) + name + 5;
    let is_address = question[end - 4..end] == [0, 1, 0, 1];
    let second = question[usize::from(HEADER)..].starts_with(b"\x01b");
    let mut answer = question[..2].to_vec();
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
    answer.extend(&question[usize::from(HEADER)..end]);
    if is_address {
        answer.extend([0xc0, HEADER, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        answer.extend(servers[usize::from(second)].octets());
    }
    answer
}
