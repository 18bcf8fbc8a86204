//! Proxies before the server: their statements about the client count if they are trusted.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};

use sendoff_tests::{
    Broken, LIMIT, Request, Server, Site, Stock, curl, dies_with_us, pattern, wait,
};

/// A script that shows the variables about the client and about the request.
const SEEN: &str = "<?php foreach (['REMOTE_ADDR', 'REMOTE_PORT', 'SERVER_PORT', 'REQUEST_SCHEME', 'HTTPS',
    'SERVER_NAME', 'HTTP_HOST', 'HTTP_X_FORWARDED_FOR'] as $name) echo $_SERVER[$name] ?? '-', '|';";

fn site() -> Site {
    let site = Site::with("seen.php", SEEN);
    site.write("big", pattern(1, 300_000));
    site.write("big.php", "<?php readfile('big');");
    site
}

/// The answer to a request with these fields, over a connection of its own.
#[track_caller]
fn seen(server: &Server, fields: &[(&str, &str)]) -> String {
    let request = Request::get("/seen.php");
    let with = |request: Request, (name, value): &(&str, &str)| request.header(name, value);
    server.ask(&fields.iter().fold(request, with)).text()
}

/// HAProxy before a server that expects the PROXY protocol.
struct HaProxy {
    child: Child,
    addr: SocketAddr,
}

impl HaProxy {
    /// `server`: a line of HAProxy's configuration.
    fn start(folder: &Path, server: &str) -> Self {
        assert!(Path::new("/usr/sbin/haproxy").exists(), "run: apt-get install haproxy");
        let started = (0..5).find_map(|_| {
            // Another process may take the port before HAProxy binds it.
            let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let config = folder.join("haproxy.cfg");
            let text = format!(
                "defaults\n mode http\n timeout connect 30s\n timeout client 30s\n timeout server 30s\n\
                 frontend front\n bind {addr}\n default_backend back\n\
                 backend back\n server sendoff {server}\n"
            );
            fs::write(&config, text).unwrap();
            let mut child = dies_with_us(Path::new("/usr/sbin/haproxy"), "KILL")
                .args(["-db", "-q", "-f"])
                .arg(&config)
                .stdin(Stdio::null())
                .spawn()
                .unwrap();
            let mut is_up = false;
            wait::until(LIMIT, || {
                is_up = TcpStream::connect(addr).is_ok();
                is_up || child.try_wait().unwrap().is_some()
            });
            is_up.then_some(Self { child, addr })
        });
        started.expect("HAProxy starts")
    }

    /// Asks from 127.0.0.5.
    fn get(&self, target: &str) -> Vec<u8> {
        let done = curl()
            .args(["--fail", "--interface", "127.0.0.5"])
            .arg(format!("http://{}{target}", self.addr))
            .output()
            .expect("curl");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        done.stdout
    }
}

impl Drop for HaProxy {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn haproxy_names_the_client_in_both_versions_of_the_proxy_protocol() {
    let site = site();
    let trusted = ["--proxy-protocol", "--trust-proxy", "127.0.0.1", "--trust-unix"];
    let socket = format!("unix:{}", site.outside("s.sock").display());
    let mut options = vec!["--listen", "127.0.0.1:0", "--listen", &socket];
    options.extend(trusted);
    let server = Server::start(site.root(), &options);
    let unix = format!("unix@{}", site.outside("s.sock").display());
    for (place, version) in [
        (server.addr().to_string(), "send-proxy"),
        (server.addr().to_string(), "send-proxy-v2"),
        (server.addr().to_string(), "send-proxy-v2 proxy-v2-options unique-id,crc32c"),
        (unix.clone(), "send-proxy"),
        (unix, "send-proxy-v2 check inter 10ms"),
    ] {
        let haproxy = HaProxy::start(&site.outside(""), &format!("{place} {version}"));
        let page = String::from_utf8(haproxy.get("/seen.php")).unwrap();
        let parts: Vec<_> = page.split('|').collect();
        assert_eq!(parts[0], "127.0.0.5", "{place} {version}: {page}");
        assert!(parts[1].parse::<u16>().is_ok(), "{place} {version}: {page}");
        // The end that the client connected to is the proxy's.
        assert_eq!(parts[2], haproxy.addr.port().to_string(), "{place} {version}: {page}");
        for _ in 0..3 {
            assert!(haproxy.get("/big.php") == pattern(1, 300_000), "{place} {version}");
        }
    }
}

/// Sends these bytes and `GET /seen.php`, in pieces of `size`. Returns the page, or `None` if the
/// connection ended without an answer.
fn behind(server: &Server, header: &[u8], size: usize) -> Option<String> {
    let mut client = server.connect();
    let request = Request::get("/seen.php");
    for piece in [header, &request.bytes()].concat().chunks(size) {
        if client.try_send(piece).is_err() {
            break;
        }
    }
    match client.try_response("GET") {
        Ok(response) => Some(response.text()),
        Err(Broken::Closed) => None,
        Err(Broken::Malformed(why)) if why.contains("reset") => None,
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn a_header_may_come_in_pieces_and_speaks_for_the_whole_connection() {
    let site = site();
    let options = ["--proxy-protocol", "--trust-proxy", "127.0.0.0/8"];
    let server = Server::start(site.root(), &options);
    let v1 = b"PROXY TCP6 2001:db8::9 2001:db8::1 4711 8443\r\n";
    let v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x12\xcb\0\x71\x09\xc0\0\x02\x01\x12\x67\x20\xfb\x04\0\x03abc";
    for size in [1, 7, 4096] {
        let page = behind(&server, v1, size).unwrap();
        assert!(page.starts_with("2001:db8::9|4711|8443|http|-|"), "{page}");
        let page = behind(&server, v2, size).unwrap();
        assert!(page.starts_with("203.0.113.9|4711|8443|http|-|"), "{page}");
        // The proxy speaks for itself.
        let page = behind(&server, b"PROXY UNKNOWN\r\n", size).unwrap();
        assert!(page.starts_with("127.0.0.1|"), "{page}");
    }
    // Nor does the proxy speak for a client that it does not name: its fields are the client's own.
    let mut client = server.connect();
    client.send(b"PROXY UNKNOWN\r\n");
    let claims = Request::get("/seen.php").header("X-Forwarded-For", "10.0.0.1");
    assert!(client.ask(&claims).text().starts_with("127.0.0.1|"));
    let mut client = server.connect();
    client.send(v1);
    for _ in 0..3 {
        assert!(client.ask(&Request::get("/seen.php")).text().starts_with("2001:db8::9|4711|"));
    }
}

#[test]
fn connections_without_a_header_or_from_other_networks_are_refused() {
    let site = site();
    let options = ["--proxy-protocol", "--trust-proxy", "127.0.0.1", "--head-timeout", "500ms"];
    let server = Server::start(site.root(), &options);
    assert_eq!(behind(&server, b"", 4096), None);
    server.await_log("it does not begin with a valid PROXY protocol header");
    assert_eq!(behind(&server, &[b'\r'; 5000], 4096), None);
    let other = ["--proxy-protocol", "--trust-proxy", "127.0.0.2"];
    let stranger = Server::start(site.root(), &other);
    assert_eq!(behind(&stranger, b"PROXY TCP4 127.0.0.2 127.0.0.1 1 2\r\n", 4096), None);
    stranger.await_log("this listener is for trusted proxies");
    // A header that does not end.
    let mut slow = TcpStream::connect(server.addr()).unwrap();
    slow.set_read_timeout(Some(LIMIT)).unwrap();
    slow.write_all(b"PROXY TCP4 ").unwrap();
    assert!(matches!(slow.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn the_word_of_a_trusted_proxy_counts_and_that_of_others_does_not() {
    let site = site();
    let told = [
        ("X-Forwarded-For", "6.6.6.6, 203.0.113.9:4711"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "www.example.org"),
    ];
    let trusting = Server::start(site.root(), &["--trust-proxy", "127.0.0.0/8"]);
    let as_told =
        "203.0.113.9|4711|443|https|on|www.example.org|www.example.org|6.6.6.6, 203.0.113.9:4711|";
    assert_eq!(seen(&trusting, &told), as_told);
    let plain = Server::start(site.root(), &["--trust-proxy", "192.0.2.0/24"]);
    let port = plain.addr().port();
    let page = seen(&plain, &told);
    let rest = format!("|{port}|http|-|example.test|example.test|6.6.6.6, 203.0.113.9:4711|");
    assert!(page.starts_with("127.0.0.1|") && page.ends_with(&rest), "{page}");
    // The proxies of a site write one kind of field; the other is the client's.
    let forwarded = ("Forwarded", "for=\"[2001:db8::9]:1\";proto=https;host=\"a.example:8443\"");
    assert!(seen(&trusting, &[forwarded]).starts_with("127.0.0.1|"));
    trusting.await_log("Forwarded is not read");
    let options = ["--trust-proxy", "127.0.0.1", "--proxy-field", "Forwarded"];
    let standard = Server::start(site.root(), &options);
    let as_told = "2001:db8::9|1|8443|https|on|a.example|a.example:8443|203.0.113.9|";
    assert_eq!(seen(&standard, &[("X-Forwarded-For", "203.0.113.9"), forwarded]), as_told);
}

/// nginx has a module for it (`real_ip_recursive on`).
#[test]
fn clients_are_found_as_nginx_finds_them() {
    let site = site();
    let server = Server::start(
        site.root(),
        &[
            "--trust-proxy",
            "127.0.0.0/8",
            "--trust-proxy",
            "10.0.0.0/8",
            "--trust-proxy",
            "2001:db8:a::/48",
        ],
    );
    let nginx = Stock::nginx(
        site.root(),
        "",
        "set_real_ip_from 127.0.0.0/8; set_real_ip_from 10.0.0.0/8; set_real_ip_from 2001:db8:a::/48;
        real_ip_header X-Forwarded-For; real_ip_recursive on;
        location = /seen.php { return 200 '$remote_addr'; }",
    );
    for lines in [
        &[][..],
        &["203.0.113.9"],
        &["203.0.113.9, 10.0.0.2"],
        &["203.0.113.9,10.0.0.3, 10.0.0.2"],
        &["6.6.6.6, 203.0.113.9, 10.0.0.2"],
        &["nonsense, 203.0.113.9"],
        &["203.0.113.9", "10.0.0.2"],
        &["6.6.6.6", "203.0.113.9"],
        &["10.0.0.3, 10.0.0.2"],
        &["203.0.113.9:4711"],
        &["2001:db8::9, 2001:db8:a::1"],
        &["[2001:db8::9]:4711"],
        &["203.0.113.9 , , 10.0.0.2 ,"],
        &["unknown"],
        &["203.0.113.9, unknown"],
        &["203.0.113.9, nonsense, 10.0.0.2"],
        &[""],
    ] {
        let fields: Vec<_> = lines.iter().map(|line| ("X-Forwarded-For", *line)).collect();
        let ours = seen(&server, &fields);
        let ours = ours.split('|').next().unwrap();
        let request = Request::get("/seen.php");
        let with = |request: Request, (name, value): &(&str, &str)| request.header(name, value);
        let theirs = nginx.ask(&fields.iter().fold(request, with)).text();
        assert_eq!(ours, theirs, "{lines:?}");
    }
}

#[test]
fn nginx_in_front_passes_the_client_on() {
    let site = site();
    let server = Server::start(site.root(), &["--trust-proxy", "127.0.0.1"]);
    let pass = format!(
        "location / {{
            proxy_pass http://{};
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto https;
            proxy_set_header X-Forwarded-Host '';
            proxy_set_header X-Forwarded-Port '';
        }}",
        server.addr()
    );
    let nginx = Stock::nginx(site.root(), "", &pass);
    let done = curl()
        .args(["--fail", "--interface", "127.0.0.5"])
        .args(["-H", "X-Forwarded-For: 127.0.0.1", "-H", "X-Forwarded-Host: evil.example"])
        .args([
            "-H",
            "X-Forwarded-Port: 1",
            "-H",
            "Forwarded: for=6.6.6.6",
            "-H",
            "Host: shop.example",
        ])
        .arg(format!("http://{}/seen.php", nginx.addr()))
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8(done.stdout).unwrap(),
        "127.0.0.5||443|https|on|shop.example|shop.example|127.0.0.1, 127.0.0.5|"
    );
}

#[test]
fn log_and_explain_show_the_client() {
    let site = site();
    let log = site.write_at(site.outside("access.log"), "");
    let options = ["--trust-proxy", "127.0.0.1", "--access-log", log.to_str().unwrap()];
    let server = Server::start(site.root(), &options);
    let client = ("X-Forwarded-For", "203.0.113.9");
    seen(&server, &[client]);
    // A request that is refused amid its body.
    let request = Request::post("/seen.php", "text/plain", "x").header(client.0, client.1);
    let bytes = String::from_utf8(request.bytes()).unwrap();
    let bytes = bytes.replace("Content-Length: 1", "Transfer-Encoding: chunked");
    let mut refused = server.connect();
    refused.send(bytes.replace("\r\n\r\nx", "\r\n\r\nnonsense\r\n"));
    assert_eq!(refused.response("POST").status(), 400);
    let lines = wait::for_some("two lines", || {
        let text = fs::read_to_string(&log).unwrap();
        (text.lines().count() == 2).then_some(text)
    });
    assert!(lines.lines().all(|line| line.starts_with("203.0.113.9 - - [")), "{lines}");
    let table = server.explain("/seen.php", &["-H", "X-Forwarded-For: 203.0.113.9"]).unwrap();
    assert!(table.contains("asked by 203.0.113.9\n"), "{table}");
}
