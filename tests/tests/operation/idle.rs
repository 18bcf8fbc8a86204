//! The memory that the front holds for a connection on which nothing happens, by kind of connection.

use std::any::Any;
use std::env;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use sendoff_tests::frames::Frames;
use sendoff_tests::websocket::WebSocket;
use sendoff_tests::{
    Authority, Client, Http3, LIMIT, Progress, Request, Server, Site, frames, processes, wait,
    websocket,
};

use crate::allocations::Allocations;

/// Connections of a kind before those that count: lists and caches have grown then.
const FIRST: usize = 20;

/// Connections of a kind that count, in the test for every day.
const FEW: u64 = 300;

/// A kind of connection, and the most bytes that may be allocated for it: twice the number when this
/// was written. Buffers of h2 count, whose pages are mostly never written to.
struct Kind {
    name: &'static str,
    most: u64,
    open: fn(&Server) -> Box<dyn Any>,
}

const KINDS: [Kind; 8] = [
    Kind { name: "HTTP/1.1", most: 2_000, open: |server| Box::new(kept(server.clear_addr())) },
    Kind {
        name: "HTTP/1.1 over TLS",
        most: 20_000,
        open: |server| Box::new(kept(server.tls_addr().unwrap())),
    },
    Kind { name: "HTTP/2", most: 80_000, open: |server| Box::new(kept_2(server.clear_addr())) },
    Kind {
        name: "HTTP/2 over TLS",
        most: 95_000,
        open: |server| Box::new(kept_2(server.tls_addr().unwrap())),
    },
    Kind { name: "HTTP/3", most: 80_000, open: |server| Box::new(kept_3(server)) },
    Kind {
        name: "WebSocket",
        most: 6_500,
        open: |server| Box::new(websocket_1(server.clear_addr())),
    },
    Kind {
        name: "WebSocket over TLS",
        most: 25_000,
        open: |server| Box::new(websocket_1(server.tls_addr().unwrap())),
    },
    Kind {
        name: "WebSocket over HTTP/2",
        most: 80_000,
        open: |server| Box::new(websocket_2(server.clear_addr())),
    },
];

#[test]
fn idle_connections_hold_little_memory() {
    let site = Site::with("a.txt", "static");
    let config = config(&site, websockets());
    let (server, allocations) = Allocations::of_server(&site, &config, 0);
    let mut grown = Vec::new();
    for Kind { name, most, open } in &KINDS {
        let _first: Vec<_> = (0..FIRST).map(|_| open(&server)).collect();
        let before = allocations.held();
        let _idle: Vec<_> = (0..FEW).map(|_| open(&server)).collect();
        let mut each = 0;
        // The last bytes of the client may have come before the front has freed their buffer.
        let is_little = wait::until(LIMIT, || {
            each = allocations.held().saturating_sub(before) / FEW;
            each <= *most
        });
        println!("{name}: {each} bytes for each");
        if !is_little {
            grown.push(format!("{name}: {each} bytes, the limit is {most}"));
        }
    }
    assert!(grown.is_empty(), "idle connections hold more than before:\n{}", grown.join("\n"));
}

/// Prints the resident memory of the front for each connection. `SENDOFF_CONNECTIONS` sets their
/// number, `SENDOFF_KIND` one kind. The front needs two descriptors for each WebSocket, the test four
/// (`ulimit -n`).
#[test]
#[ignore = "heavy: 2,000 connections of each kind"]
fn the_memory_of_idle_connections() {
    let count = env::var("SENDOFF_CONNECTIONS").map_or(2_000, |count| count.parse().unwrap());
    let only = env::var("SENDOFF_KIND").ok();
    let kinds = KINDS.iter().filter(|kind| only.as_deref().is_none_or(|only| only == kind.name));
    for Kind { name, most, open } in kinds {
        let site = Site::with("a.txt", "static");
        let server = Server::try_run(&config(&site, websockets()), site.root(), 0);
        let server = server.unwrap_or_else(|failed| panic!("{failed:#?}"));
        let front = || processes::private_memory(server.front());
        let _first: Vec<_> = (0..FIRST).map(|_| open(&server)).collect();
        let before = front();
        let progress = Progress::new(count, name);
        let open = |_| {
            progress.advance();
            open(&server)
        };
        let _idle: Vec<_> = (0..count).map(open).collect();
        let each = front().saturating_sub(before) / count;
        println!("{name}: {each} bytes for each");
        assert!(each <= *most, "{name}: {each} bytes for each, the limit is {most}");
    }
}

/// A site with static files, and with WebSockets of the application at `/socket`.
fn config(site: &Site, application: SocketAddr) -> PathBuf {
    let keys = Authority::new().issue(&["localhost"], &site.outside("keys"), "localhost");
    let text = format!(
        "listen = ['127.0.0.1:0', '127.0.0.1:0 tls h3']\nthreads = 1\n\
         [[pool]]\nworkers = 'ondemand'\n[[site]]\nroot = 'root'\n\
         https_redirect = false\ntls = {{ certificate = '{}', key = '{}' }}\n\
         [[site.route]]\npath = '/socket'\nproxy = 'http://{application}'\n",
        keys.chain.display(),
        keys.key.display(),
    );
    site.write_at(site.outside("sendoff.toml"), text)
}

/// An application that sends back the first byte of each WebSocket, and is silent then.
fn websockets() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut idle = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte).unwrap();
                head.extend(byte);
            }
            let head = String::from_utf8(head).unwrap();
            let key = head.split("sec-websocket-key: ").nth(1).unwrap();
            let answer = websocket::answer_to(key.split("\r\n").next().unwrap());
            let switch = format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Accept: {answer}\r\n\r\n"
            );
            stream.write_all(switch.as_bytes()).unwrap();
            stream.read_exact(&mut byte).unwrap();
            stream.write_all(&byte).unwrap();
            idle.push(stream);
        }
    });
    addr
}

/// A connection of HTTP/1.1 after a request.
fn kept(addr: SocketAddr) -> Client {
    let mut client = Client::connect(addr);
    client.ask(&Request::get("/a.txt")).expect(200);
    client
}

/// A connection of HTTP/2 after a request.
fn kept_2(addr: SocketAddr) -> Frames {
    let mut client = Frames::connect(addr, &[]);
    client.get(1, "/a.txt");
    assert_eq!(client.body(1).unwrap(), b"static");
    client
}

/// A connection of HTTP/3 after a request.
fn kept_3(server: &Server) -> Http3 {
    let mut client = Http3::connect(server.tls_addr().unwrap(), "localhost");
    client.ask(&Request::get("/a.txt")).expect(200);
    client
}

/// The fields that a browser sends beside its handshake.
const OF_BROWSER: [(&str, &str); 6] = [
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
    ("origin", "https://example.test"),
    ("accept-language", "en-US,en;q=0.5"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("cookie", "session=0123456789abcdef0123456789abcdef0123456789abcdef; theme=dark"),
    ("cache-control", "no-cache"),
];

/// A WebSocket over HTTP/1.1 after a byte in each direction.
fn websocket_1(addr: SocketAddr) -> WebSocket {
    let request = OF_BROWSER
        .iter()
        .fold(websocket::handshake("/socket"), |request, field| request.header(field.0, field.1));
    let mut client = WebSocket::open(Client::connect(addr), &request);
    client.client().send("a");
    assert_eq!(client.client().read(1), b"a");
    client
}

/// A connection of HTTP/2 with a WebSocket, after a byte in each direction.
fn websocket_2(addr: SocketAddr) -> Frames {
    let mut client = Frames::connect(addr, &[]);
    let more = [&[(":protocol", "websocket")][..], &OF_BROWSER].concat();
    let block = frames::request("CONNECT", "/socket", &more);
    client.send(frames::frame(frames::HEADERS, frames::END_HEADERS, 1, &block));
    client.send(frames::frame(frames::DATA, 0, 1, b"a"));
    let data = client.find(|frame| frame.kind == frames::DATA).unwrap();
    assert_eq!(data.payload, b"a");
    client
}
