//! WebSockets of ASGI applications.

use rustix::process::Signal;
use sendoff_tests::websocket::{self, BINARY, CLOSE, PING, PONG, TEXT, WebSocket, handshake};
use sendoff_tests::{
    Authority, Client, Http3, LIMIT, Request, Server, Site, pattern, processes, pypi, wait,
};

use super::server::Python;

const APPLICATION: &str = "websockets_site:application";

/// One thread: if a WebSocket held it, no other request would be served.
fn python() -> Python {
    let site = Site::new();
    site.write_at(site.outside("websockets_site.py"), include_str!("websockets.py"));
    Python::start_in(site, APPLICATION, &["--workers", "1", "--threads", "1"])
}

/// Keys of a server with HTTP/1.1 in the clear, and all versions over TLS.
pub(super) fn listening(site: &Site, threads: u8) -> String {
    let keys = Authority::new().issue(&["localhost"], &site.outside("keys"), "localhost");
    format!(
        "listen = ['127.0.0.1:0', '127.0.0.1:0 tls h3']\nthreads = {threads}\n[[pool]]\nworkers = 'ondemand'\n[[site]]\n\
         root = '{}'\ntls = {{ certificate = '{}', key = '{}' }}\nhttps_redirect = false\n",
        site.root().display(),
        keys.chain.display(),
        keys.key.display(),
    )
}

/// A front of the application; `more`: keys of the site.
pub(super) fn front(python: &Python, threads: u8, more: &str) -> Server {
    let site = &python.site;
    let text = format!(
        "{}fastcgi = {{ '/' = 'unix:{}' }}\n{more}",
        listening(site, threads),
        site.outside("socket").display(),
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let mut server =
        Server::try_run(&config, site.root(), 0).unwrap_or_else(|why| panic!("{why:#?}"));
    server.expect_linked_processes(32);
    server
}

fn open(server: &Server, target: &str) -> WebSocket {
    WebSocket::open(Client::connect(server.clear_addr()), &handshake(target))
}

/// Waits for a file of the application, and removes it.
#[track_caller]
fn noted(python: &Python, name: &str) -> String {
    let path = python.site.outside(name);
    let came = wait::until(LIMIT, || path.exists());
    assert!(came, "no {name}: {}", python.log());
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    text
}

const SIZES: [usize; 6] = [0, 1, 125, 126, 65_536, 4 << 20];

/// The frames of a client that sends messages of all sizes.
fn sent() -> Vec<u8> {
    let mut bytes = Vec::new();
    // A message in three fragments, with a ping between them.
    bytes.extend(websocket::part(TEXT, "Gr\u{fc}".as_bytes()));
    bytes.extend(websocket::part(0, b""));
    bytes.extend(websocket::frame(PING, b"are you there?"));
    bytes.extend(websocket::part(0x80, "\u{df}e".as_bytes()));
    for size in SIZES {
        bytes.extend(websocket::frame(BINARY, &pattern(6, size)));
    }
    bytes
}

#[track_caller]
fn assert_echoed(bytes: &[u8]) {
    let mut frames = websocket::frames(bytes);
    let pong = frames.iter().position(|(opcode, _)| *opcode == PONG).expect("a pong");
    assert_eq!(frames.remove(pong).1, b"are you there?");
    let sizes: Vec<_> = frames.iter().map(|(opcode, payload)| (*opcode, payload.len())).collect();
    assert_eq!(frames.len(), SIZES.len() + 2, "{sizes:?}");
    assert_eq!(frames[0], (TEXT, "Gr\u{fc}\u{df}e".as_bytes().to_vec()));
    for (size, (opcode, payload)) in SIZES.iter().zip(&frames[1..]) {
        assert!(*opcode == BINARY && *payload == pattern(6, *size), "{sizes:?}");
    }
    assert_eq!(frames[SIZES.len() + 1], (CLOSE, 4321_u16.to_be_bytes().to_vec()));
}

#[test]
fn messages_come_back_over_every_protocol() {
    let python = python();
    let server = front(&python, 1, "");
    let tls = server.tls_addr().unwrap();
    // The first request to the application is a WebSocket.
    for client in [Client::connect(server.clear_addr()), Client::connect_tls(tls)] {
        let mut socket = WebSocket::open(client, &handshake("/echo"));
        for size in SIZES {
            socket.send(BINARY, &pattern(6, size));
            let (opcode, payload) = socket.receive();
            assert!(opcode == BINARY && payload == pattern(6, size), "{size}");
        }
        socket.client().send(websocket::close(4321));
        assert_eq!(socket.closed(), 4321);
        assert!(socket.client().is_closed());
        assert_eq!(noted(&python, "ended"), "4321 ");
    }
    let connect = Request::new("CONNECT", "/echo").header("Sec-WebSocket-Version", "13");
    // The last message has come back then.
    let (awaited, last) = (SIZES.iter().sum(), websocket::close(4321));
    let turns = (awaited, last.clone());
    let got = server.http2().tunnel_of("websocket", &connect, sent(), turns).unwrap();
    assert_eq!((got.status(), got.header("Sec-WebSocket-Accept")), (200, None));
    assert_echoed(&got.body);
    assert_eq!(noted(&python, "ended"), "4321 ");
    let mut client = Http3::connect(tls, "localhost");
    let version = [("sec-websocket-version", "13")];
    assert_echoed(
        &client.tunnel("localhost", "/echo", &version, &sent(), (awaited, &last)).unwrap(),
    );
    assert_eq!(noted(&python, "ended"), "4321 ");
    assert!(!python.log().contains("Traceback"), "{}", python.log());
}

#[test]
fn an_application_accepts_or_refuses() {
    let python = python();
    let server = front(&python, 1, "");
    let request = handshake("/scope?a=%20").header("Sec-WebSocket-Protocol", "chat, superchat");
    let mut socket = WebSocket::open(Client::connect(server.clear_addr()), &request);
    assert_eq!(socket.subprotocol.as_deref(), Some("superchat"));
    let scope = "{'type': 'websocket', 'scheme': 'ws', 'path': '/scope', 'query_string': b'a=%20', \
                 'subprotocols': ['chat', 'superchat']}";
    assert_eq!(socket.receive(), (TEXT, scope.as_bytes().to_vec()));
    assert_eq!(socket.closed(), 3001);
    let ask = |request: &Request| Client::connect(server.clear_addr()).ask(request);
    let forbidden = ask(&handshake("/forbidden"));
    assert_eq!((forbidden.status(), forbidden.text().as_str()), (403, "Forbidden\n"));
    let denied = ask(&handshake("/denied"));
    assert_eq!((denied.status(), denied.header("WWW-Authenticate")), (401, Some("Basic")));
    assert_eq!(denied.text(), "first second");
    assert_eq!(ask(&handshake("/fails_first")).status(), 500);
    python.await_log("LookupError: before the handshake");
    let keyless =
        Request::get("/echo").header("Connection", "upgrade").header("Upgrade", "websocket");
    assert_eq!(ask(&keyless.clone().header("Sec-WebSocket-Version", "13")).status(), 400);
    assert_eq!(ask(&keyless.header("Sec-WebSocket-Version", "8")).status(), 400);
    // The same request without an offer is one like others.
    assert!(server.get("/echo").text().starts_with("echo "));
    let connect = Request::new("CONNECT", "/forbidden").header("Sec-WebSocket-Version", "13");
    let refused = server.http2().tunnel_of("websocket", &connect, Vec::new(), (0, Vec::new()));
    let refused = refused.unwrap();
    assert_eq!(refused.status(), 403);
}

#[test]
fn every_end_is_noticed() {
    let python = python();
    let server = front(&python, 1, "");
    let worker = python.workers()[0];
    server.get("/hello");
    let before = processes::descriptors(worker).len();
    // An open WebSocket holds no thread.
    let mut socket = open(&server, "/echo");
    assert_eq!(server.get("/hello").status(), 200);
    socket.send(TEXT, b"a");
    assert_eq!(socket.receive(), (TEXT, b"a".to_vec()));
    drop(socket);
    assert_eq!(noted(&python, "ended"), "1006 ");
    // The client ends its direction without a close frame.
    let mut socket = open(&server, "/echo");
    socket.client().half_close();
    assert!(socket.client().is_closed());
    assert_eq!(noted(&python, "ended"), "1006 ");
    // Text that is no text, a frame that is no frame.
    let mut socket = open(&server, "/echo");
    socket.send(TEXT, b"\xff");
    assert_eq!(socket.closed(), 1007);
    assert_eq!(noted(&python, "ended"), "1007 ");
    let mut socket = open(&server, "/echo");
    socket.client().send([0xf3, 0x80, 0, 0, 0, 0]);
    assert_eq!(socket.closed(), 1002);
    assert_eq!(noted(&python, "ended"), "1002 ");
    assert_eq!(open(&server, "/leaves").closed(), 1000);
    assert_eq!(open(&server, "/fails").closed(), 1011);
    python.await_log("LookupError: behind the handshake");
    let is_over = || processes::descriptors(worker).len() <= before;
    assert!(wait::until(LIMIT, is_over), "{:?}", processes::descriptors(worker));
    let front = processes::descriptors(server.front()).len();
    // The process dies: the client is told, and the next process serves.
    let mut socket = open(&server, "/dies");
    assert_eq!(socket.receive(), (TEXT, b"last".to_vec()));
    socket.send(TEXT, b"die");
    assert!(socket.client().is_closed());
    assert_eq!(server.get("/hello").status(), 200);
    let is_over = || processes::descriptors(server.front()).len() <= front + 4;
    assert!(wait::until(LIMIT, is_over), "{:?}", processes::descriptors(server.front()));
}

/// A side that takes nothing holds up the other one, not memory.
#[test]
fn neither_side_is_buffered_without_end() {
    const MB: usize = 1 << 20;
    let python = python();
    let server = front(&python, 1, "");
    let client = Client::connect_narrow(server.clear_addr(), 8192);
    let socket = WebSocket::open(client, &handshake("/pushes"));
    // The number of messages of 100 kB stands still.
    let pushed = || noted(&python, "pushed");
    let mut last = pushed();
    let stands = wait::until(LIMIT, || {
        let path = python.site.outside("pushed");
        let still = !wait::until(std::time::Duration::from_millis(500), || path.exists());
        if !still {
            last = pushed();
        }
        still
    });
    assert!(stands && last.parse::<usize>().unwrap() < 100, "{last}");
    drop(socket);
    // A busy machine may have let one more pass meanwhile.
    assert!(noted(&python, "push ended").parse::<usize>().unwrap() < 100);
    let worker = python.workers()[0];
    let memory = processes::private_memory(worker);
    let mut socket = open(&server, "/deaf");
    let mut stream = socket.client().stream().try_clone().unwrap();
    stream.set_nonblocking(true).unwrap();
    let frame = websocket::frame(BINARY, &pattern(1, MB));
    let mut sent = 0;
    let holds = wait::until(LIMIT, || {
        let (mut at, before) = (sent % frame.len(), sent);
        while let Ok(n) = std::io::Write::write(&mut stream, &frame[at..]) {
            sent += n;
            at = sent % frame.len();
        }
        sent == before
    });
    assert!(holds && sent < 40 * MB, "{sent}");
    assert!(processes::private_memory(worker) < memory + 60 * MB as u64);
    python.site.write_at(python.site.outside("go"), "");
}

/// A process that ends tells clients to come back (RFC 6455 §7.4.1).
#[test]
fn a_stop_and_a_reload_close_with_1012() {
    let python = python();
    let server = front(&python, 1, "");
    for signal in [Signal::HUP, Signal::TERM] {
        let mut socket = open(&server, "/echo");
        python.signal(signal);
        assert_eq!(socket.closed(), 1012, "{}", python.log());
        assert_eq!(noted(&python, "ended"), "1012 ");
        socket.client().send(websocket::close(1012));
        assert!(socket.client().is_closed());
    }
    let (status, log) = python.end();
    assert!(status.success(), "{log}");
}

/// `tunnel_timeout` limits silence. A reload cuts no WebSocket.
#[test]
fn the_front_ends_silent_websockets_and_waits_for_others_at_a_reload() {
    let python = python();
    let server = front(&python, 1, "[[site.route]]\npath = '/deaf'\ntunnel_timeout = '300ms'\n");
    let mut silent = open(&server, "/deaf");
    assert!(silent.client().is_closed());
    server.await_log("tunnel_timeout");
    let mut socket = open(&server, "/echo");
    server.command(&["reload"]).unwrap();
    for text in [&b"one"[..], b"two"] {
        socket.send(TEXT, text);
        assert_eq!(socket.receive(), (TEXT, text.to_vec()));
    }
    let mut next = open(&server, "/echo");
    next.send(TEXT, b"new");
    assert_eq!(next.receive(), (TEXT, b"new".to_vec()));
    for socket in [&mut socket, &mut next] {
        socket.client().send(websocket::close(1000));
        assert_eq!(socket.closed(), 1000);
    }
}

/// One thread and two browsers, over the versions of HTTP that a browser may choose.
#[test]
#[ignore = "heavy: FastAPI, which is fetched"]
fn a_chat_on_fastapi_works() {
    let site = Site::new();
    site.write_at(site.outside("chat_site.py"), include_bytes!("chat_site.py"));
    let options = ["--workers", "1", "--threads", "1"];
    let python =
        Python::start_beside(&pypi::packages("starlette"), site, "chat_site:application", &options);
    let server = front(&python, 1, "");
    let mut ann = open(&server, "/chat/ann");
    ann.send(TEXT, b"first");
    assert_eq!(ann.receive(), (TEXT, b"ann: first".to_vec()));
    let bob = Client::connect_tls(server.tls_addr().unwrap());
    let mut bob = WebSocket::open(bob, &handshake("/chat/bob"));
    bob.send(TEXT, b"second");
    for socket in [&mut ann, &mut bob] {
        assert_eq!(socket.receive(), (TEXT, b"bob: second".to_vec()));
    }
    assert_eq!(server.page("/hello"), "2");
    drop(bob);
    assert!(wait::until(LIMIT, || server.page("/hello") == "1"));
    ann.client().send(websocket::close(1001));
    assert_eq!(ann.closed(), 1001);
    let mut echo = open(&server, "/echo");
    for size in SIZES {
        echo.send(BINARY, &pattern(6, size));
        let (opcode, payload) = echo.receive();
        assert!(opcode == BINARY && payload == pattern(6, size), "{size}");
    }
    let denied = Client::connect(server.clear_addr()).ask(&handshake("/nowhere"));
    assert_eq!(denied.status(), 403);
    assert!(!python.log().contains("Traceback"), "{}", python.log());
}
