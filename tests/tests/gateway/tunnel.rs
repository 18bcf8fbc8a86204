//! WebSockets, and other protocols that a client changes to.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;

use sendoff_tests::websocket::{self, answer_to};
use sendoff_tests::{Authority, Http2, Http3, Request, Server, Site, pattern, wait};

use crate::responder::Responder;
use crate::{pass_on, serve};

const SWITCH: &str =
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\nX-A: b\r\n\r\n";

fn upgrade(protocol: &str) -> Request {
    Request::get("/").header("Connection", "Upgrade").header("Upgrade", protocol)
}

#[test]
fn bytes_pass_in_both_directions_up_to_each_end() {
    let app = Responder::start(|peer| {
        let request = peer.request()?;
        assert!(request.contains("connection: upgrade\r\nupgrade: echo\r\n"), "{request}");
        peer.say(SWITCH.to_owned() + "first")?;
        let hello = peer.bytes(5)?;
        peer.say(hello)?;
        // The client ends its direction, and still gets the bytes that the application sends
        // afterwards.
        let rest = peer.rest();
        peer.say(rest)?;
        peer.half_close()
    });
    let site = Site::new();
    let server = pass_on(&site, &app.url(), "");
    let mut client = server.connect();
    client.send(upgrade("echo").bytes());
    let head = client.head().unwrap();
    assert_eq!(
        (head.status, head.header("upgrade"), head.header("x-a")),
        (101, Some("echo"), Some("b"))
    );
    assert_eq!(head.header("connection"), Some("Upgrade"));
    assert_eq!(client.read(5), b"first");
    client.send("hello");
    assert_eq!(client.read(5), b"hello");
    // More than both ends' sockets hold: a thread sends while the other direction waits.
    let large = pattern(2, 4 << 20);
    let mut sender = client.stream().try_clone().unwrap();
    let sent = large.clone();
    let sending = std::thread::spawn(move || {
        sender.write_all(&sent).unwrap();
        sender.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    client.stream().try_clone().unwrap().read_to_end(&mut back).unwrap();
    sending.join().unwrap();
    assert!(back == large, "{} bytes", back.len());
}

/// Flows in both directions at once, in pieces of all sizes, and a client that pauses.
#[test]
fn large_flows_pass_in_both_directions_at_a_time() {
    let site = Site::new();
    let socket = site.outside("echo");
    let unix = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let over_tcp = format!("http://{}", tcp.local_addr().unwrap());
    std::thread::spawn(move || {
        let (stream, _) = tcp.accept().unwrap();
        echo(&stream, &stream);
        stream.shutdown(std::net::Shutdown::Write).unwrap();
    });
    std::thread::spawn(move || {
        let (stream, _) = unix.accept().unwrap();
        echo(&stream, &stream);
        stream.shutdown(std::net::Shutdown::Write).unwrap();
    });
    for url in [over_tcp, format!("http://unix:{}", socket.display())] {
        let server = pass_on(&site, &url, "");
        let before = sendoff_tests::processes::descriptors(server.front()).len();
        let mut client = server.connect();
        client.send(upgrade("echo").bytes());
        assert_eq!(client.head().unwrap().status, 101, "{url}");
        let sent = pattern(3, 24 << 20);
        let mut sender = client.stream().try_clone().unwrap();
        let expected = sent.clone();
        let sending = std::thread::spawn(move || {
            let (mut rest, mut len) = (&sent[..], 1);
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(len.min(rest.len()));
                sender.write_all(piece).unwrap();
                (rest, len) = (after, (len * 3 + 7) % 300_007);
            }
            sender.shutdown(std::net::Shutdown::Write).unwrap();
        });
        // Reading begins only when the sender is held back, so that the sockets and the pipes are
        // full.
        let mut reader = client.stream().try_clone().unwrap();
        let mut back = vec![0; 1];
        reader.read_exact(&mut back).unwrap();
        assert!(!sending.is_finished());
        reader.read_to_end(&mut back).unwrap();
        sending.join().unwrap();
        assert!(back == expected, "{url}: {} bytes", back.len());
        drop(client);
        let is_over = || sendoff_tests::processes::descriptors(server.front()).len() <= before + 8;
        assert!(wait::until(sendoff_tests::LIMIT, is_over));
    }
}

fn echo(mut input: impl Read, mut output: impl Write) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        input.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    output.write_all(SWITCH.as_bytes()).unwrap();
    std::io::copy(&mut input, &mut output).unwrap();
}

/// An application that speaks WebSocket as far as its first head.
pub(crate) fn websocket_echo() -> Responder {
    Responder::start(|peer| {
        let request = peer.request()?;
        let key = request.split("sec-websocket-key: ").nth(1)?.split("\r\n").next()?;
        let answer = if request.starts_with("GET /wrong ") {
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".to_owned()
        } else {
            answer_to(key)
        };
        if request.starts_with("GET /no ") {
            return peer.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno");
        }
        assert!(request.contains("connection: upgrade\r\nupgrade: websocket\r\n"), "{request}");
        peer.say(format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {answer}\r\nX-A: b\r\n\r\nfirst"
        ))?;
        let rest = peer.rest();
        peer.say(rest)?;
        peer.half_close()
    })
}

#[test]
fn websockets_pass_from_http_2() {
    let app = websocket_echo();
    let site = Site::with("a.txt", "static");
    let routes = format!(
        "compress = true\n[[site.route]]\npath = ['/', '/wrong', '/no']\nproxy = '{}'\n",
        app.url()
    );
    let server = serve(&site, &routes);
    let mut client = Http2::connect(server.addr());
    for size in [0, 5, 100_000, 4 << 20] {
        let sent = pattern(4, size);
        let got = client.tunnel("websocket", "/", sent.clone()).unwrap();
        assert_eq!((got.status(), got.header("x-a")), (200, Some("b")));
        for name in ["upgrade", "connection", "sec-websocket-accept"] {
            assert_eq!(got.header(name), None);
        }
        assert!(got.body.starts_with(b"first") && got.body[5..] == sent, "{size}");
    }
    // Without a tunnel there is no success, and no body that could be taken for its bytes.
    for (protocol, target, status) in [
        ("websocket", "/wrong", 502),
        ("websocket", "/no", 501),
        ("websocket", "/a.txt", 501),
        ("connect-udp", "/", 501),
    ] {
        let got = client.tunnel(protocol, target, b"sent".to_vec()).unwrap();
        assert_eq!(got.status(), status, "{protocol} {target}");
        assert!(!got.text().contains("static") && !got.text().starts_with("no"), "{}", got.text());
    }
    assert_eq!(client.ask(&Request::get("/a.txt")).expect(200), b"static");
    server.await_log("its Sec-WebSocket-Accept is not the key's");
}

#[test]
fn websockets_pass_from_http_3() {
    let app = websocket_echo();
    let site = Site::new();
    let keys = Authority::new().issue(&["localhost"], &site.outside("keys"), "localhost");
    let text = format!(
        "listen = ['127.0.0.1:0', '127.0.0.1:0 tls h3']\nthreads = 1\n[[pool]]\nworkers = 'ondemand'\n[[site]]\nroot = 'root'\n\
         tls = {{ certificate = '{}', key = '{}' }}\n[[site.route]]\nproxy = '{}'\n",
        keys.chain.display(),
        keys.key.display(),
        app.url()
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server = Server::try_run(&config, site.root(), 0).unwrap_or_else(|why| panic!("{why:#?}"));
    let mut client = Http3::connect(server.tls_addr().unwrap(), "localhost");
    for size in [0, 5, 4 << 20] {
        let sent = pattern(5, size);
        let body = client.tunnel("localhost", "/", &[], &sent, (0, b"")).unwrap();
        assert!(body.starts_with(b"first") && body[5..] == sent, "{size}: {}", body.len());
    }
}

#[test]
fn only_what_is_offered_and_allowed_is_passed_on() {
    let app = Responder::start(|peer| {
        loop {
            let request = peer.request()?;
            peer.say(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{request}",
                request.len()
            ))?;
        }
    });
    let site = Site::new();
    let server = pass_on(&site, &app.url(), "");
    let mut client = server.connect();
    assert!(client.ask(&upgrade("websocket")).text().contains("upgrade: websocket\r\n"));
    assert!(client.ask(&upgrade("h2c, websocket")).text().contains("upgrade: websocket\r\n"));
    assert!(!client.ask(&upgrade("h2c")).text().contains("upgrade"));
    let without = Request::get("/").header("Upgrade", "websocket");
    assert!(!client.ask(&without).text().contains("upgrade"));
    let post =
        Request::post("/", "a/b", "x").header("Connection", "upgrade").header("Upgrade", "x");
    assert!(!client.ask(&post).text().contains("upgrade"));
    let server = pass_on(&site, &app.url(), ", upgrade = false");
    assert!(!server.ask(&upgrade("websocket")).text().contains("upgrade"));
}

#[test]
fn a_silent_tunnel_ends_and_so_does_one_that_breaks() {
    let app = Responder::start(|peer| {
        peer.request()?;
        peer.say(SWITCH)?;
        if peer.number > 0 {
            return None;
        }
        peer.rest();
        None
    });
    let site = Site::with("a.txt", "static");
    let routes = format!(
        "compress = true\n[[site.route]]\npath = '/'\nproxy = {{ to = '{}', tunnel_timeout = '300ms' }}\n",
        app.url()
    );
    let server = serve(&site, &routes);
    for number in 0..2 {
        let mut client = server.connect();
        client.send(upgrade("echo").bytes());
        assert_eq!(client.head().unwrap().status, 101);
        if number > 0 {
            client.half_close();
        }
        assert!(client.is_closed());
    }
    server.await_log("tunnel_timeout");
    assert_eq!(server.page("/a.txt"), "static");
}

/// A tunnel holds little of the request that has opened it: its line in the log, its entry in the
/// status and its place in a limit.
#[test]
fn a_tunnel_is_logged_listed_and_counted_as_its_request() {
    let app = websocket_echo();
    let site = Site::new();
    let log = site.outside("access.log");
    let routes = format!(
        "access_log = '{}'\naccess_log_format = '$request|$uri|$query_string|$host|$http_user_agent|$http_x_none|$status|$body_bytes_sent|$upstream'\n\
         [[site.route]]\npath = '/'\nproxy = '{}'\nconcurrency = 1\n",
        log.display(),
        app.url()
    );
    let server = serve(&site, &routes);
    let fields = |request: Request| request.header("User-Agent", "a browser").header("Cookie", "a");
    let mut client = server.connect();
    let request = fields(websocket::handshake("/?b=%20c"));
    client.send([request.bytes(), b"sent early".to_vec()].concat());
    assert_eq!(client.head().unwrap().status, 101);
    assert_eq!(client.read(5), b"first");
    let status = server.command(&["status"]).unwrap();
    assert!(
        status.contains("request      sending ") && status.contains("GET /?b=%20c"),
        "{status}"
    );
    assert_eq!(server.get("/").status(), 429);
    client.half_close();
    assert_eq!(client.read(10), b"sent early");
    assert!(client.is_closed());
    let ended = |status: &String| !status.contains("GET /?b=%20c");
    wait::for_some("the end", || server.command(&["status"]).ok().filter(ended));
    let connect = fields(Request::new("CONNECT", "/?b=%20c"));
    let got = server.http2().tunnel_of("websocket", &connect, b"sent".to_vec(), (0, Vec::new()));
    assert_eq!(got.unwrap().body, b"firstsent");
    let lines = wait::for_some("three lines", || {
        let text = std::fs::read_to_string(&log).ok()?;
        (text.lines().count() == 3).then_some(text)
    });
    let who = app.url();
    let refused = lines.lines().next().unwrap();
    let expected = format!(
        "{refused}\n\
         GET /?b=%20c HTTP/1.1|/|b=%20c|example.test|a browser|-|101|15|{who}\n\
         CONNECT /?b=%20c HTTP/2.0|/|b=%20c|example.test|a browser|-|200|9|{who}\n"
    );
    assert_eq!(lines, expected);
}
