//! Rack applications that take the connection of their client: WebSockets, by full and partial
//! hijacking.

use std::io::Write;
use std::net::Shutdown;

use sendoff_tests::websocket::{self, BINARY, TEXT, WebSocket, handshake};
use sendoff_tests::{
    Authority, Broken, Client, Http3, LIMIT, Request, Server, Site, pattern, processes, repository,
    wait,
};

use super::application::Application;

const SIZES: [usize; 6] = [0, 1, 125, 126, 65_536, 4 << 20];

fn application(site: &Site, cable: bool) -> Application {
    let config = repository::root().join("languages/ruby/tests/sockets.ru");
    Application::start_with(site, &config, &["workers=1", "threads=1"], |command| {
        if cable {
            command.env("CABLE", "1");
        }
    })
}

/// A front with HTTP/1.1 in the clear, and all versions over TLS; `more`: keys of the site.
fn front(site: &Site, application: &Application, more: &str) -> Server {
    let keys = Authority::new().issue(&["localhost"], &site.outside("keys"), "localhost");
    let text = format!(
        "listen = ['127.0.0.1:0', '127.0.0.1:0 tls h3']\nthreads = 1\n[[pool]]\nworkers = 'ondemand'\n[[site]]\n\
         root = '{}'\ntls = {{ certificate = '{}', key = '{}' }}\nhttps_redirect = false\n\
         fastcgi = {{ '/' = 'unix:{}' }}\n{more}",
        site.root().display(),
        keys.chain.display(),
        keys.key.display(),
        application.socket().display(),
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let mut server =
        Server::try_run(&config, site.root(), 0).unwrap_or_else(|why| panic!("{why:#?}"));
    server.expect_linked_processes(32);
    server
}

fn upgrade(target: &str) -> Request {
    Request::get(target).header("Connection", "Upgrade").header("Upgrade", "echo")
}

#[track_caller]
fn noted(site: &Site, name: &str) -> String {
    let path = site.root().join(name);
    let came = wait::until(LIMIT, || path.exists());
    assert!(came, "no {name}");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    text
}

/// The gem websocket-driver makes the frames, as in ActionCable.
#[test]
fn websockets_of_a_hijacking_application_pass_over_every_protocol() {
    let site = Site::new();
    let application = application(&site, false);
    let server = front(&site, &application, "");
    let tls = server.tls_addr().unwrap();
    // The first request to the application is a WebSocket.
    for client in [Client::connect(server.clear_addr()), Client::connect_tls(tls)] {
        let mut socket = WebSocket::open(client, &handshake("/echo"));
        for size in SIZES {
            socket.send(BINARY, &pattern(6, size));
            let (opcode, payload) = socket.receive();
            assert!(opcode == BINARY && payload == pattern(6, size), "{size}");
        }
        socket.send(TEXT, "Gr\u{fc}\u{df}e".as_bytes());
        assert_eq!(socket.receive(), (TEXT, "Gr\u{fc}\u{df}e".as_bytes().to_vec()));
        // Its thread is free.
        assert!(server.get("/page").text().starts_with("page "));
        socket.client().send(websocket::close(4321));
        assert_eq!(socket.closed(), 4321);
        assert!(socket.client().is_closed());
        assert_eq!(noted(&site, "ended"), "4321");
    }
    let sent = SIZES.map(|size| websocket::frame(BINARY, &pattern(6, size))).concat();
    let (awaited, last) = (SIZES.iter().sum(), websocket::close(4321));
    let connect = Request::new("CONNECT", "/echo").header("Sec-WebSocket-Version", "13");
    let turns = (awaited, last.clone());
    let got = server.http2().tunnel_of("websocket", &connect, sent.clone(), turns).unwrap();
    assert_eq!((got.status(), got.header("Sec-WebSocket-Accept")), (200, None));
    let mut client = Http3::connect(tls, "localhost");
    let version = [("sec-websocket-version", "13")];
    let over_http3 = client.tunnel("localhost", "/echo", &version, &sent, (awaited, &last));
    for bytes in [got.body, over_http3.unwrap()] {
        let frames = websocket::frames(&bytes);
        assert_eq!(frames.len(), SIZES.len() + 1);
        for (size, (opcode, payload)) in SIZES.iter().zip(&frames) {
            assert!(*opcode == BINARY && *payload == pattern(6, *size), "{size}");
        }
    }
}

#[test]
fn any_protocol_passes_and_each_direction_ends_by_itself() {
    let site = Site::new();
    let application = application(&site, false);
    let server = front(&site, &application, "");
    for target in ["/raw", "/partial"] {
        let mut client = Client::connect(server.clear_addr());
        client.send(upgrade(target).bytes());
        let head = client.head().unwrap();
        assert_eq!((head.status, head.header("Upgrade")), (101, Some("echo")), "{target}");
        let sent = pattern(2, 4 << 20);
        let mut sender = client.stream().try_clone().unwrap();
        let all = sent.clone();
        let sending = std::thread::spawn(move || {
            sender.write_all(&all).unwrap();
            sender.shutdown(Shutdown::Write).unwrap();
        });
        let back = client.rest();
        sending.join().unwrap();
        assert!(back == sent, "{target}: {} bytes", back.len());
        assert!(server.get("/page").text().starts_with("page "));
    }
}

#[test]
fn what_an_application_does_with_the_socket_is_the_response() {
    let site = Site::new();
    let application = application(&site, false);
    let server = front(&site, &application, "[[site.route]]\nrequest_timeout = '1s'\n");
    let ask = |target: &str| Client::connect(server.clear_addr()).try_ask(&upgrade(target));
    let plain = ask("/plain").unwrap();
    assert_eq!((plain.status(), plain.header("X-Own")), (404, Some("a")));
    assert_eq!(plain.text(), "plain");
    assert!(matches!(ask("/cut"), Err(Broken::Cut(_))));
    for (target, status) in [("/nonsense", 502), ("/nothing", 502), ("/silent", 504)] {
        assert_eq!(ask(target).unwrap().status(), status, "{target}");
    }
    // What fails behind the switch is logged, but the request has ended.
    assert_eq!(ask("/raises").unwrap().status(), 101);
    application.await_log("behind the switch");
    // A request's socket is gone with the request.
    assert_eq!(ask("/keeps").unwrap().text(), "kept");
    assert_eq!(ask("/late").unwrap().text(), "the request has ended");
    // Without an offer there is no socket.
    assert!(server.get("/plain").text().ends_with(" false"));
    let post = Request::post("/plain", "a/b", "x").header("Connection", "upgrade");
    assert!(server.ask(&post.header("Upgrade", "echo")).text().ends_with(" false"));
}

#[test]
fn the_death_of_each_side_is_noticed() {
    let site = Site::new();
    let application = application(&site, false);
    let server = front(&site, &application, "");
    server.get("/page");
    let worker = application.workers()[0];
    let before = processes::descriptors(worker).len();
    let fronts = processes::descriptors(server.front()).len();
    drop(WebSocket::open(Client::connect(server.clear_addr()), &handshake("/echo")));
    assert_eq!(noted(&site, "ended"), "EOFError");
    let is_over = || processes::descriptors(worker).len() <= before;
    assert!(wait::until(LIMIT, is_over), "{:?}", processes::descriptors(worker));
    let mut client = Client::connect(server.clear_addr());
    client.send(upgrade("/dies").bytes());
    assert_eq!(client.head().unwrap().status, 101);
    client.send("x");
    assert!(client.is_closed());
    assert!(server.get("/page").text().starts_with("page "));
    let is_over = || processes::descriptors(server.front()).len() <= fronts + 4;
    assert!(wait::until(LIMIT, is_over), "{:?}", processes::descriptors(server.front()));
}

/// Two browsers in a chat.
#[test]
fn action_cable_works() {
    let site = Site::new();
    let application = application(&site, true);
    let server = front(&site, &application, "");
    let identifier = r#"\"channel\":\"ChatChannel\""#;
    let command = |command: &str, more: &str| {
        format!(r#"{{"command":"{command}","identifier":"{{{identifier}}}"{more}}}"#)
    };
    let receive = |socket: &mut WebSocket| loop {
        let (_, text) = socket.receive();
        let text = String::from_utf8(text).unwrap();
        if !text.contains("\"ping\"") {
            return text;
        }
    };
    let request = handshake("/cable").header("Sec-WebSocket-Protocol", "actioncable-v1-json");
    let mut sockets = [(); 2].map(|()| {
        let client = Client::connect_tls(server.tls_addr().unwrap());
        let mut socket = WebSocket::open(client, &request);
        assert_eq!(socket.subprotocol.as_deref(), Some("actioncable-v1-json"));
        assert_eq!(receive(&mut socket), r#"{"type":"welcome"}"#);
        socket.send(TEXT, command("subscribe", "").as_bytes());
        assert!(receive(&mut socket).contains("confirm_subscription"));
        socket
    });
    let speak = command("message", r#","data":"{\"action\":\"speak\",\"text\":\"Hello, chat\"}""#);
    sockets[0].send(TEXT, speak.as_bytes());
    for socket in &mut sockets {
        let said = receive(socket);
        assert!(said.contains(r#""message":"Hello, chat""#), "{said}");
    }
    assert!(server.get("/page").text().starts_with("page "));
}
