//! An authority (RFC 8555) that accepts everything and checks no signature, so that a test can have
//! it lie.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use sendoff_tests::Site;
use serde_json::{Value, json};

/// The authority's answer to an order for a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    /// It signs.
    None,
    /// It redirects to itself, for ever.
    Redirect,
    /// It sends a page for browsers.
    Page,
    /// It sends JSON under a wrong type, and cut in the middle.
    Broken,
    /// It sends a body that does not end.
    Endless,
    /// It begins a response and stops in the middle.
    Stall,
    /// It refuses every nonce.
    Nonces,
    /// It signs a certificate for another name.
    OtherName,
    /// It signs a certificate for another key.
    OtherKey,
}

/// The authority. It serves until the process ends.
pub(crate) struct Liar {
    inner: Arc<Inner>,
}

struct Inner {
    addr: SocketAddr,
    folder: PathBuf,
    lie: Mutex<Lie>,
    numbers: AtomicU64,
    /// Bytes of bodies that do not end.
    sent: AtomicU64,
    orders: Mutex<Vec<Order>>,
}

struct Order {
    identifiers: Value,
    /// The certificate in PEM, once it is signed.
    signed: Option<String>,
}

type Wire = BufReader<StreamOwned<ServerConnection, TcpStream>>;

impl Liar {
    /// An authority that tells no lie yet, with its files beside the site.
    pub(crate) fn start(site: &Site) -> Self {
        let folder = site.outside("authority");
        let own = sendoff_tests::Authority::new();
        let files = own.issue(&["127.0.0.1"], &folder, "own");
        std::fs::write(folder.join("roots.pem"), own.pem()).unwrap();
        openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=signer -keyout signer.key -out signer.pem",
            &folder,
        );
        let chain = CertificateDer::pem_file_iter(files.chain).unwrap().map(Result::unwrap);
        let key = PrivateKeyDer::from_pem_file(files.key).unwrap();
        let config = ServerConfig::builder().with_no_client_auth();
        let config = Arc::new(config.with_single_cert(chain.collect(), key).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let inner = Arc::new(Inner {
            addr: listener.local_addr().unwrap(),
            folder,
            lie: Mutex::new(Lie::None),
            numbers: AtomicU64::new(1),
            sent: AtomicU64::new(0),
            orders: Mutex::default(),
        });
        let served = Arc::clone(&inner);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (inner, config) = (Arc::clone(&served), Arc::clone(&config));
                std::thread::spawn(move || {
                    let tls = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
                    // The client may go at any time.
                    let _gone = inner.serve(BufReader::new(tls));
                });
            }
        });
        Self { inner }
    }

    /// Sets the answer from now on.
    pub(crate) fn tell(&self, lie: Lie) {
        *self.inner.lie.lock().unwrap() = lie;
    }

    /// Bytes that it could send of bodies that do not end.
    pub(crate) fn sent(&self) -> u64 {
        self.inner.sent.load(Ordering::Relaxed)
    }

    /// The keys of the configuration that lead to it.
    pub(crate) fn keys(&self) -> String {
        let roots = self.inner.folder.join("roots.pem");
        format!(
            "acme_directory = '{}'\nacme_roots = '{}'\n",
            self.inner.url("dir"),
            roots.display()
        )
    }

    /// The root that its certificates lead to.
    pub(crate) fn signer(&self) -> PathBuf {
        self.inner.folder.join("signer.pem")
    }
}

impl Inner {
    fn url(&self, path: &str) -> String {
        format!("https://{}/{path}", self.addr)
    }

    fn serve(&self, mut wire: Wire) -> io::Result<()> {
        loop {
            let (mut path, mut length, mut line) = (String::new(), 0, String::new());
            while wire.read_line(&mut line)? > 2 {
                let mut words = line.split(' ');
                if path.is_empty() {
                    path = words.nth(1).unwrap_or_default().trim_start_matches('/').to_owned();
                } else if words.next().unwrap().eq_ignore_ascii_case("content-length:") {
                    length = words.next().unwrap().trim().parse().unwrap();
                }
                line.clear();
            }
            if path.is_empty() {
                return Ok(());
            }
            let mut body = vec![0; length];
            wire.read_exact(&mut body)?;
            let payload = serde_json::from_slice::<Value>(&body)
                .ok()
                .and_then(|signed| BASE64_URL_SAFE_NO_PAD.decode(signed["payload"].as_str()?).ok());
            let payload = payload.and_then(|json| serde_json::from_slice(&json).ok());
            self.answer(&path, &payload.unwrap_or(Value::Null), &mut wire)?;
        }
    }

    fn answer(&self, path: &str, payload: &Value, wire: &mut Wire) -> io::Result<()> {
        let (room, number) = path.split_once('/').unwrap_or((path, ""));
        let order = number.parse::<usize>().unwrap_or(0);
        let lie = *self.lie.lock().unwrap();
        match (room, lie) {
            ("order", Lie::Redirect) => {
                let to = format!("Location: {}\r\n", self.url("order"));
                return self.send(wire, "302 Found", &to, "");
            }
            ("order", Lie::Page) => {
                return self.send(wire, "200 OK", "Content-Type: text/html\r\n", "<html>");
            }
            ("order", Lie::Broken) => {
                return self.send(
                    wire,
                    "201 Created",
                    "Content-Type: image/png\r\n",
                    "{\"status\": \"rea",
                );
            }
            ("order", Lie::Nonces) => {
                let text =
                    json!({"type": "urn:ietf:params:acme:error:badNonce", "detail": "no good"});
                return self.send(wire, "400 Bad Request", "", &text.to_string());
            }
            ("order", Lie::Endless | Lie::Stall) => return self.send_without_end(wire, lie),
            _ => {}
        }
        let (status, fields, text) = match room {
            "dir" => {
                let places = ["newNonce", "newAccount", "newOrder", "revokeCert", "keyChange"];
                let paths = ["nonce", "account", "order", "revoke", "change"];
                let urls = places.into_iter().zip(paths.map(|path| Value::from(self.url(path))));
                let urls: serde_json::Map<_, _> =
                    urls.map(|(key, url)| (key.to_owned(), url)).collect();
                ("200 OK", String::new(), Value::from(urls).to_string())
            }
            "account" => {
                let place = format!("Location: {}\r\n", self.url("account/1"));
                ("201 Created", place, json!({"status": "valid"}).to_string())
            }
            "order" => {
                let mut orders = self.orders.lock().unwrap();
                let identifiers = payload["identifiers"].clone();
                orders.push(Order { identifiers, signed: None });
                let number = orders.len() - 1;
                let place = format!("Location: {}\r\n", self.url(&format!("orders/{number}")));
                ("201 Created", place, self.state(number, &orders[number]))
            }
            "orders" | "finalize" => {
                let mut orders = self.orders.lock().unwrap();
                if let Some(request) = payload["csr"].as_str() {
                    orders[order].signed = Some(self.sign(request, lie));
                }
                ("200 OK", String::new(), self.state(order, &orders[order]))
            }
            "authorization" => {
                let identifier = self.orders.lock().unwrap()[order].identifiers[0].clone();
                let proven = json!({"status": "valid", "identifier": identifier, "challenges": []});
                ("200 OK", String::new(), proven.to_string())
            }
            "certificate" => {
                let signed = self.orders.lock().unwrap()[order].signed.clone();
                ("200 OK", String::new(), signed.unwrap())
            }
            _ => ("200 OK", String::new(), String::new()),
        };
        self.send(wire, status, &fields, &text)
    }

    /// An order whose names are proven.
    fn state(&self, number: usize, order: &Order) -> String {
        let url = |room: &str| self.url(&format!("{room}/{number}"));
        let mut state = json!({
            "status": if order.signed.is_some() { "valid" } else { "ready" },
            "identifiers": order.identifiers,
            "authorizations": [url("authorization")],
            "finalize": url("finalize"),
        });
        if order.signed.is_some() {
            state["certificate"] = url("certificate").into();
        }
        state.to_string()
    }

    fn send(&self, wire: &mut Wire, status: &str, fields: &str, text: &str) -> io::Result<()> {
        let (nonce, length) = (self.numbers.fetch_add(1, Ordering::Relaxed), text.len());
        let wire = wire.get_mut();
        write!(
            wire,
            "HTTP/1.1 {status}\r\nReplay-Nonce: nonce{nonce}\r\nContent-Length: {length}\r\n{fields}\r\n{text}"
        )?;
        wire.flush()
    }

    /// Sends a body that does not end, until the client has had enough.
    fn send_without_end(&self, wire: &mut Wire, lie: Lie) -> io::Result<()> {
        let head =
            "HTTP/1.1 201 Created\r\nReplay-Nonce: n\r\nContent-Length: 1000000000000\r\n\r\n{";
        wire.get_mut().write_all(head.as_bytes())?;
        wire.get_mut().flush()?;
        if lie == Lie::Endless {
            loop {
                wire.get_mut().write_all(&[b' '; 16 * 1024])?;
                self.sent.fetch_add(16 * 1024, Ordering::Relaxed);
            }
        }
        wire.read_until(0, &mut Vec::new()).map(drop)
    }

    /// Signs a certificate request in base64url.
    fn sign(&self, request: &str, lie: Lie) -> String {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (der, pem) = (format!("{number}.csr"), format!("{number}.pem"));
        let request = BASE64_URL_SAFE_NO_PAD.decode(request).unwrap();
        std::fs::write(self.folder.join(&der), request).unwrap();
        std::fs::write(self.folder.join("other"), "subjectAltName = DNS:other.test\n").unwrap();
        let mut names = "-copy_extensions copy";
        let mut form = "DER";
        match lie {
            Lie::OtherName => names = "-extfile other",
            Lie::OtherKey => {
                let subject = "-subj / -addext subjectAltName=DNS:a.test,DNS:key.test";
                let new = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout other.key";
                openssl(&format!("req -new {new} {subject} -out {der}"), &self.folder);
                form = "PEM";
            }
            _ => {}
        }
        openssl(
            &format!(
                "x509 -req -inform {form} -in {der} -CA signer.pem -CAkey signer.key -set_serial {number} -days 30 {names} -out {pem}"
            ),
            &self.folder,
        );
        let read = |name: &str| std::fs::read_to_string(self.folder.join(name)).unwrap();
        read(&pem) + &read("signer.pem")
    }
}

fn openssl(arguments: &str, folder: &Path) {
    let done =
        Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output().unwrap();
    assert!(
        done.status.success(),
        "openssl {arguments}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}
