//! TLS: certificates of sites, sessions, versions, clients' certificates, and connections that end
//! early.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use rustix::process::Signal;
use rustls::AlertDescription;
use sendoff_tests::{
    Authority, Broken, Certificate, Client, Framing, LIMIT, Request, Server, Site, curl,
    dies_with_us, overwrite, pattern, processes, trusting_client, wait,
};

/// A script that shows the variables about the connection.
const SEEN: &str = "<?php foreach (['HTTPS', 'REQUEST_SCHEME', 'SERVER_PORT', 'SSL_PROTOCOL', 'SSL_TLS_SNI', 'SSL_CLIENT_VERIFY',
    'SSL_CLIENT_S_DN', 'SSL_CLIENT_I_DN'] as $name) echo $_SERVER[$name] ?? '-', '|';";

struct Secured {
    site: Site,
    authority: Authority,
}

impl Secured {
    fn new() -> Self {
        let site = Site::with("seen.php", SEEN);
        site.write("big", pattern(1, 3_000_000));
        site.write("big.php", "<?php readfile('big');");
        site.write("generated.php", "<?php echo str_repeat('0123456789', 100_000);");
        Self { site, authority: Authority::new() }
    }

    fn issue(&self, names: &[&str]) -> Certificate {
        self.authority.issue(names, &self.site.outside("keys"), names[0])
    }

    /// The path of the authority's certificate.
    fn trusted(&self) -> PathBuf {
        self.site.write_at(self.site.outside("keys/authority.pem"), self.authority.pem())
    }

    /// Starts a server with sites of one folder: the keys of each, in TOML.
    fn run(&self, sites: &[&str]) -> Server {
        Server::try_run(&self.write(sites), self.site.root(), 2).unwrap()
    }

    fn write(&self, sites: &[&str]) -> PathBuf {
        let mut text = "listen = ['127.0.0.1:0', '127.0.0.1:0 tls']\nthreads = 1\n".to_owned();
        text += "[[pool]]\nworkers = 2\n";
        for site in sites {
            text += &format!("[[site]]\nroot = 'root'\nhttps_redirect = false\n{site}\n");
        }
        self.site.write_at(self.site.outside("sendoff.toml"), text)
    }

    /// Starts a server of the whole folder, with a certificate for localhost.
    fn serve(&self) -> Server {
        let Certificate { chain, key } = self.issue(&["localhost"]);
        let (chain, key) = (chain.to_str().unwrap(), key.to_str().unwrap());
        let options = ["--tls-listen", "127.0.0.1:0", "--tls-cert", chain, "--tls-key", key];
        Server::start(self.site.root(), &options)
    }

    /// Asks by curl, which trusts the authority, for a page of a host.
    fn curl(&self, server: &Server, host: &str, page: &str, options: &[&str]) -> Output {
        let addr = server.tls_addr().unwrap();
        curl()
            .arg("--cacert")
            .arg(self.trusted())
            .args(["--resolve", &format!("{host}:{}:127.0.0.1", addr.port())])
            .args(options)
            .arg(format!("https://{host}:{}{page}", addr.port()))
            .output()
            .unwrap()
    }

    #[track_caller]
    fn page(&self, server: &Server, host: &str, options: &[&str]) -> String {
        let output = self.curl(server, host, "/seen.php", options);
        assert!(output.status.success(), "{host}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn refusal(&self, server: &Server, host: &str, options: &[&str]) -> String {
        let output = self.curl(server, host, "/seen.php", options);
        assert!(!output.status.success(), "{host}: {}", text(&output.stdout));
        text(&output.stderr)
    }
}

/// True if the kernel of this machine can encrypt.
fn kernel_has_tls() -> bool {
    Path::new("/proc/net/tls_stat").exists()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn tls(certificate: &Certificate) -> String {
    let Certificate { chain, key } = certificate;
    format!("certificate = '{}', key = '{}'", chain.display(), key.display())
}

/// The output of `openssl s_client` with this input.
fn s_client(addr: SocketAddr, options: &[&str], input: &str) -> String {
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &addr.to_string()])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // It may have ended already.
    let _ = stdin.write_all(input.as_bytes());
    let reader = thread::spawn(move || child.wait_with_output().unwrap());
    let output = if input.contains("Connection: close") {
        let output = reader.join().unwrap();
        drop(stdin);
        output
    } else {
        drop(stdin);
        reader.join().unwrap()
    };
    text(&output.stdout) + &text(&output.stderr)
}

/// The server's own certificate in what `openssl s_client` prints.
fn first_certificate(said: &str) -> String {
    let (_, rest) = said.split_once("-----BEGIN CERTIFICATE-----").unwrap();
    rest.split_once("-----END").unwrap().0.to_owned()
}

const CLOSING: &str = "GET /seen.php HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";

#[test]
fn each_site_shows_its_own_certificate() {
    let secured = Secured::new();
    let (a, b) = (secured.issue(&["a.test"]), secured.issue(&["*.b.test", "b.test"]));
    let server = secured.run(&[
        &format!(
            "hosts = 'a.test'\ntls = {{ {} }}\nhsts = '365d, includeSubDomains'\n\
             delivery = 'direct'",
            tls(&a)
        ),
        &format!("hosts = ['b.test', '*.b.test']\ntls = {{ {} }}", tls(&b)),
    ]);
    let port = server.tls_addr().unwrap().port();
    for host in ["a.test", "b.test", "x.b.test"] {
        let seen = secured.page(&server, host, &[]);
        assert_eq!(seen, format!("on|https|{port}|TLSv1.3|{host}|NONE|-|-|"));
    }
    let refused = secured.refusal(&server, "c.test", &[]);
    assert!(refused.contains("a.test") || refused.contains("SSL"), "the first site's: {refused}");
    // A worker that writes a response itself does not know of the field.
    for (page, options) in [("/big", ["-I", "--http1.1"]), ("/generated.php", ["-i", "--http1.1"])]
    {
        let head = text(&secured.curl(&server, "a.test", page, &options).stdout);
        assert!(
            head.contains("Strict-Transport-Security: max-age=31536000; includeSubDomains\r\n"),
            "{page}: {head:.300}"
        );
    }
    let other = text(&secured.curl(&server, "b.test", "/big", &["-I"]).stdout);
    assert!(!other.contains("Strict-Transport-Security"), "{other}");
    let clear = server.ask(&Request::get("/big").header("Host", "a.test"));
    assert_eq!(clear.header("Strict-Transport-Security"), None);
    for page in ["/big", "/big.php"] {
        assert!(secured.curl(&server, "a.test", page, &[]).stdout == pattern(1, 3_000_000));
    }
}

#[test]
fn requests_in_the_clear_are_redirected() {
    let secured = Secured::new();
    let certificate = secured.issue(&["a.test"]);
    // The port that the redirect names must be known before the server starts.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = format!(
        "listen = ['127.0.0.1:0', '127.0.0.1:{port} tls']\nthreads = 1\n[[pool]]\nworkers = 2\n\
         [[site]]\nroot = 'root'\nhosts = 'a.test'\ntls = {{ {} }}\n",
        tls(&certificate)
    );
    let config = secured.site.write_at(secured.site.outside("sendoff.toml"), config);
    let server = Server::try_run(&config, secured.site.root(), 2).unwrap();
    let request = Request::post("/seen.php?a=%20", "text/plain", b"1".to_vec());
    let answer = server.ask(&request.header("Host", "A.test:80"));
    assert_eq!(answer.status(), 308);
    let location = format!("https://a.test:{port}/seen.php?a=%20");
    assert_eq!(answer.header("Location"), Some(&*location));
    assert!(secured.page(&server, "a.test", &[]).starts_with("on|https|"));
}

#[test]
fn sessions_are_resumed_by_every_event_loop_and_after_a_reload() {
    let secured = Secured::new();
    let Certificate { chain, key } = secured.issue(&["a.test"]);
    let (chain, key) = (chain.to_str().unwrap(), key.to_str().unwrap());
    let options =
        ["--tls-listen", "127.0.0.1:0", "--tls-cert", chain, "--tls-key", key, "--threads", "3"];
    let server = Server::start(secured.site.root(), &options);
    let addr = server.tls_addr().unwrap();
    for version in ["-tls1_2", "-tls1_3"] {
        let saved = secured.site.outside(&version[1..]);
        let saved = saved.to_str().unwrap();
        let options = |mode| [version, "-servername", "a.test", mode, saved];
        assert!(s_client(addr, &options("-sess_out"), CLOSING).contains("New, TLSv1"));
        for turn in 0..6 {
            if turn == 5 {
                server.command(&["reload"]).unwrap();
            }
            // The kernel spreads the connections over the event loops.
            let resumed = s_client(addr, &options("-sess_in"), CLOSING);
            assert!(resumed.contains("Reused, TLSv1"), "{version}: {resumed}");
            assert!(resumed.contains("HTTP/1.1 200 OK"), "{resumed}");
        }
    }
}

#[test]
fn old_versions_and_broken_clients_are_refused_and_nobody_else_notices() {
    let secured = Secured::new();
    let (a, b) = (secured.issue(&["a.test"]), secured.issue(&["b.test"]));
    let server = secured.run(&[
        &format!("hosts = 'a.test'\ntls = {{ {} }}", tls(&a)),
        &format!("hosts = 'b.test'\ntls = {{ {}, oldest = '1.3' }}", tls(&b)),
    ]);
    let addr = server.tls_addr().unwrap();
    let refused = s_client(addr, &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], "");
    assert!(refused.contains("alert") && !refused.contains("BEGIN CERTIFICATE"), "{refused}");
    assert!(secured.page(&server, "a.test", &["--tls-max", "1.2"]).contains("|TLSv1.2|"));
    assert!(
        secured
            .refusal(&server, "b.test", &["--tls-max", "1.2"])
            .contains("alert protocol version")
    );
    server.await_log("no TLS handshake: the client speaks TLS 1.2 at most, and the site wants 1.3");
    // A connection that was made for another site does not get around it.
    for (version, status) in [("1.2", "421"), ("1.3", "200")] {
        let options = ["-H", "Host: b.test", "--tls-max", version, "-o", "/dev/null"];
        let options = [&options[..], &["-w", "%{http_code}"]].concat();
        let other = secured.curl(&server, "a.test", "/seen.php", &options);
        assert_eq!(text(&other.stdout), status, "{version}");
    }
    let clear = {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
        let mut all = String::new();
        let _ = stream.read_to_string(&mut all);
        all
    };
    assert!(clear.starts_with("HTTP/1.1 400 ") && clear.contains("https://"), "{clear:?}");
    for noise in
        [&pattern(7, 5000)[..], b"\x16\x03\x01\x40\x00", &[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0]]
    {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.write_all(noise).unwrap();
        // The server may have closed it already.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        // An alert, or nothing; and then the end.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    server.await_log("no TLS handshake");
    assert!(secured.page(&server, "a.test", &[]).starts_with("on|"));
}

#[test]
fn handshakes_that_stall_are_ended() {
    let secured = Secured::new();
    let Certificate { chain, key } = secured.issue(&["localhost"]);
    let (chain, key) = (chain.to_str().unwrap(), key.to_str().unwrap());
    let mut options = vec!["--tls-listen", "127.0.0.1:0", "--tls-cert", chain, "--tls-key", key];
    options.extend(["--head-timeout", "300ms", "--idle-timeout", "300ms"]);
    let server = Server::start(secured.site.root(), &options);
    let addr = server.tls_addr().unwrap();
    for beginning in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01"] {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.write_all(beginning).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
    }
    // An idle connection ends with close_notify: the client knows that nothing is missing.
    let mut idle = Client::connect(addr);
    idle.ask(&Request::get("/seen.php")).expect(200);
    assert!(idle.is_closed() && !idle.is_truncated());
}

/// The alert for a client that sends a request together with its end of the handshake, and more
/// before it reads.
fn hasty_client(addr: SocketAddr, host: &'static str) -> io::Result<rustls::Error> {
    let mut socket = TcpStream::connect(addr).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let mut client = trusting_client(host);
    client.writer().write_all(&pattern(4, 50_000))?;
    while client.is_handshaking() || client.wants_write() {
        if client.wants_write() {
            client.write_tls(&mut socket)?;
        } else {
            client.read_tls(&mut socket)?;
            client.process_new_packets().map_err(io::Error::other)?;
        }
    }
    // The server has said something.
    socket.peek(&mut [0])?;
    client.writer().write_all(b"more")?;
    client.write_tls(&mut socket)?;
    loop {
        if client.read_tls(&mut socket)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if let Err(error) = client.process_new_packets() {
            return Ok(error);
        }
    }
}

/// A client's certificate of X.509 version 1.
fn old_certificate(secured: &Secured, authority: &Authority) -> Certificate {
    let file = |name: &str| secured.site.outside(&format!("keys/old.{name}"));
    let (issuer, issuer_key) = (file("issuer"), file("issuer.key"));
    secured.site.write_at(issuer.clone(), authority.pem());
    secured.site.write_at(issuer_key.clone(), authority.key_pem());
    let openssl = |command: &str, files: &[(&str, &Path)]| {
        let mut openssl = Command::new("openssl");
        openssl.args(command.split(' '));
        for (option, file) in files {
            openssl.arg(option).arg(file);
        }
        let output = openssl.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    let (request, key, chain) = (file("csr"), file("key"), file("pem"));
    let new = "req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=old";
    openssl(new, &[("-keyout", &key), ("-out", &request)]);
    let signed = [("-in", &*request), ("-CA", &issuer), ("-CAkey", &issuer_key), ("-out", &chain)];
    openssl("x509 -req -days 1", &signed);
    Certificate { chain, key }
}

#[test]
fn clients_show_certificates_where_a_site_wants_them() {
    let secured = Secured::new();
    let staff = Authority::new();
    let issuers = secured.site.write_at(secured.site.outside("keys/staff.pem"), staff.pem());
    let ada = staff.issue(&["ada"], &secured.site.outside("keys"), "Ada, \"1\"");
    let stranger = secured.issue(&["eve"]);
    let (a, b, c) =
        (secured.issue(&["a.test"]), secured.issue(&["b.test"]), secured.issue(&["c.test"]));
    let issuers = format!("client_issuers = '{}'", issuers.display());
    let server = secured.run(&[
        &format!("hosts = 'a.test'\ntls = {{ {} }}", tls(&a)),
        &format!("hosts = 'b.test'\ntls = {{ {}, {issuers} }}", tls(&b)),
        &format!(
            "hosts = 'c.test'\ntls = {{ {}, {issuers}, client_certificates = 'optional' }}",
            tls(&c)
        ),
    ]);
    let shown = |certificate: &Certificate| {
        let Certificate { chain, key } = certificate;
        ["--cert", chain.to_str().unwrap(), "--key", key.to_str().unwrap()].map(str::to_owned)
    };
    let (ada, stranger) = (shown(&ada), shown(&stranger));
    let (ada, stranger) = (ada.each_ref().map(|s| &**s), stranger.each_ref().map(|s| &**s));
    // Over HTTP/2 curl writes before it reads, and tells of that only.
    let refusal = |host, options: &[&str]| {
        secured.refusal(&server, host, &[&["--http1.1"], options].concat())
    };
    assert!(refusal("b.test", &[]).contains("certificate required"));
    // Also where it sends a request right behind the handshake.
    for _ in 0..10 {
        let refused = hasty_client(server.tls_addr().unwrap(), "b.test");
        let alert = rustls::Error::AlertReceived(AlertDescription::CertificateRequired);
        assert_eq!(refused.map_err(|error| error.kind()), Ok(alert));
    }
    // Version 1 has no extensions.
    let old = old_certificate(&secured, &staff);
    let old = shown(&old);
    assert!(refusal("b.test", &old.each_ref().map(|s| &**s)).contains("alert"));
    server.await_log("the client's certificate is of X.509 version 1");
    assert!(refusal("b.test", &stranger).contains("alert"));
    assert!(refusal("c.test", &stranger).contains("alert"));
    assert!(secured.page(&server, "c.test", &[]).ends_with("|NONE|-|-|"));
    for host in ["b.test", "c.test"] {
        let seen = secured.page(&server, host, &ada);
        let names = r#"|SUCCESS|CN=Ada\, \"1\"|CN=Authority of the scenarios|"#;
        assert!(seen.ends_with(names), "{seen}");
    }
    // A connection for one site says nothing about another.
    let other = secured.curl(
        &server,
        "a.test",
        "/seen.php",
        &["-H", "Host: b.test", "-o", "/dev/null", "-w", "%{http_code}"],
    );
    assert_eq!(text(&other.stdout), "421");
    let same = secured.page(&server, "b.test", &[&ada[..], &["-H", "Host: b.test"]].concat());
    assert!(same.contains("|SUCCESS|"));
}

#[test]
fn a_stapled_response_is_sent() {
    let secured = Secured::new();
    let certificate = secured.issue(&["a.test"]);
    let ocsp = secured.site.write_at(secured.site.outside("keys/ocsp"), [0x30, 3, 0x0a, 1, 6]);
    let server = secured.run(&[&format!(
        "hosts = 'a.test'\ntls = {{ {}, ocsp = '{}' }}",
        tls(&certificate),
        ocsp.display()
    )]);
    let said = s_client(server.tls_addr().unwrap(), &["-status", "-servername", "a.test"], CLOSING);
    assert!(said.contains("OCSP Response Status: unauthorized"), "{said}");
}

#[test]
fn a_reload_takes_new_certificates_and_refuses_bad_ones_while_connections_go_on() {
    let secured = Secured::new();
    let certificate = secured.issue(&["a.test"]);
    let server = secured.run(&[&format!("hosts = 'a.test'\ntls = {{ {} }}", tls(&certificate))]);
    let addr = server.tls_addr().unwrap();
    let serial = || first_certificate(&s_client(addr, &["-servername", "a.test"], ""));
    let first = serial();
    let mut open = Client::connect(addr);
    open.ask(&Request::get("/seen.php")).expect(200);
    let before = fs::read(&certificate.key).unwrap();
    secured.issue(&["a.test"]);
    let after = fs::read(&certificate.key).unwrap();
    fs::write(&certificate.key, before).unwrap();
    let refused = server.command(&["reload"]).unwrap_err();
    assert!(refused.contains("the key does not fit the certificate"), "{refused}");
    assert_eq!(serial(), first);
    fs::write(&certificate.key, after).unwrap();
    server.command(&["reload"]).unwrap();
    assert_ne!(serial(), first);
    open.ask(&Request::get("/seen.php")).expect(200);
}

#[test]
fn check_says_what_is_wrong_with_certificates() {
    let secured = Secured::new();
    let (one, other) = (secured.issue(&["a.test"]), secured.issue(&["b.test"]));
    let swapped = Certificate { chain: one.chain.clone(), key: other.key };
    let check = |certificate: &Certificate| {
        let config = secured.write(&[&format!(
            "hosts = ['a.test', 'www.a.test']\ntls = {{ {} }}",
            tls(certificate)
        )]);
        let checked = Command::new(sendoff_tests::binary())
            .args(["check", "--config"])
            .arg(&config)
            .output()
            .unwrap();
        // Long lines are wrapped, wherever the path of the folder lets them end.
        let said = text(&checked.stdout) + &text(&checked.stderr);
        (checked.status.code(), said.replace("\n  │ ", " "))
    };
    let (code, said) = check(&swapped);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("the key does not fit the certificate") && said.contains(":9:"),
        "{said}"
    );
    let (code, said) = check(&one);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the certificate is for a.test, not for www.a.test"), "{said}");
}

/// Files that would keep the server from starting, or clients from connecting.
#[test]
fn check_reads_every_file_of_tls() {
    let secured = Secured::new();
    let one = secured.issue(&["a.test"]);
    let folder = secured.site.outside("keys");
    let write = |name: &str, bytes: &[u8]| secured.site.write_at(folder.join(name), bytes);
    let openssl = |line: &str| {
        let made = Command::new("openssl").args(line.split(' ')).current_dir(&folder).output();
        let made = made.unwrap();
        assert!(made.status.success(), "{line}: {}", text(&made.stderr));
    };
    // An authority with two certificates, and its OCSP response for the first.
    openssl("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 9 -subj /CN=ca");
    for (name, serial) in [("first", "0x01"), ("second", "0x02")] {
        openssl(&format!(
            "req -x509 -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.pem -days 9 -subj /CN=a.test -addext subjectAltName=DNS:a.test -CA ca.pem -CAkey ca.key -set_serial {serial}"
        ));
    }
    write("index", b"V\t491231235959Z\t\t01\tunknown\t/CN=a.test\n");
    openssl(
        "ocsp -index index -CA ca.pem -rsigner ca.pem -rkey ca.key -issuer ca.pem -cert first.pem -respout of-first -ndays 9 -noverify",
    );
    openssl(
        "req -x509 -newkey rsa:1024 -nodes -keyout small.key -out small.pem -days 9 -subj /CN=a.test",
    );
    // Without extensions it is of version 1.
    openssl("req -new -newkey rsa:2048 -nodes -keyout old.key -out old.csr -subj /CN=a.test");
    openssl("x509 -req -in old.csr -signkey old.key -out old.pem -days 9");
    fs::copy(folder.join("old.key"), folder.join("mixed.key")).unwrap();
    let pem = |name: &str| fs::read(folder.join(name)).unwrap();
    write("mixed.pem", &[pem("ca.pem"), pem("old.pem")].concat());
    fs::copy(folder.join("first.key"), folder.join("cut.key")).unwrap();
    write("cut.pem", &pem("first.pem")[..600]);
    fs::copy(folder.join("first.pem"), folder.join("short.pem")).unwrap();
    write("short.key", &pem("first.key")[..600]);
    let (empty, key) = (write("empty", b""), one.key.display().to_string());
    let empty = empty.display().to_string();
    let named = |name: &str| folder.join(name).display().to_string();
    let files = |name: &str| {
        let (chain, key) = (format!("{name}.pem"), format!("{name}.key"));
        format!("certificate = '{}', key = '{}'", named(&chain), named(&key))
    };
    for (keys, status, says) in [
        (
            format!("{}, client_issuers = '{key}'", tls(&one)),
            2,
            vec![&*key, "this is a private key, not a certificate"],
        ),
        (
            format!("{}, client_issuers = '{empty}'", tls(&one)),
            2,
            vec![&*empty, "no certificate in PEM"],
        ),
        (
            format!("certificate = 'self-signed', client_issuers = '{key}'"),
            2,
            vec!["this is a private key"],
        ),
        (
            format!("{}, ocsp = '{key}'", tls(&one)),
            2,
            vec![&*key, "expected a response of an OCSP responder", "this is PEM"],
        ),
        (format!("{}, ocsp = '{empty}'", tls(&one)), 2, vec!["the file is empty"]),
        (files("old"), 2, vec!["old.pem: certificate 1 of the file is of X.509 version 1"]),
        (files("mixed"), 2, vec!["mixed.pem: certificate 2 of the file is of X.509 version 1"]),
        (files("cut"), 2, vec!["cut.pem: the file is cut off", "-----END CERTIFICATE-----"]),
        (files("short"), 2, vec!["short.key: the file is cut off", "-----END PRIVATE KEY-----"]),
        (
            format!("{}, client_issuers = '{}'", tls(&one), named("cut.pem")),
            2,
            vec!["cut.pem: the file is cut off"],
        ),
        (
            format!("{}, ocsp = '{}'", files("second"), named("of-first")),
            2,
            vec!["of-first", "this OCSP response is about another certificate"],
        ),
        (format!("{}, ocsp = '{}'", files("first"), named("of-first")), 0, vec![]),
        (
            files("small"),
            2,
            vec!["small.key", "the key is too small: RSA of 1024 bits", "2048 to 8192"],
        ),
    ] {
        let config = secured.write(&[&format!("hosts = 'a.test'\ntls = {{ {keys} }}")]);
        let checked = Command::new(sendoff_tests::binary()).arg("check").arg(&config).output();
        let checked = checked.unwrap();
        let said = text(&checked.stdout) + &text(&checked.stderr);
        let said = said.replace("\n  │ ", " ");
        assert_eq!(checked.status.code(), Some(status), "{keys}: {said}");
        for says in says {
            assert!(said.contains(says), "{says:?} is not in\n{said}");
        }
        if status != 0 {
            let head = format!("sendoff: {}: 1 error", config.display());
            assert!(said.contains(&head), "{head:?} is not in\n{said}");
        }
    }
}

/// The end of a body that has no length must be the end that the server meant.
#[test]
fn a_cut_response_is_never_taken_for_a_whole_one() {
    let secured = Secured::new();
    secured.site.write(
        "dies.php",
        "<?php echo str_repeat('x', 100000); flush(); posix_kill(getmypid(), 9);",
    );
    secured.site.write("ends.php", "<?php echo str_repeat('x', 100000); flush();");
    let server = secured.serve();
    let ask = |page: &str| {
        Client::connect(server.tls_addr().unwrap()).try_ask(&Request::get(page).http10())
    };
    assert_eq!(ask("/ends.php").unwrap().body.len(), 100_000);
    for _ in 0..3 {
        let cut = ask("/dies.php");
        assert!(matches!(cut, Err(Broken::Cut(_) | Broken::Closed)), "{cut:?}");
    }
    // With chunked coding, a cut response lacks the last chunk and `close_notify`.
    for (page, is_cut) in [("/ends.php", false), ("/dies.php", true)] {
        let mut client = Client::connect(server.tls_addr().unwrap());
        client.send(Request::get(page).header("Connection", "close").bytes());
        let received = client.rest();
        assert_eq!(received.ends_with(b"\r\n0\r\n\r\n"), !is_cut, "{page}");
        assert_eq!(client.is_truncated(), is_cut, "{page}");
    }
}

/// The kernel ends the connections of a process that has died, as if they were complete.
#[test]
fn a_response_whose_server_dies_is_not_taken_for_a_whole_one() {
    let secured = Secured::new();
    secured.site.write(
        "waits.php",
        "<?php for ($i = 0; $i < 30; $i++) echo str_repeat('x', 100000); flush();
        file_put_contents('written', 'all'); file_get_contents('pipe');",
    );
    let (written, pipe) = (secured.site.fifo("written"), secured.site.fifo("pipe"));
    let server = secured.serve();
    let front = server.front();
    let mut client = Client::connect_narrow(server.tls_addr().unwrap(), 16 * 1024);
    client.send(Request::get("/waits.php").http10().bytes());
    let head = client.head().unwrap();
    assert_eq!(head.framing("GET"), Ok(Framing::Close));
    // A script that still writes would be aborted, and never come to the pipe.
    assert_eq!(written.await_script(), "all");
    processes::signal(front, Signal::KILL);
    match client.body_of(head, "GET") {
        Err(Broken::Cut(part)) => assert!(part.body.iter().all(|byte| *byte == b'x')),
        other => panic!("{:?}", other.map(|response| response.body.len())),
    }
    assert!(client.is_truncated());
    pipe.release();
    assert!(wait::until(LIMIT, || server.front() != front));
}

/// A kernel that encrypts keeps a record outside of TCP while the socket is full.
#[test]
fn slow_clients_get_everything_and_the_end() {
    let secured = Secured::new();
    secured
        .site
        .write("ends.php", "<?php for ($i = 0; $i < 30; $i++) echo str_repeat('x', 100000);");
    let server = secured.serve();
    let addr = server.tls_addr().unwrap();
    for (page, body) in [("/ends.php", vec![b'x'; 3_000_000]), ("/big", pattern(1, 3_000_000))] {
        let mut clients: Vec<_> = (0..5).map(|_| Client::connect_narrow(addr, 16 * 1024)).collect();
        let request = Request::get(page).http10();
        clients.iter_mut().for_each(|client| client.send(request.bytes()));
        // Each client reads when all previous clients have everything.
        for mut client in clients {
            let response = client.response("GET");
            assert!(response.expect(200) == body, "{page}");
            assert!(client.is_closed() && !client.is_truncated(), "{page}");
        }
    }
}

/// The kernel reads ranges of files when it encrypts them, which may be later.
#[test]
fn files_that_change_are_sent_as_they_were() {
    let secured = Secured::new();
    secured.site.write("file.php", "<?php echo file_get_contents($_GET['f']);");
    let server = secured.serve();
    let addr = server.tls_addr().unwrap();
    for size in [50_000, 1_000_000, 20_000_000] {
        let path = secured.site.write("changes", pattern(2, size));
        let clients: Vec<_> = (0..3)
            .map(|_| {
                let mut client = Client::connect_narrow(addr, 16 * 1024);
                client.send(Request::get("/file.php?f=changes").bytes());
                let head = client.head().unwrap();
                (client, head)
            })
            .collect();
        overwrite(&path, &pattern(3, size));
        for (mut client, head) in clients {
            let response = client.body_of(head, "GET").unwrap();
            assert!(response.expect(200) == pattern(2, size), "{size} bytes");
        }
    }
}

/// A running `openssl s_client`.
struct Commanded {
    child: Child,
    stdin: ChildStdin,
    said: Arc<Mutex<Vec<u8>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Commanded {
    fn start(addr: SocketAddr, options: &[&str]) -> Self {
        let mut command = dies_with_us(Path::new("openssl"), "KILL");
        command.args(["s_client", "-tls1_3", "-connect", &addr.to_string()]).args(options);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = Arc::new(Mutex::new(Vec::new()));
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let sources: [Box<dyn Read + Send>; 2] = [Box::new(stdout), Box::new(stderr)];
        let collect = |mut source: Box<dyn Read + Send>| {
            let said = Arc::clone(&said);
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(n @ 1..) = source.read(&mut buffer) {
                    said.lock().unwrap().extend_from_slice(&buffer[..n]);
                }
            })
        };
        let readers = sources.map(collect).into();
        Self { stdin: child.stdin.take().unwrap(), child, said, readers }
    }

    /// Types something: a line with one letter is a command, if nothing else was typed with it.
    fn types(&mut self, input: &[u8]) {
        self.stdin.write_all(input).unwrap();
    }

    /// Waits until it has said something as many times as this.
    #[track_caller]
    fn says(&self, what: &[u8], times: usize) {
        let count = || {
            let said = self.said.lock().unwrap();
            said.windows(what.len()).filter(|window| *window == what).count()
        };
        let what = what.escape_ascii();
        assert!(wait::until(LIMIT, || count() >= times), "no {what}: {}", self.text());
    }

    fn text(&self) -> String {
        text(&self.said.lock().unwrap())
    }

    /// Its whole output, once the server has ended the connection.
    fn ended(mut self) -> String {
        self.readers.drain(..).for_each(|reader| reader.join().unwrap());
        self.child.wait().unwrap();
        self.text()
    }
}

impl Drop for Commanded {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The kernel cannot change the keys of the sending direction: the connection ends gracefully.
#[test]
fn clients_may_change_keys_and_ask_for_other_ones() {
    const ASK: &[u8] = b"GET /seen.php HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let secured = Secured::new();
    let server = secured.serve();
    let addr = server.tls_addr().unwrap();
    let mut client = Commanded::start(addr, &[]);
    client.says(b"Verify return code", 1);
    for (command, times) in [(b"k\n", 1), (b"k\n", 2), (b"K\n", 3)] {
        client.types(command);
        client.says(b"KEYUPDATE", times);
        client.types(ASK);
        client.says(b"|TLSv1.3|", times);
    }
    if !kernel_has_tls() {
        client.types(CLOSING.as_bytes());
    }
    let said = client.ended();
    let responses = if kernel_has_tls() { 3 } else { 4 };
    assert_eq!(said.matches("HTTP/1.1 200 OK").count(), responses, "{said}");
    assert_eq!(said.matches("Connection: close").count(), 1, "{said}");
    assert!(said.contains("closed") && !said.contains("unexpected eof"), "{said}");
}

#[test]
fn http2_clients_that_ask_for_other_keys_are_told_to_go() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0question";
    const ACKNOWLEDGED: &[u8] = b"\0\0\x08\x06\x01\0\0\0\0question";
    const GOAWAY: &[u8] = b"\0\0\x08\x07\0\0\0\0\0";
    let secured = Secured::new();
    let server = secured.serve();
    let mut client = Commanded::start(server.tls_addr().unwrap(), &["-alpn", "h2"]);
    client.says(b"Verify return code", 1);
    client.types(PREFACE);
    client.types(PING);
    client.says(ACKNOWLEDGED, 1);
    client.types(b"K\n");
    client.says(b"KEYUPDATE", 1);
    if kernel_has_tls() {
        client.says(GOAWAY, 1);
        let said = client.ended();
        assert!(said.contains("closed") && !said.contains("unexpected eof"), "{said}");
    } else {
        client.types(PING);
        client.says(ACKNOWLEDGED, 2);
    }
}

#[test]
fn the_status_says_what_encrypts() {
    let secured = Secured::new();
    let server = secured.serve();
    let mut open = Client::connect(server.tls_addr().unwrap());
    open.ask(&Request::get("/seen.php")).expect(200);
    let status = server.command(&["status"]).unwrap();
    let expected = if kernel_has_tls() {
        "\nTLS          by the kernel for 1 of them\n"
    } else {
        "\nTLS          by the server; the kernel has none\n"
    };
    assert!(status.contains(expected), "{status}");
    let clear = Server::start(secured.site.root(), &[]);
    assert!(!clear.command(&["status"]).unwrap().contains("TLS"));
}

/// Made once and kept where only the server's user may read it.
#[test]
fn a_certificate_of_the_servers_own() {
    let site = Site::with("a.txt", "static");
    let config = site.write_at(
        site.outside("sendoff.toml"),
        "listen = ['127.0.0.1:0', '127.0.0.1:0 tls']\nthreads = 1\nstate = 'state'\n[[site]]\nroot = 'root'\n\
         tls = 'self-signed'\nhttps_redirect = false\n[[pool]]\nworkers = 2\n",
    );
    let mut shown = Vec::new();
    for _ in 0..2 {
        let server = Server::try_run(&config, site.root(), 2).unwrap();
        let mut client = Client::connect(server.tls_addr().unwrap());
        assert_eq!(client.ask(&Request::get("/a.txt")).text(), "static");
        drop(client);
        let said = s_client(server.tls_addr().unwrap(), &[], "");
        shown.push(first_certificate(&said));
    }
    assert_eq!(shown[0], shown[1]);
    let kept = site.outside("state/self-signed/localhost.pem");
    assert_eq!(mode(&kept), 0o600);
    assert_eq!(mode(kept.parent().unwrap()), 0o700);
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// `sendoff explain` takes URLs with https. On a loopback address, a certificate that other clients
/// would refuse only causes a note.
#[test]
fn pages_are_explained_over_tls() {
    let secured = Secured::new();
    let a = secured.issue(&["a.test"]);
    let server = secured.run(&[&format!("hosts = 'a.test'\ntls = {{ {} }}", tls(&a))]);
    let port = server.tls_addr().unwrap().port();
    let explain = |host: &str, trusted: &Path| {
        let url = format!("https://{host}:{port}/big.php");
        let said = server.explain_url(&url, &[], &[("SSL_CERT_FILE", trusted)]);
        (said.status.success(), text(&said.stdout), text(&said.stderr))
    };
    let (explained, table, note) = explain("a.test", &secured.trusted());
    assert!(explained && note.is_empty(), "{note}");
    let way = if kernel_has_tls() { "file, sendfile" } else { "file, encrypted" };
    assert!(table.contains("200 OK, 3000000 bytes") && table.contains(way), "{table}");
    let (explained, same, note) = explain("a.test", Path::new("/dev/null"));
    assert!(explained && note.contains("would refuse it"), "{note}");
    assert_eq!(same.lines().next(), table.lines().next());
    // A certificate for another name.
    let (explained, _, note) = explain("b.test", &secured.trusted());
    assert!(explained && note.contains("would refuse it"), "{note}");
    // The wrong port.
    let clear = server.clear_addr().port();
    for (url, expected) in [
        (format!("https://a.test:{clear}/"), "does not answer over TLS"),
        (format!("http://a.test:{port}/"), "the port may be one for https"),
    ] {
        let said = server.explain_url(&url, &[], &[]);
        let error = text(&said.stderr);
        assert!(!said.status.success() && error.contains(expected), "{error}");
    }
}
