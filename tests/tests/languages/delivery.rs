//! Delivery as every language must do it. A language's test program includes this module and passes
//! the pages of its application.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use bytes::BytesMut;
use sendoff_fastcgi::record::{BeginRequest, Header, Kind};
use sendoff_fastcgi::{Decoder, RecordPart, params};
use sendoff_tests::{Broken, Client, LIMIT, Progress, Request, Server, load, processes, wait};

/// A page and its body.
pub type Page = (String, Vec<u8>);

/// Delivery modes of the front.
pub const MODES: [&str; 4] = ["relay", "region", "direct", "auto"];

/// A web server that takes no files, on one connection to an application.
struct PlainServer {
    socket: UnixStream,
    received: BytesMut,
    decoder: Decoder,
}

/// The progress of a response.
enum Progressed {
    Bytes(Vec<u8>),
    /// The application has ended the response.
    Whole,
    /// The application has closed the connection.
    Cut,
}

impl PlainServer {
    /// Asks the application for a path.
    fn ask(socket: &Path, path: &str) -> Self {
        let mut socket = UnixStream::connect(socket).unwrap();
        let (path_info, query) = path.split_once('?').unwrap_or((path, ""));
        let mut stream = Vec::new();
        for (name, value) in [
            ("REQUEST_METHOD", "GET"),
            ("SCRIPT_NAME", ""),
            ("PATH_INFO", path_info),
            ("REQUEST_URI", path),
            ("QUERY_STRING", query),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("SERVER_NAME", "localhost"),
            ("SERVER_PORT", "80"),
            ("HTTP_HOST", "localhost"),
        ] {
            params::encode(&mut stream, name.as_bytes(), value.as_bytes());
        }
        let mut request = BeginRequest { keep_conn: true }.encode(1).to_vec();
        for (kind, content) in
            [(Kind::PARAMS, &stream[..]), (Kind::PARAMS, b""), (Kind::STDIN, b"")]
        {
            let header = Header::new(kind, 1, content.len().try_into().unwrap());
            request.extend_from_slice(&header.encode());
            request.extend_from_slice(content);
        }
        socket.write_all(&request).unwrap();
        Self { socket, received: BytesMut::new(), decoder: Decoder::default() }
    }

    fn next(&mut self) -> Progressed {
        loop {
            match self.decoder.next(&mut self.received).unwrap() {
                Some(RecordPart::Stream { kind: Kind::STDOUT, data, .. }) => {
                    return Progressed::Bytes(data.to_vec());
                }
                Some(RecordPart::Record { kind: Kind::END_REQUEST, .. }) => {
                    return Progressed::Whole;
                }
                Some(_) => {}
                None => {
                    let mut piece = [0; 16 * 1024];
                    match self.socket.read(&mut piece) {
                        Ok(0) | Err(_) => return Progressed::Cut,
                        Ok(n) => self.received.extend_from_slice(&piece[..n]),
                    }
                }
            }
        }
    }
}

/// The file at `path`, which `page` sends, is halved while it is being copied. The response is cut
/// after the first half. `contents` are longer than the connection's buffers.
pub fn a_file_that_becomes_shorter(socket: &Path, page: &str, path: &Path, contents: &[u8]) {
    let mut server = PlainServer::ask(socket, page);
    let Progressed::Bytes(mut response) = server.next() else { panic!("no response") };
    let half = contents.len() / 2;
    File::options().write(true).open(path).unwrap().set_len(half as u64).unwrap();
    loop {
        match server.next() {
            Progressed::Bytes(more) => response.extend(more),
            Progressed::Whole => panic!("the response looks whole after {} bytes", response.len()),
            Progressed::Cut => break,
        }
    }
    let head = response.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    assert!(response[head..] == contents[..half], "other bytes, {} of them", response.len() - head);
}

/// Responses on one connection come in order, also if different processes write them.
pub fn kept_and_pipelined_connections(server: &Server, pages: &[Page]) {
    let mut client = server.connect();
    for _ in 0..3 {
        client.send(
            pages.iter().flat_map(|(page, _)| Request::get(page).bytes()).collect::<Vec<_>>(),
        );
        for (page, body) in pages {
            assert!(client.response("GET").expect(200) == body, "{page}: other bytes");
        }
    }
}

/// The same bytes as over HTTP/1.
pub fn the_same_over_http2(server: &Server, pages: &[Page]) {
    let mut client = server.http2();
    for (page, body) in pages {
        let response = client.try_ask(&Request::get(page)).unwrap();
        assert!(response.expect(200) == body, "{page}: other bytes");
        let response = client.try_ask(&Request::new("HEAD", page)).unwrap();
        assert_eq!((response.status(), response.body.len()), (200, 0), "HEAD {page}");
    }
}

/// Clients that leave after any number of bytes cost their own response only.
pub fn clients_that_leave_in_the_middle(server: &Server, page: &Page) {
    for round in 0..40_usize {
        let mut client = Client::connect_narrow(server.addr(), 16 * 1024);
        client.send(Request::get(&page.0).bytes());
        let mut left = round * round * 500;
        while left > 0 && client.read_some(left) {
            left = left.saturating_sub(16 * 1024);
        }
        drop(client);
        if round % 8 == 0 {
            assert!(server.get(&page.0).expect(200) == page.1, "round {round}: other bytes");
        }
    }
}

/// Clients that read slowly hold no process and little memory, and get every byte.
pub fn a_thousand_slow_clients(server: &Server, pages: &[Page], quick: &str) {
    const CLIENTS: usize = 1000;
    let progress = Progress::new(0, "slow clients");
    let before = processes::private_memory(server.front());
    let mut clients: Vec<(Client, &Page)> = pages
        .iter()
        .cycle()
        .take(CLIENTS)
        .map(|page| {
            let mut client = Client::connect_narrow(server.addr(), 4096);
            client.send(Request::get(&page.0).header("Connection", "close").bytes());
            progress.advance();
            (client, page)
        })
        .collect();
    // Requests are answered in order, so when this page comes, those before it have been.
    let mut last = server.connect();
    last.send(Request::get(quick).bytes());
    assert!(wait::until(6 * LIMIT, || !last.is_silent()), "the slow clients hold every process");
    last.response("GET").expect(200);
    for _ in 0..3 {
        for (client, _) in &mut clients {
            client.read_some(1024);
        }
        let times = load::times(server.addr(), 100, &Request::get(quick));
        let slowest = load::percentile_99(&times);
        assert!(slowest < Duration::from_secs(1), "quick pages took {slowest:?}");
    }
    let held = processes::private_memory(server.front()).saturating_sub(before);
    assert!(held < 400 << 20, "the front grew by {} MB", held >> 20);
    for (mut client, (page, body)) in clients.into_iter().step_by(49) {
        match client.try_response("GET") {
            Ok(response) => assert!(response.expect(200) == body, "{page}: other bytes"),
            Err(Broken::Cut(part)) => panic!("{page}: cut after {} bytes", part.body.len()),
            Err(broken) => panic!("{page}: {broken:?}"),
        }
    }
}
