//! The checks of a TLS scanner: versions, cipher suites, renegotiation, compression, early data,
//! protocols, and clients that break off anywhere.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};
use sendoff_tests::{
    Authority, Certificate, Client, LIMIT, Request, Server, Site, processes, wait,
};

const SSL_3: u16 = 0x0300;
const TLS_1_0: u16 = 0x0301;
const TLS_1_1: u16 = 0x0302;
const TLS_1_2: u16 = 0x0303;

/// ECDHE with AES in GCM or ChaCha20-Poly1305, for a certificate of each kind (RFC 5289, RFC 7905).
const OF_ECDSA: [u16; 3] = [0xc02b, 0xc02c, 0xcca9];
const OF_RSA: [u16; 3] = [0xc02f, 0xc030, 0xcca8];

/// Types of records.
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;

struct Secured {
    site: Site,
    authority: Authority,
    server: Server,
}

impl Secured {
    fn start() -> Self {
        let site = Site::with("quick.php", "<?php echo 'quick';");
        let authority = Authority::new();
        let Certificate { chain, key } =
            authority.issue(&["localhost"], &site.outside("keys"), "own");
        let server = Self::serve(&site, chain.to_str().unwrap(), key.to_str().unwrap());
        Self { site, authority, server }
    }

    fn serve(site: &Site, chain: &str, key: &str) -> Server {
        let options = ["--tls-listen", "127.0.0.1:0", "--tls-cert", chain, "--tls-key", key];
        Server::start(site.root(), &[&options[..], &["--workers", "1"]].concat())
    }

    fn addr(&self) -> SocketAddr {
        self.server.tls_addr().unwrap()
    }

    /// A client that knows the authority.
    fn client(&self, version: &'static SupportedProtocolVersion) -> ClientConnection {
        let mut roots = RootCertStore::empty();
        let pem = self.authority.pem();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_protocol_versions(&[version]).unwrap();
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap()
    }

    #[track_caller]
    fn still_serves(&self) {
        let mut client = Client::connect(self.addr());
        assert_eq!(client.ask(&Request::get("/quick.php")).text(), "quick");
    }
}

/// A ClientHello for these suites, in one record. `padding`: bytes of an extension that fills it.
fn hello(version: u16, suites: &[u16], padding: usize) -> Vec<u8> {
    let two = |value: usize| u16::try_from(value).unwrap().to_be_bytes();
    let mut extensions = Vec::new();
    let mut extension = |kind: u16, data: &[u8]| {
        extensions.extend(kind.to_be_bytes());
        extensions.extend(two(data.len()));
        extensions.extend_from_slice(data);
    };
    extension(0, b"\0\x0c\0\0\x09localhost");
    extension(10, &[0, 4, 0, 29, 0, 23]);
    extension(11, &[1, 0]);
    // ECDSA and RSA, with PSS and without.
    extension(13, &[0, 8, 4, 3, 8, 4, 4, 1, 6, 1]);
    // Extended master secret.
    extension(23, &[]);
    if padding > 0 {
        extension(21, &vec![0; padding]);
    }
    let mut body = version.to_be_bytes().to_vec();
    body.extend([7; 32]);
    body.push(0);
    body.extend(two(2 * suites.len()));
    body.extend(suites.iter().flat_map(|suite| suite.to_be_bytes()));
    body.extend([1, 0]);
    body.extend(two(extensions.len()));
    body.extend(extensions);
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[1], &length[1..], &body[..]].concat()
}

/// The message in records of at most `most` bytes.
fn records(version: u16, message: &[u8], most: usize) -> Vec<u8> {
    let record = |part: &[u8]| {
        let length = u16::try_from(part.len()).unwrap().to_be_bytes();
        [&[HANDSHAKE][..], &version.to_be_bytes(), &length, part].concat()
    };
    message.chunks(most).flat_map(record).collect()
}

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// The first record of the answer, its type first; nothing if the server closes the connection.
fn answer(addr: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(addr);
    // The server may have refused the beginning.
    let _refused = stream.write_all(bytes);
    let mut head = [0; 5];
    if stream.read_exact(&mut head).is_err() {
        return Vec::new();
    }
    let mut record = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
    stream.read_exact(&mut record).unwrap();
    [&head[..1], &record].concat()
}

/// The suite that the server chooses, or `None` if it refuses.
#[track_caller]
fn chosen(addr: SocketAddr, version: u16, suites: &[u16]) -> Option<u16> {
    let record = answer(addr, &records(version, &hello(version, suites, 0), 16_384));
    match record.first() {
        None | Some(&ALERT) => None,
        // Behind the type and the message's head: the version, 32 random bytes, the session.
        Some(&HANDSHAKE) => {
            assert_eq!(record[1], 2, "a ServerHello");
            let session = usize::from(record[5 + 2 + 32]);
            let at = 5 + 2 + 32 + 1 + session;
            assert_eq!(record[at + 2], 0, "no compression");
            Some(u16::from_be_bytes([record[at], record[at + 1]]))
        }
        other => panic!("a record of type {other:?}"),
    }
}

#[test]
fn only_good_suites_of_tls_1_2_are_chosen() {
    let secured = Secured::start();
    for version in [SSL_3, TLS_1_0, TLS_1_1] {
        let all: Vec<u16> = (1..0xff).chain(0xc001..0xc0ff).chain(0xcca8..0xccaf).collect();
        assert_eq!(chosen(secured.addr(), version, &all), None, "version {version:#x}");
    }
    // An RSA key comes from openssl.
    let [chain, key] = ["rsa.pem", "rsa.key"].map(|name| secured.site.outside(name));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost", "-out"])
        .arg(&chain)
        .arg("-keyout")
        .arg(&key)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let rsa = Secured::serve(&secured.site, chain.to_str().unwrap(), key.to_str().unwrap());
    for (addr, good) in [(secured.addr(), OF_ECDSA), (rsa.tls_addr().unwrap(), OF_RSA)] {
        let offered = (0..0x100).chain(0xc000..0xc100).chain(0xcca0..0xccb0).chain(0x1300..0x1310);
        let taken: Vec<u16> =
            offered.filter(|suite| chosen(addr, TLS_1_2, &[*suite]).is_some()).collect();
        assert_eq!(taken, good);
    }
    secured.still_serves();
}

/// The output of `openssl s_client`. It gets `input`, and the end of its input when its output
/// contains `until`.
fn s_client(addr: SocketAddr, options: &[&str], input: &str, until: &str) -> String {
    let mut child = Command::new("sh")
        .args(["-c", "exec openssl s_client -connect \"$0\" \"$@\" 2>&1", &addr.to_string()])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // It may have ended already.
    let _ended = stdin.write_all(input.as_bytes());
    let mut open = Some(stdin);
    let (mut said, mut buffer) = (String::new(), [0; 4096]);
    let mut stdout = child.stdout.take().unwrap();
    loop {
        match stdout.read(&mut buffer).unwrap() {
            0 => break,
            count => said += &String::from_utf8_lossy(&buffer[..count]),
        }
        if said.contains(until) {
            open = None;
        }
    }
    drop(open);
    child.wait().unwrap();
    said
}

const GET: &str = "GET /quick.php HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

#[test]
fn nothing_is_renegotiated_or_compressed() {
    let secured = Secured::start();
    let said = s_client(secured.addr(), &["-tls1_2", "-comp"], GET, "\nquick");
    for fact in [
        "Secure Renegotiation IS supported",
        "Compression: NONE",
        "200 OK",
        "Extended master secret: yes",
    ] {
        assert!(said.contains(fact), "no {fact:?}: {said}");
    }
    // A line with an R makes this client ask for a new handshake.
    let said = s_client(secured.addr(), &["-tls1_2"], "R\n", "a text that does not come");
    assert!(said.contains("RENEGOTIATING") && said.contains("no renegotiation"), "{said}");
    assert_eq!(said.matches("BEGIN CERTIFICATE").count(), 1, "one handshake: {said}");
    secured.still_serves();
}

#[test]
fn early_data_is_not_taken() {
    let secured = Secured::start();
    let session = secured.site.outside("session");
    let session = session.to_str().unwrap();
    let said = s_client(secured.addr(), &["-tls1_3", "-sess_out", session], GET, "\nquick");
    assert!(said.contains("Max Early Data: 0"), "{said}");
    // A client that sends it nevertheless: openssl refuses to, by the ticket.
    let early = secured.site.write_at(secured.site.outside("early"), GET);
    let early = ["-tls1_3", "-sess_in", session, "-early_data", early.to_str().unwrap()];
    let said = s_client(secured.addr(), &early, "", "");
    assert!(said.contains("Early data was not sent"), "{said}");
    secured.still_serves();
}

#[test]
fn protocols_are_chosen_by_alpn() {
    let secured = Secured::start();
    let ask = |protocols| s_client(secured.addr(), &["-alpn", protocols], "", "");
    for (offered, chosen) in [
        ("h2", "h2"),
        ("http/1.1", "http/1.1"),
        ("http/1.1,h2", "h2"),
        ("spdy/3,http/1.1", "http/1.1"),
    ] {
        let said = ask(offered);
        assert!(said.contains(&format!("ALPN protocol: {chosen}\n")), "{offered}: {said}");
    }
    let said = s_client(secured.addr(), &[], GET, "\nquick");
    assert!(said.contains("No ALPN negotiated") && said.contains("HTTP/1.1 200"), "{said}");
    // no_application_protocol (RFC 7301 §3.2), which not every OpenSSL has a name for.
    let said = ask("unknown");
    assert!(said.contains("SSL alert number 120\n"), "{said}");
    // A name that no site has gets the first site's certificate, as with nginx.
    let said = s_client(secured.addr(), &["-servername", "other.test"], GET, "\nquick");
    // OpenSSL 3.0 writes spaces there, later versions do not.
    assert!(said.replace(" = ", "=").contains("CN=own"), "{said}");
}

#[test]
fn a_hello_may_be_large_but_not_endless() {
    let secured = Secured::start();
    let before = processes::private_memory(secured.server.front());
    // In records of a byte, in one, and over several.
    for (padding, most) in [(0, 1), (500, 1), (0, 16_384), (30_000, 16_384), (50_000, 300)] {
        let bytes = records(TLS_1_2, &hello(TLS_1_2, &OF_ECDSA, padding), most);
        let first = answer(secured.addr(), &bytes);
        assert_eq!(first.first(), Some(&HANDSHAKE), "{padding} in records of {most}");
    }
    // A handshake message that announces 16 MB, and sends them; records without contents; a record
    // that is too large.
    let endless =
        records(TLS_1_2, &[&[1, 0xff, 0xff, 0xff][..], &vec![0; 1 << 20]].concat(), 16_384);
    let empty = [HANDSHAKE, 3, 3, 0, 0].repeat(100_000);
    let large = [HANDSHAKE, 3, 3, 0xff, 0xff, 1].to_vec();
    for bytes in [endless, empty, large] {
        let first = answer(secured.addr(), &bytes);
        assert!(matches!(first.first(), None | Some(&ALERT)), "{first:?}");
    }
    let grown = processes::private_memory(secured.server.front()).saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes");
    secured.still_serves();
}

/// Sends the first `cut` bytes of a handshake with a request behind it. Returns the number of bytes
/// sent.
fn break_off(
    secured: &Secured,
    version: &'static SupportedProtocolVersion,
    cut: usize,
    is_reset: bool,
) -> usize {
    let mut client = secured.client(version);
    let mut stream = connect(secured.addr());
    client.writer().write_all(GET.as_bytes()).unwrap();
    let mut sent = 0;
    loop {
        while client.wants_write() {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            let part = bytes.len().min(cut - sent);
            sent += part;
            let written = stream.write_all(&bytes[..part]);
            if part < bytes.len() || written.is_err() {
                if is_reset {
                    let linger = Some(std::time::Duration::ZERO);
                    rustix::net::sockopt::set_socket_linger(&stream, linger).unwrap();
                } else {
                    // The server may have closed it.
                    let _closed = stream.shutdown(Shutdown::Write);
                }
                return sent;
            }
        }
        match client.read_tls(&mut stream) {
            Ok(0) => return sent,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return sent,
            Err(error) => panic!("after {sent} bytes: {error}"),
        }
        client.process_new_packets().unwrap();
        let mut page = Vec::new();
        // It is not complete before the end.
        let _incomplete = client.reader().read_to_end(&mut page);
        if page.ends_with(b"quick") {
            return sent;
        }
    }
}

/// Clients break off in the middle of each flight, by a FIN or a reset; no connection is left.
#[test]
fn clients_that_break_off_anywhere_leave_nothing() {
    let secured = Secured::start();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let whole = break_off(&secured, version, usize::MAX, false);
        assert!(whole > 300, "{whole} bytes");
        for cut in (0..whole).step_by(7).chain([whole - 1]) {
            for is_reset in [false, true] {
                assert!(break_off(&secured, version, cut, is_reset) <= cut);
            }
        }
        secured.still_serves();
    }
    let front = secured.server.front();
    assert!(wait::until(LIMIT, || processes::connections(front) == 0));
}
