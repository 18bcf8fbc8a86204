//! WebSockets, and other protocols that a client changes to.

use std::io::{Read, Write};

use sendoff_tests::{Request, Site, pattern};

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
        // The client ends its direction, and still gets what is said after that.
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
