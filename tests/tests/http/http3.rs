//! HTTP/3 (RFC 9114) by an independent client: the same responses as over HTTP/1 in TLS, and
//! connections that end early, misbehave or live across a reload.

use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use sendoff_tests::http3::{data_frames, headers_frame};
use sendoff_tests::{
    Authority, Broken, Client, Http3, LIMIT, Request, Response, Server, Site, pattern, processes,
    pypi, sendoff, wait,
};

const MB: usize = 1 << 20;

/// A script that shows its variables, except those that must differ.
const SEEN: &str = r"<?php
$seen = $_SERVER;
foreach (['SERVER_PROTOCOL', 'SSL_CIPHER', 'SSL_PROTOCOL', 'SSL_TLS_SNI', 'REMOTE_PORT', 'REQUEST_TIME', 'REQUEST_TIME_FLOAT'] as $name) unset($seen[$name]);
ksort($seen);
echo json_encode($seen), sha1(file_get_contents('php://input'));
";

fn site() -> Site {
    let site = Site::with("seen.php", SEEN);
    site.write(
        "quick.php",
        "<?php echo 'quick ', $_SERVER['SERVER_PROTOCOL'], ' ', $_SERVER['HTTPS'];",
    );
    site.write("status.php", "<?php http_response_code((int) $_GET['s']); echo 'body';");
    site.write("file.php", "<?php readfile('large');");
    site.write(
        "made.php",
        "<?php for ($i = 0; $i < 20000; $i++) echo str_repeat(chr(65 + $i % 26), 100);",
    );
    site.write(
        "short.php",
        "<?php header('Content-Length: 100000'); echo str_repeat('x', 60000); flush(); exit;",
    );
    site.write(
        "fields.php",
        "<?php header('Connection: close'); header('Keep-Alive: 1'); header('X-UPPER: a'); header('X-Split: b'); echo 'ok';",
    );
    site.write("large", pattern(1, 20 * MB));
    site.write("small.txt", "small");
    site
}

/// A server with the certificate of `localhost`, which speaks HTTP/3 beside TLS.
fn serve(site: &Site) -> Server {
    serve_with(site, &[])
}

/// As [`serve`], with further options.
fn serve_with(site: &Site, further: &[&str]) -> Server {
    let certificate = Authority::new().issue(&["localhost"], &site.outside("keys"), "localhost");
    let (chain, key) = (certificate.chain.to_str().unwrap(), certificate.key.to_str().unwrap());
    let options = ["--tls-listen", "127.0.0.1:0 h3", "--tls-cert", chain, "--tls-key", key];
    Server::start(site.root(), &[&options, further].concat())
}

fn connect(server: &Server) -> Http3 {
    Http3::connect(server.tls_addr().unwrap(), "localhost")
}

/// The parts of a response that must be equal in both versions.
fn facts(response: &Response) -> (u16, Vec<(String, String)>, &[u8]) {
    let of_the_connection = ["alt-svc", "date", "connection", "transfer-encoding", "keep-alive"];
    let fields =
        response.head.headers.iter().map(|(name, value)| (name.to_lowercase(), value.clone()));
    let mut fields: Vec<_> =
        fields.filter(|(name, _)| !of_the_connection.contains(&&name[..])).collect();
    fields.sort();
    (response.status(), fields, &response.body)
}

#[test]
fn requests_are_answered_as_in_http_1() {
    let site = site();
    let server = serve(&site);
    let mut http3 = connect(&server);
    let mut http1 = Client::connect_tls(server.tls_addr().unwrap());
    let body = pattern(2, MB);
    for request in [
        Request::get("/seen.php?a=b%20c&d"),
        Request::get("/seen.php").header("Cookie", "a=b; c=d").header("X-Y", "z"),
        Request::post("/seen.php", "text/plain", b"some bytes".to_vec()),
        Request::post("/seen.php", "application/octet-stream", body),
        Request::new("HEAD", "/file.php"),
        Request::get("/file.php"),
        Request::get("/made.php"),
        Request::get("/fields.php"),
        Request::get("/small.txt"),
        Request::new("HEAD", "/small.txt"),
        Request::get("/large"),
        Request::get("/large").header("Range", "bytes=100-199"),
        Request::get("/large").header("Range", "bytes=99999999-"),
        Request::get("/nowhere"),
        Request::get("/status.php?s=204"),
        Request::get("/status.php?s=304"),
        Request::get("/status.php?s=503"),
    ] {
        let request = request.header("Host", "localhost");
        http1.send(request.bytes());
        let expected = http1.response(&request.method);
        let response = http3.ask(&request);
        assert_eq!(response.head.version, "HTTP/3");
        let (expected, response) = (facts(&expected), facts(&response));
        assert_eq!((&expected.0, &expected.1), (&response.0, &response.1), "{request:?}");
        assert!(expected.2 == response.2, "other bytes: {request:?}");
    }
    let quick = http3.ask(&Request::get("/quick.php").header("Host", "localhost"));
    assert_eq!(quick.expect(200), b"quick HTTP/3.0 on");
}

#[test]
fn clients_over_tls_are_told() {
    let site = site();
    let server = serve(&site);
    let addr = server.tls_addr().unwrap();
    let mut client = Client::connect_tls(addr);
    client.send(Request::get("/small.txt").bytes());
    let expected = format!("h3=\":{}\"; ma=86400", addr.port());
    assert_eq!(client.response("GET").header("Alt-Svc"), Some(&*expected));
    assert_eq!(server.get("/small.txt").header("Alt-Svc"), None);
    let over_http3 = connect(&server).ask(&Request::get("/small.txt"));
    assert_eq!(over_http3.header("Alt-Svc"), None);
}

/// The port of HTTP/3 is ours; a client behind a proxy has connected to the proxy's.
#[test]
fn clients_of_a_proxy_that_speaks_tls_are_not_told() {
    let site = site();
    let server = serve_with(&site, &["--trust-proxy", "127.0.0.1"]);
    let request = Request::get("/small.txt").header("X-Forwarded-Proto", "https");
    for page in ["/small.txt", "/quick.php"] {
        let request = Request::get(page).header("X-Forwarded-Proto", "https");
        let mut in_the_clear = Client::connect(server.clear_addr());
        let response = in_the_clear.ask(&request);
        assert_eq!((response.status(), response.header("Alt-Svc")), (200, None), "{page}");
    }
    let mut over_tls = Client::connect_tls(server.tls_addr().unwrap());
    over_tls.send(request.bytes());
    assert!(over_tls.response("GET").header("Alt-Svc").is_some());
}

#[test]
fn many_requests_share_a_connection() {
    let site = site();
    let server = serve(&site);
    let mut client = connect(&server);
    let pages = ["/file.php", "/made.php", "/large", "/small.txt", "/quick.php"];
    let requests: Vec<_> = (0..100).map(|number| Request::get(pages[number % 5])).collect();
    let large = pattern(1, 20 * MB);
    for (number, response) in client.ask_all(&requests[..20]).into_iter().enumerate() {
        match number % 5 {
            0 | 2 => assert!(response.expect(200) == large, "{number}"),
            1 => assert_eq!(response.expect(200).len(), 2_000_000),
            3 => assert_eq!(response.expect(200), b"small"),
            _ => assert!(response.expect(200).starts_with(b"quick")),
        }
    }
    let small: Vec<_> = (0..1000).map(|_| Request::get("/small.txt")).collect();
    // 128 of them may be open at a time.
    for some in small.chunks(100) {
        assert!(client.ask_all(some).iter().all(|response| response.body == b"small"));
    }
}

#[test]
fn a_response_that_is_too_short_is_cut() {
    let site = site();
    let server = serve(&site);
    let mut client = connect(&server);
    match client.try_ask(&Request::get("/short.php")) {
        Err(Broken::Cut(part)) => {
            assert!(part.status() == 200 && (1..=60_000).contains(&part.body.len()));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(client.ask(&Request::get("/small.txt")).expect(200), b"small");
    server.await_log("a response was cut short");
}

#[test]
fn clients_that_give_requests_up_cost_nothing_else() {
    let site = site();
    let server = serve(&site);
    let mut client = connect(&server);
    for page in ["/large", "/file.php", "/made.php"] {
        for bytes in [1, 70_000, MB] {
            client.leave_after(&Request::get(page), bytes);
        }
    }
    assert_eq!(client.ask(&Request::get("/small.txt")).expect(200), b"small");
    drop(client);
    let held = || processes::descriptors(server.front()).len();
    let before = held();
    for _ in 0..20 {
        connect(&server).leave_after(&Request::get("/large"), 100_000);
    }
    assert!(wait::until(LIMIT, || held() <= before + 2), "descriptors stay open");
    assert_eq!(server.get("/small.txt").expect(200), b"small");
}

#[test]
fn the_host_chooses_certificate_and_site_and_a_reload_keeps_connections() {
    let site = site();
    let authority = Authority::new();
    let folder = site.outside("keys");
    let names = ["a.test", "b.test"];
    let of = |name: &str| {
        let certificate = authority.issue(&[name], &folder, name);
        let (chain, key) = (certificate.chain.display(), certificate.key.display());
        format!(
            "[[site]]\nroot = 'root'\nhosts = '{name}'\nhttps_redirect = false\ntls = {{ certificate = '{chain}', key = '{key}' }}\n[[site.route]]\nresponse_headers = {{ X-Site = '{name}' }}\n"
        )
    };
    let sites: String = names.iter().map(|name| of(name)).collect();
    let write = |extra: &str| {
        let text = format!(
            "listen = ['127.0.0.1:0', '127.0.0.1:0 tls h3']\nthreads = 2\n[[pool]]\nworkers = 2\n{sites}{extra}"
        );
        site.write_at(site.outside("sendoff.toml"), text)
    };
    let server = Server::try_run(&write(""), site.root(), 2).unwrap();
    let addr = server.tls_addr().unwrap();
    let mut clients: Vec<_> = names.iter().map(|name| Http3::connect(addr, name)).collect();
    assert_ne!(clients[0].certificate(), clients[1].certificate());
    let ask = |client: &mut Http3, name: &str| {
        let response = client.ask(&Request::get("/small.txt").header("Host", name));
        (response.status(), response.header("X-Site").map(str::to_owned))
    };
    for (client, name) in clients.iter_mut().zip(names) {
        assert_eq!(ask(client, name), (200, Some(name.to_owned())));
    }
    // One connection, another site of the same address.
    assert_eq!(ask(&mut clients[0], "b.test"), (200, Some("b.test".to_owned())));
    let old = clients[0].certificate();
    authority.issue(&["a.test"], &folder, "a.test");
    server.command(&["reload"]).unwrap();
    assert_eq!(ask(&mut clients[0], "a.test"), (200, Some("a.test".to_owned())));
    assert_ne!(Http3::connect(addr, "a.test").certificate(), old);
}

#[test]
fn the_stop_lets_responses_end() {
    let site = site();
    site.write("slow.php", "<?php touch('begun'); echo 'begin'; flush(); sleep(2); echo ' end';");
    let server = serve(&site);
    let mut client = connect(&server);
    assert_eq!(client.ask(&Request::get("/small.txt")).expect(200), b"small");
    let asked = std::thread::spawn(move || {
        let response = client.ask(&Request::get("/slow.php"));
        (response, client.ended())
    });
    assert!(wait::until(LIMIT, || site.path("begun").exists()), "the request has not come");
    server.signal(Signal::TERM);
    let (status, _) = server.await_end();
    assert!(status.success());
    let (response, ended) = asked.join().unwrap();
    assert_eq!(response.expect(200), b"begin end");
    assert!(ended.contains("closed by peer"), "{ended}");
}

/// The window of the stream has no room for the last piece before the pause.
#[test]
fn what_a_script_flushes_arrives_before_the_script_goes_on() {
    let site = site();
    let pipe = site.fifo("pipe");
    site.write("flushed", pattern(1, 100_000));
    site.write(
        "flush.php",
        "<?php readfile('flushed'); flush(); file_get_contents('pipe'); echo 'end';",
    );
    let server = serve(&site);
    let mut client = Http3::connect_narrow(server.tls_addr().unwrap(), "localhost", 16 * 1024);
    for _ in 0..3 {
        let asked =
            client.try_ask_with_pause(&Request::get("/flush.php"), 100_000, || pipe.release());
        let body = asked.unwrap().expect(200).to_vec();
        assert!(body == [pattern(1, 100_000), b"end".to_vec()].concat());
    }
}

/// While a client takes nothing, its response has filled all windows, and GOAWAY has to wait.
#[test]
fn large_responses_outlive_the_stop_and_the_upgrade() {
    let body = pattern(1, 20 * MB);
    for (target, command) in
        [("/large", "stop"), ("/large", "upgrade"), ("/file.php", "stop"), ("/file.php", "upgrade")]
    {
        let site = site();
        let server = serve(&site);
        let addr = server.addr();
        let mut new = None;
        let mut client = connect(&server);
        let asked = client.try_ask_with_pause(&Request::get(target), MB, || {
            if command == "upgrade" {
                let said = server.command(&["upgrade"]).unwrap();
                let words = said.strip_prefix("upgraded: process ").unwrap();
                new = Some(words.split(' ').next().unwrap().parse().unwrap());
            } else {
                server.signal(Signal::TERM);
                let is_told = || std::net::TcpStream::connect(addr).is_err();
                assert!(wait::until(LIMIT, is_told), "it still listens");
            }
        });
        let response = asked.unwrap_or_else(|broken| panic!("{command} {target}: {broken:?}"));
        assert!(response.expect(200) == body, "{command} {target}: other bytes");
        drop(client);
        if let Some(new) = new {
            processes::signal(new, Signal::TERM);
            assert!(wait::until(LIMIT, || !processes::runs(new)));
        }
        let (status, log) = server.await_end();
        assert!(status.success() && !log.contains("panicked"), "{log}");
    }
}

/// Only the front's own processes pass packets on to an event loop. A message of another user has
/// no effect: it would tell an event loop that another process reads its socket.
#[test]
#[cfg_attr(not(root), ignore = "needs root: the front has a user of its own")]
fn messages_of_other_users_take_no_connection_away_as_root() {
    let site = site();
    let server = serve(&site);
    let (addr, front) = (server.addr(), server.front());
    // One packet, after 38 bytes about its way.
    let forged = [&[0; 37][..], &[1], b"x"].concat();
    let sender = UnixDatagram::unbound().unwrap();
    let asked = connect(&server).try_ask_with_pause(&Request::get("/large"), MB, || {
        server.signal(Signal::TERM);
        let is_told = || std::net::TcpStream::connect(addr).is_err();
        assert!(wait::until(LIMIT, is_told), "it still listens");
        let inboxes = inboxes(front);
        assert!(!inboxes.is_empty(), "the front has no inbox");
        for inbox in inboxes {
            sender.send_to_addr(&forged, &inbox).unwrap();
        }
    });
    assert!(asked.unwrap().expect(200) == pattern(1, 20 * MB));
    assert!(server.await_end().0.success());
}

/// The sockets of a front for packets that another event loop has received.
fn inboxes(front: u32) -> Vec<SocketAddr> {
    const NAME: &[u8] = b"@sendoff-quic-";
    let listed = std::fs::read("/proc/net/unix").unwrap();
    let own = processes::descriptors(front);
    let places = listed.windows(NAME.len()).enumerate().filter(|(_, bytes)| *bytes == NAME);
    let inbox = |at: usize| {
        let inode = listed[..at].rsplit(|byte| *byte == b' ').find(|word| !word.is_empty())?;
        let socket = format!("socket:[{}]", String::from_utf8_lossy(inode));
        let id = &listed[at + NAME.len()..][..5];
        // A NUL is listed as another character.
        let names = [id.to_vec(), id.iter().map(|b| if *b == b'@' { 0 } else { *b }).collect()];
        let names = names.map(|id| [&NAME[1..], &id].concat());
        let mut found = names.iter().map(|name| SocketAddr::from_abstract_name(name).unwrap());
        let probe = UnixDatagram::unbound().unwrap();
        own.contains(&socket).then(|| found.find(|name| probe.connect_addr(name).is_ok()))?
    };
    places.filter_map(|(at, _)| inbox(at)).collect()
}

#[test]
fn a_stop_tells_clients_whose_responses_it_cuts() {
    let site = site();
    site.write(
        "endless.php",
        "<?php echo 'begin'; ob_flush(); flush(); touch('begun'); sleep(60);",
    );
    let server = serve_with(&site, &["--shutdown-timeout", "1500ms"]);
    let mut client = connect(&server);
    let asked = std::thread::spawn(move || {
        let response = client.try_ask(&Request::get("/endless.php"));
        (response, client.ended())
    });
    assert!(wait::until(LIMIT, || site.path("begun").exists()), "the request has not come");
    server.signal(Signal::TERM);
    let (status, _) = server.await_end();
    assert!(status.success());
    let (response, ended) = asked.join().unwrap();
    assert!(matches!(response, Err(Broken::Cut(_))), "{response:?}");
    assert!(ended.contains("258"), "{ended}");
}

/// The kernel gives packets from another port to another event loop.
#[test]
fn connections_live_on_when_the_clients_address_changes() {
    let site = site();
    let server = serve_with(&site, &["--threads", "4"]);
    let mut client = connect(&server);
    for _ in 0..12 {
        assert_eq!(client.ask(&Request::get("/small.txt")).expect(200), b"small");
        client.rebind();
        assert_eq!(client.ask(&Request::get("/file.php")).expect(200), pattern(1, 20 * MB));
    }
}

/// QUIC asks for no certificates, so such a site is not served over HTTP/3, not even to a client
/// that names it.
#[test]
fn a_site_that_wants_certificates_leads_clients_to_tcp() {
    let site = site();
    let (authority, folder) = (Authority::new(), site.outside("keys"));
    let issuers = site.write_at(folder.join("issuers.pem"), authority.pem());
    let of = |name: &str, more: &str| {
        let certificate = authority.issue(&[name], &folder, name);
        let (chain, key) = (certificate.chain.display(), certificate.key.display());
        format!(
            "[[site]]\nroot = 'root'\nhosts = '{name}'\ntls = {{ certificate = '{chain}', key = '{key}'{more} }}\n"
        )
    };
    let required = format!(", client_issuers = '{}'", issuers.display());
    let optional = format!("{required}, client_certificates = 'optional'");
    let config = format!(
        "listen = ['127.0.0.1:0', '127.0.0.1:0 tls h3']\nthreads = 1\n[[pool]]\nworkers = 2\n{}{}{}",
        of("required.test", &required),
        of("optional.test", &optional),
        of("open.test", "")
    );
    let config = site.write_at(site.outside("sendoff.toml"), config);
    let server = Server::try_run(&config, site.root(), 2).unwrap();
    for (connected, host, status) in [
        ("required.test", "required.test", 421),
        ("open.test", "required.test", 421),
        ("unknown.test", "required.test", 421),
        ("optional.test", "optional.test", 421),
        ("open.test", "open.test", 200),
        ("required.test", "open.test", 200),
    ] {
        let mut client = Http3::connect(server.tls_addr().unwrap(), connected);
        let response = client.ask(&Request::get("/small.txt").header("Host", host));
        assert_eq!(response.status(), status, "{connected} {host}");
    }
}

/// Both processes read from the same socket for as long as the old one has requests at work.
#[test]
fn an_upgrade_loses_no_response() {
    let site = site();
    site.write("slow.php", "<?php for ($i = 0; $i < 30; $i++) { echo str_repeat('x', 20000); flush(); if ($i == 2) touch('begun'); usleep(50000); }");
    let server = serve(&site);
    let addr = server.tls_addr().unwrap();
    let mut client = connect(&server);
    let asked = std::thread::spawn(move || client.ask(&Request::get("/slow.php")));
    assert!(wait::until(LIMIT, || site.path("begun").exists()), "the request has not come");
    let said = server.command(&["upgrade"]).unwrap();
    let words = said.strip_prefix("upgraded: process ").unwrap_or_else(|| panic!("{said}"));
    let new = words.split(' ').next().unwrap().parse().unwrap();
    for _ in 0..5 {
        let response = Http3::connect(addr, "localhost").ask(&Request::get("/small.txt"));
        assert_eq!(response.expect(200), b"small");
    }
    assert_eq!(asked.join().unwrap().expect(200).len(), 600_000);
    processes::signal(new, Signal::TERM);
    assert!(wait::until(LIMIT, || !processes::runs(new)));
    let (status, log) = server.await_end();
    assert!(status.success() && !log.contains("panicked"), "{log}");
}

#[test]
fn mistakes_end_the_connection_with_their_code() {
    let site = site();
    let server = serve(&site);
    // A type of stream, or none for requests; the bytes; the code in the client's words.
    for (is_request, bytes, code) in [
        // DATA before HEADERS.
        (true, &[0, 1, b'x'][..], "261"),
        // SETTINGS on a request stream.
        (true, &[4, 0], "261"),
        // A reference to the dynamic table.
        (true, &[1, 3, 0, 0, 0x80], "512"),
        // A second control stream.
        (false, &[0], "259"),
        // A push stream from a client.
        (false, &[1], "259"),
        // A second stream for instructions to the decoder.
        (false, &[2, 0x3f, 0xff, 0x01], "259"),
    ] {
        let mut client = connect(&server);
        client.send_raw(is_request, bytes);
        let ended = client.ended();
        assert!(ended.contains(code), "{bytes:?}: {ended}, not {code}");
    }
    assert_eq!(connect(&server).ask(&Request::get("/small.txt")).expect(200), b"small");
}

/// Trailers hold no pseudo-header fields (RFC 9114 §4.3).
#[test]
fn malformed_trailers_are_refused() {
    let site = site();
    let server = serve(&site);
    let mut client = connect(&server);
    let trailers = |name: &'static str| vec![(name, "x")];
    for name in ["x-checksum", "grpc-status"] {
        let response = client.try_ask_with_trailers("/seen.php", b"body", &trailers(name)).unwrap();
        response.expect(200);
    }
    for name in ["connection", "transfer-encoding"] {
        let refused = client.try_ask_with_trailers("/seen.php", b"body", &trailers(name));
        assert!(refused.is_err(), "{name}: {refused:?}");
    }
    assert_eq!(client.ask(&Request::get("/small.txt")).expect(200), b"small");
}

#[test]
fn hostile_packets_change_nothing() {
    let site = site();
    let server = serve(&site);
    let mut client = connect(&server);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = server.tls_addr().unwrap();
    for number in 0..2000_usize {
        let mut packet = pattern(number as u64, number % 1400 + 1);
        packet[0] |= if number % 2 == 0 { 0xc0 } else { 0x40 };
        if number % 4 == 0 && packet.len() > 6 {
            packet[1..5].copy_from_slice(&[0, 0, 0, 1]);
        }
        socket.send_to(&packet, addr).unwrap();
        if number % 100 == 0 {
            assert_eq!(client.ask(&Request::get("/small.txt")).expect(200), b"small");
        }
    }
}

/// A client that shares no code with the server's library.
#[test]
#[ignore = "heavy: fetches aioquic"]
fn aioquic_gets_the_same_bytes() {
    let packages = pypi::packages("aioquic");
    let site = site();
    let server = serve(&site);
    let port = server.tls_addr().unwrap().port().to_string();
    let paths = ["/large", "/file.php", "/made.php", "/small.txt", "/status.php?s=503"];
    let mut expected = String::new();
    for path in paths {
        let response = server.get(path);
        let digest = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut digest = digest.unwrap();
        digest.stdin.take().unwrap().write_all(&response.body).unwrap();
        let digest = String::from_utf8(digest.wait_with_output().unwrap().stdout).unwrap();
        let digest = digest.split_whitespace().next().unwrap();
        expected += &format!("{} {} {digest}\n", response.status(), response.body.len());
    }
    for way in ["plain", "keys", "rebind"] {
        let arguments = [&[&*port, way], &paths[..]].concat();
        let said = pypi::run(&packages, "tests/tests/http/aioquic_client.py", &arguments);
        assert_eq!(said, expected, "{way}");
    }
}

#[test]
fn the_word_is_checked() {
    let site = site();
    for (listen, says) in [
        ("'127.0.0.1:0 h3'", "h3 needs tls"),
        ("'127.0.0.1:0 tls h3 proxy_protocol'", "h3 and proxy_protocol exclude each other"),
        ("'unix:/run/x.sock h3'", "\"h3\" is not understood"),
        ("'127.0.0.1:0 tls quic'", "it is called h3 here"),
    ] {
        let text = format!(
            "listen = [{listen}]\n[[pool]]\nworkers = 2\n[[site]]\nroot = 'root'\ntls = 'self-signed'\n"
        );
        let config = site.write_at(site.outside("wrong.toml"), text);
        let said = sendoff(site.root(), &["check", config.to_str().unwrap()]).unwrap_err();
        assert!(said.contains(says), "{listen}: {said}");
    }
}

/// A stream that the server does not end counts among the 128 that a client may have open.
#[test]
fn cancelled_requests_make_room_for_others() {
    let site = Site::with("slow.php", "<?php usleep(20000); echo 'slow';");
    site.write("small.txt", "small");
    let server = serve(&site);
    let mut client = connect(&server);
    let request = |method, path| {
        headers_frame(&[
            (":method", method),
            (":scheme", "https"),
            (":path", path),
            (":authority", "localhost"),
        ])
    };
    let (get, slow) = (request("GET", "/small.txt"), request("GET", "/slow.php"));
    let post = [request("POST", "/slow.php"), data_frames(b"a part of a body")].concat();
    for number in 0..200 {
        match number % 5 {
            0 => client.cancel(&get, true),
            1 => client.cancel(&slow, true),
            2 => client.cancel(&get[..3], false),
            3 => client.cancel(&post, false),
            _ => client.cancel(&slow, false),
        }
        // A client that completes no request would be told to go.
        assert_eq!(client.ask(&Request::get("/small.txt")).body, b"small", "{number}");
    }
}
