//! Other applications. A back end is another server, whose script says its name and the request.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use sendoff_tests::{Request, Server, Site};

use super::Shown;
use super::machine::Machine;

pub(super) const TASKS: &[Shown] = &[
    ("Proxy a Node.js application", proxy),
    ("Pass WebSockets on", web_socket),
    ("Strip a prefix", strip),
    ("Add a prefix", add),
    ("Use two back ends with health checks", two_back_ends),
    ("Keep a client at one back end (sticky sessions)", sticky),
    ("Show a new version to clients with a cookie (canary)", canary_by_cookie),
    ("Show a new version to a share of the requests (canary)", canary_by_share),
];

#[test]
fn other_applications() {
    super::run(TASKS);
}

struct BackEnd {
    server: Server,
    _site: Site,
}

impl BackEnd {
    fn start(name: &str) -> Self {
        let script = "echo ' ', $_SERVER['REQUEST_URI'], ' ', $_SERVER['HTTP_HOST'], ' ', $_SERVER['HTTP_X_FORWARDED_FOR'] ?? '', ' ', $_SERVER['HTTP_X_FORWARDED_PROTO'] ?? '';";
        let site = Site::with("index.php", &format!("<?php echo '{name}'; {script}"));
        let server = Server::start(site.root(), &["--workers", "1"]);
        Self { server, _site: site }
    }

    fn address(&self) -> String {
        self.server.clear_addr().to_string()
    }
}

fn with(machine: Machine, app: &BackEnd) -> Machine {
    machine.with_value("127.0.0.1:3000", &app.address())
}

fn proxy(machine: Machine) {
    let app = BackEnd::start("app");
    let run = with(machine, &app).with("assets/a.css", "style").start();
    let said = run.text("http://example.org/users?id=1");
    assert_eq!(said, "app /users?id=1 example.org 127.0.0.1 http");
    assert_eq!(run.text("http://example.org/assets/a.css"), "style");
}

/// Accepts one WebSocket and sends its bytes back.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let agreed =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        stream.write_all(agreed.as_bytes()).unwrap();
        while stream.read_exact(&mut byte).is_ok() {
            stream.write_all(&byte).unwrap();
        }
    });
    addr
}

fn web_socket(machine: Machine) {
    let run = machine.with_value("127.0.0.1:3000", &echo().to_string()).start();
    let mut client = run.server.connect();
    let request = Request::get("/socket").header("Connection", "Upgrade");
    client.send(request.header("Upgrade", "websocket").bytes());
    assert_eq!(client.head().unwrap().status, 101);
    client.send("ping");
    assert_eq!(client.read(4), b"ping");
}

fn strip(machine: Machine) {
    let app = BackEnd::start("app");
    let run = with(machine, &app).start();
    let said = run.text("http://example.org/api/users?id=1");
    assert!(said.starts_with("app /users?id=1 "), "{said}");
    assert_eq!(run.status("http://example.org/apis"), 404);
}

fn add(machine: Machine) {
    let app = BackEnd::start("app");
    let run = with(machine, &app).start();
    let said = run.text("http://example.org/users?id=1");
    assert!(said.starts_with("app /v2/users?id=1 "), "{said}");
}

fn two_back_ends(machine: Machine) {
    let (one, two) = (BackEnd::start("one"), BackEnd::start("two"));
    let machine = machine.with_value("10.0.0.11:3000", &one.address());
    let run = machine.with_value("10.0.0.12:3000", &two.address()).start();
    let names = || (0..8).map(|_| run.text("http://example.org/")[..3].to_owned());
    let answered: Vec<_> = names().collect();
    assert!(["one", "two"].iter().all(|name| answered.iter().any(|a| a == name)), "{answered:?}");
    drop(one);
    let answered: Vec<_> = names().collect();
    assert!(answered.iter().all(|name| name == "two"), "{answered:?}");
}

fn sticky(machine: Machine) {
    let (one, two) = (BackEnd::start("one"), BackEnd::start("two"));
    let machine = machine.with_value("10.0.0.11:3000", &one.address());
    let machine = machine.with_value("10.0.0.12:3000", &two.address());
    let cookies = std::env::temp_dir().join(format!("cookies-{}", std::process::id()));
    let run = machine.with_value("/tmp/cookies", cookies.to_str().unwrap()).start();
    let name = |text: String| text.split(' ').next().unwrap().to_owned();
    let first = name(run.command());
    for _ in 0..4 {
        assert_eq!(name(run.command()), first);
    }
    std::fs::remove_file(cookies).unwrap();
    let all: BTreeSet<_> = (0..4).map(|_| name(run.text("http://example.org/name"))).collect();
    assert_eq!(all.len(), 2, "clients without the cookie go to both");
}

fn canary_by_cookie(machine: Machine) {
    let (old, new) = (BackEnd::start("old"), BackEnd::start("new"));
    let run = with(machine, &old).with_value("127.0.0.1:3001", &new.address()).start();
    assert!(run.command().starts_with("new /name "));
    let old = run.get("http://example.org/name");
    assert!(old.text().starts_with("old /name ") && old.header("X-Version") == Some("old"));
    let other = run.curl("curl -s -b canary=10 http://example.org/name");
    assert!(other.starts_with("old "), "{other}");
}

fn canary_by_share(machine: Machine) {
    let (old, new) = (BackEnd::start("old"), BackEnd::start("new"));
    let run = with(machine, &old).with_value("127.0.0.1:3001", &new.address()).start();
    let answered = (0..40).map(|_| run.text("http://example.org/"));
    let new = answered.filter(|said| said.starts_with("new")).count();
    // A request that has just ended may still count for its host.
    assert!((7..=13).contains(&new), "{new} of 40");
}
