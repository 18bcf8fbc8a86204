//! WebSockets towards applications that speak HTTP/2 (RFC 8441).

use std::io::{Read, Write};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{Request as Head, Response as ResponseHead};
use sendoff_tests::websocket::{self, BINARY, WebSocket, handshake};
use sendoff_tests::{
    Client, Http2, LIMIT, Request, Site, pattern, processes, pypi, repository, wait,
};

use crate::http2_app::{Http2App, echo};
use crate::tunnel::websocket_echo;
use crate::{pass_on, serve};

#[test]
fn websockets_pass_to_applications_over_http_2() {
    let app = websocket_echo();
    let (behind, before) = (Site::with("a.txt", "static"), Site::new());
    let routes =
        format!("[[site.route]]\npath = ['/', '/wrong', '/no']\nproxy = '{}'\n", app.url());
    let host = serve(&behind, &routes);
    let url = format!("h2://{}", host.clear_addr());
    let server = pass_on(&before, &url, "");
    let open = || WebSocket::open(Client::connect(server.clear_addr()), &handshake("/"));
    let mut sockets = [open(), open(), open()];
    for socket in &mut sockets {
        let client = socket.client();
        assert_eq!(client.read(5), b"first");
        client.send("hello");
        client.half_close();
        assert_eq!(client.read(5), b"hello");
        assert!(client.is_closed());
    }
    // More than all buffers and windows hold: a thread sends while the other direction waits.
    let mut socket = open();
    assert_eq!(socket.client().read(5), b"first");
    let large = pattern(2, 4 << 20);
    let mut sender = socket.client().stream().try_clone().unwrap();
    let sent = large.clone();
    let sending = std::thread::spawn(move || {
        sender.write_all(&sent).unwrap();
        sender.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    socket.client().stream().try_clone().unwrap().read_to_end(&mut back).unwrap();
    sending.join().unwrap();
    assert!(back == large, "{} bytes", back.len());
    let mut client = Http2::connect(server.clear_addr());
    for size in [0, 5, 4 << 20] {
        let sent = pattern(4, size);
        let got = client.tunnel("websocket", "/", sent.clone()).unwrap();
        assert_eq!((got.status(), got.header("x-a")), (200, Some("b")));
        assert_eq!(got.header("sec-websocket-accept"), None);
        assert!(got.body.starts_with(b"first") && got.body[5..] == sent, "{size}");
    }
    for (target, status) in [("/wrong", 502), ("/no", 501), ("/a.txt", 501)] {
        let refused = Client::connect(server.clear_addr()).ask(&handshake(target));
        assert_eq!(refused.status(), status, "{target}");
        let refused = client.tunnel("websocket", target, b"sent".to_vec()).unwrap();
        assert_eq!(refused.status(), status, "{target}");
    }
    assert_eq!(client.ask(&Request::get("/a.txt")).expect(200), b"static");
    let plain = pass_on(&before, &url, ", upgrade = false");
    assert_eq!(Client::connect(plain.clear_addr()).ask(&handshake("/no")).text(), "no");
}

#[test]
fn a_host_that_takes_no_websockets_on_streams_gets_a_request_without_an_offer() {
    let (site, app) = (Site::new(), Http2App::start(echo));
    let server = pass_on(&site, &app.url(), "");
    let got = Client::connect(server.clear_addr()).ask(&handshake("/"));
    assert_eq!(got.status(), 200);
    let mut client = Http2::connect(server.clear_addr());
    assert_eq!(client.tunnel("websocket", "/", Vec::new()).unwrap().status(), 501);
}

/// Sends back what comes, until it is told to reset the stream.
async fn echo_until_reset(
    mut request: Head<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Option<()> {
    assert_eq!(request.method(), "CONNECT");
    assert_eq!(request.extensions().get::<h2::ext::Protocol>()?.as_str(), "websocket");
    assert!(!request.headers().contains_key("sec-websocket-key"));
    assert_eq!(request.headers()["sec-websocket-version"], "13");
    let mut sender = respond.send_response(ResponseHead::new(()), false).ok()?;
    while let Some(data) = request.body_mut().data().await {
        let data = data.ok()?;
        request.body_mut().flow_control().release_capacity(data.len()).ok()?;
        if data == "reset" {
            sender.send_reset(Reason::INTERNAL_ERROR);
            return None;
        }
        sender.send_data(data, false).ok()?;
    }
    sender.send_data(Bytes::new(), true).ok()
}

#[test]
fn each_websocket_ends_by_itself() {
    let (site, app) = (Site::new(), Http2App::start_connectable(echo_until_reset));
    let server = pass_on(&site, &app.url(), ", tunnel_timeout = '5s'");
    let before = processes::descriptors(server.front()).len();
    let open = || WebSocket::open(Client::connect(server.clear_addr()), &handshake("/"));
    let [mut reset, mut dropped, mut other] = [open(), open(), open()];
    assert_eq!((app.requests(), app.connections()), (3, 1));
    reset.client().send("reset");
    assert!(reset.client().is_closed());
    dropped.client().send("bytes");
    assert_eq!(dropped.client().read(5), b"bytes");
    drop(dropped);
    other.client().send("bytes");
    assert_eq!(other.client().read(5), b"bytes");
    let _fourth = open();
    assert_eq!((app.requests(), app.connections()), (4, 1));
    // A silent one ends by the route's limit.
    assert!(other.client().is_closed());
    server.await_log("tunnel_timeout");
    let is_over = || processes::descriptors(server.front()).len() <= before + 4;
    assert!(wait::until(LIMIT, is_over), "{:?}", processes::descriptors(server.front()));
}

/// Hypercorn shares no code with the server's library.
#[test]
#[ignore = "heavy: fetches Hypercorn"]
fn websockets_pass_to_hypercorn_over_http_2() {
    let site = Site::new();
    let program = "tests/tests/languages/python/websocket_cases/echo_site.py";
    std::fs::copy(repository::root().join(program), site.outside("echo_site.py")).unwrap();
    let log = site.outside("hypercorn.log");
    let mut hypercorn = pypi::python(&pypi::packages("websockets"))
        // Without a process of its own for the application.
        .args(["-m", "hypercorn", "--workers", "0", "--bind", "127.0.0.1:0"])
        .arg("echo_site:application")
        .current_dir(site.outside("."))
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let addr = wait::for_some("Hypercorn", || {
        let said = std::fs::read_to_string(&log).unwrap();
        Some(said.split("http://").nth(1)?.split(' ').next()?.to_owned())
    });
    let server = pass_on(&site, &format!("h2://{addr}"), "");
    let mut sockets =
        [(); 3].map(|()| WebSocket::open(Client::connect(server.clear_addr()), &handshake("/")));
    for size in [0, 1, 125, 126, 65_536, 4 << 20] {
        for socket in &mut sockets {
            socket.send(BINARY, &pattern(6, size));
            let (opcode, payload) = socket.receive();
            assert!(opcode == BINARY && payload == pattern(6, size), "{size}");
        }
    }
    for socket in &mut sockets {
        socket.client().send(websocket::close(1001));
        // Hypercorn 0.18.0 leaves the end of the stream to the client.
        assert_eq!(socket.closed(), 1001);
    }
    let _ended = (hypercorn.kill(), hypercorn.wait());
}
