//! TLS: certificates of sites, sessions, versions, clients' certificates, and connections that end early.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use sendoff_tests::{
    Authority, Broken, Certificate, Client, LIMIT, Request, Server, Site, pattern,
};

/// What a script sees of the connection.
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

    /// Asks by curl, which trusts the authority, for a page of a host.
    fn curl(&self, server: &Server, host: &str, page: &str, options: &[&str]) -> Output {
        let addr = server.tls_addr().unwrap();
        Command::new("curl")
            .args(["-sS", "--max-time", "20", "--cacert"])
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

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn tls(certificate: &Certificate) -> String {
    let Certificate { chain, key } = certificate;
    format!("certificate = '{}', key = '{}'", chain.display(), key.display())
}

/// What `openssl s_client` prints, with this input.
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
    let reader = std::thread::spawn(move || child.wait_with_output().unwrap());
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
        &format!("hosts = 'a.test'\ntls = {{ {} }}\nhsts = '365d, includeSubDomains'", tls(&a)),
        &format!("hosts = ['b.test', '*.b.test']\ntls = {{ {} }}", tls(&b)),
    ]);
    let port = server.tls_addr().unwrap().port();
    for host in ["a.test", "b.test", "x.b.test"] {
        let seen = secured.page(&server, host, &[]);
        assert_eq!(seen, format!("on|https|{port}|TLSv1.3|{host}|NONE|-|-|"));
    }
    let refused = secured.refusal(&server, "c.test", &[]);
    assert!(refused.contains("a.test") || refused.contains("SSL"), "the first site's: {refused}");
    let head = text(&secured.curl(&server, "a.test", "/big", &["-I", "--http1.1"]).stdout);
    assert!(
        head.contains("Strict-Transport-Security: max-age=31536000; includeSubDomains\r\n"),
        "{head}"
    );
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
        said.contains("the key does not fit the certificate") && said.contains(":9:7]"),
        "{said}"
    );
    let (code, said) = check(&one);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the certificate is for a.test, not for www.a.test"), "{said}");
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
    let Certificate { chain, key } = secured.issue(&["localhost"]);
    let (chain, key) = (chain.to_str().unwrap(), key.to_str().unwrap());
    let options = ["--tls-listen", "127.0.0.1:0", "--tls-cert", chain, "--tls-key", key];
    let server = Server::start(secured.site.root(), &options);
    let ask = |page: &str| {
        Client::connect(server.tls_addr().unwrap()).try_ask(&Request::get(page).http10())
    };
    assert_eq!(ask("/ends.php").unwrap().body.len(), 100_000);
    for _ in 0..3 {
        let cut = ask("/dies.php");
        assert!(matches!(cut, Err(Broken::Cut(_) | Broken::Closed)), "{cut:?}");
    }
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

/// `sendoff explain` takes URLs with https. What other clients would say against the certificate is a note, on this machine.
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
    assert!(
        table.contains("200 OK, 3000000 bytes") && table.contains("file, encrypted"),
        "{table}"
    );
    let (explained, same, note) = explain("a.test", Path::new("/etc/hostname"));
    assert!(explained && note.contains("would refuse it"), "{note}");
    assert_eq!(same.lines().next(), table.lines().next());
    // Of another name.
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
