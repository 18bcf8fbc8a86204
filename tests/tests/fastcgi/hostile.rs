//! A FastCGI responder that misbehaves: the client gets the correct response, a clear 502 or 504,
//! or a cut connection. It never hangs, and never gets bytes of another request.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use sendoff_tests::{Broken, Request, Server, Site};

const END_REQUEST: u8 = 3;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;
const TUNNEL: u8 = 147;

const HEAD: &[u8] = b"Content-Type: text/plain\r\n\r\n";

/// The behaviour of a responder after its last byte.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Close,
    /// It says nothing more.
    Silence,
}

/// The pieces that a responder sends, and its behaviour afterwards.
type Script = (Vec<Vec<u8>>, Then);

/// A server and a responder that follows a script on each connection.
struct Hostile {
    server: Server,
    scripts: Sender<Script>,
    _site: Site,
}

impl Hostile {
    fn start() -> Self {
        let site = Site::new();
        let path = site.outside("app.sock");
        let listener = UnixListener::bind(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        let (scripts, next) = channel();
        std::thread::spawn(move || {
            let mut silent = Vec::new();
            for script in next {
                let (mut stream, _) = listener.accept().unwrap();
                if read_request(&mut stream) && play(&mut stream, script) == Then::Silence {
                    silent.push(stream);
                }
            }
        });
        let attached = format!("/app=unix:{}", path.display());
        let options = ["--fastcgi", &attached, "--fastcgi-timeout", "1s", "--threads", "1"];
        Self { server: Server::start(site.root(), &options), scripts, _site: site }
    }

    /// Sends a request that this script answers, and returns the client's response; the error is a
    /// cut connection. The request is a `POST`, which has a connection of its own and is not
    /// repeated.
    fn ask(&self, pieces: Vec<Vec<u8>>, then: Then) -> Result<(u16, String), Broken> {
        self.ask_for(&Request::post("/app/x", "text/plain", "x"), pieces, then)
    }

    fn ask_for(
        &self,
        request: &Request,
        pieces: Vec<Vec<u8>>,
        then: Then,
    ) -> Result<(u16, String), Broken> {
        self.scripts.send((pieces, then)).unwrap();
        let response = self.server.connect().try_ask(request)?;
        Ok((response.status(), String::from_utf8_lossy(&response.body).into_owned()))
    }

    #[track_caller]
    fn expect_status(&self, pieces: Vec<Vec<u8>>, then: Then, status: u16) {
        let got = self.ask(pieces, then).map(|(status, _)| status);
        assert!(matches!(got, Ok(got) if got == status), "{got:?}, not {status}");
        self.expect_fine("after it");
    }

    #[track_caller]
    fn expect_cut(&self, pieces: Vec<Vec<u8>>, then: Then) {
        let got = self.ask(pieces, then);
        assert!(matches!(got, Err(Broken::Cut(_) | Broken::Closed)), "{got:?}");
        self.expect_fine("after it");
    }

    /// Expects that the next request gets its own response.
    #[track_caller]
    fn expect_fine(&self, body: &str) {
        let got = self.ask(vec![response(body)], Then::Silence).unwrap();
        assert_eq!(got, (200, body.to_owned()));
    }

    /// CPU time that the front has used (`/proc/PID/task/*/schedstat`).
    fn cpu(&self) -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.server.front())).unwrap();
        let of_task = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
        };
        Duration::from_nanos(tasks.flatten().map(of_task).sum())
    }
}

/// Reads up to the empty `STDIN` record of request 1. Fails if the front has given up the
/// connection.
fn read_request(stream: &mut UnixStream) -> bool {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    while !request.ends_with(&[1, 5, 0, 1, 0, 0, 0, 0]) {
        match stream.read(&mut buffer) {
            Ok(n @ 1..) => request.extend_from_slice(&buffer[..n]),
            _ => return false,
        }
    }
    true
}

fn play(stream: &mut UnixStream, (pieces, then): Script) -> Then {
    for piece in pieces {
        // The front may have closed the connection, and be right.
        if stream.write_all(&piece).is_err() {
            return Then::Close;
        }
    }
    then
}

fn record_of(id: u16, kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
    let ([id0, id1], len) = (id.to_be_bytes(), u16::try_from(content.len()).unwrap());
    let [high, low] = len.to_be_bytes();
    let padded = vec![0xaa; padding.into()];
    [&[1, kind, id0, id1, high, low, padding, 0], content, &padded].concat()
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    record_of(1, kind, content, 0)
}

fn stdout(text: &[u8]) -> Vec<u8> {
    text.chunks(60_000).flat_map(|piece| record(STDOUT, piece)).collect()
}

fn end() -> Vec<u8> {
    record(END_REQUEST, &[0; 8])
}

fn response(body: &str) -> Vec<u8> {
    [stdout(HEAD), stdout(body.as_bytes()), record(STDOUT, b""), end()].concat()
}

#[test]
fn responses_split_at_every_byte_are_whole() {
    let hostile = Hostile::start();
    let whole = [
        record(STDERR, b"a word"),
        record_of(1, STDOUT, HEAD, 3),
        record_of(1, STDOUT, b"body", 255),
        record(STDOUT, b""),
        record(STDERR, b""),
        end(),
    ]
    .concat();
    let fine = (200, "body".to_owned());
    for cut in 0..whole.len() {
        let pieces = vec![whole[..cut].to_vec(), whole[cut..].to_vec()];
        assert_eq!(hostile.ask(pieces, Then::Close).unwrap(), fine, "cut at {cut}");
    }
    let bytes = whole.chunks(1).map(<[u8]>::to_vec).collect();
    assert_eq!(hostile.ask(bytes, Then::Silence).unwrap(), fine);
}

#[test]
fn wrong_ids_lengths_and_kinds_are_502() {
    let hostile = Hostile::start();
    for nonsense in [
        record_of(2, STDOUT, HEAD, 0),
        record_of(0, STDOUT, HEAD, 0),
        [stdout(b"Content-Type: te"), record_of(7, STDOUT, b"xt/plain\r\n\r\n", 0)].concat(),
        // Management records, which the front has not asked for.
        record_of(0, 10, b"\x0f\x01FCGI_MPXS_CONNS1", 0),
        record_of(0, 11, &[0; 8], 0),
        // An end without its content, and with a part of it.
        record(END_REQUEST, b""),
        record(END_REQUEST, &[0; 7]),
        // A version that does not exist; a request in the place of an answer.
        [&[2][..], &stdout(HEAD)[1..]].concat(),
        record(1, &[0, 1, 0, 0, 0, 0, 0, 0]),
        record(4, b"\x01\x01AB"),
        record(5, b"x"),
        stdout(b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok"),
        vec![0xff; 100_000],
    ] {
        hostile.expect_status(vec![nonsense], Then::Silence, 502);
    }
    // Fewer bytes than the record's length: they may still come.
    let mut short = stdout(b"Content-Type: te");
    short[5] = 200;
    hostile.expect_status(vec![short.clone()], Then::Close, 502);
    hostile.expect_status(vec![short], Then::Silence, 504);
}

#[test]
fn heads_without_an_end_are_bounded() {
    let hostile = Hostile::start();
    let endless = b"X-Field: some words that make it long\r\n".repeat(30_000);
    hostile.expect_status(vec![stdout(&endless)], Then::Silence, 502);
    hostile.expect_status(vec![stdout(&vec![b'x'; 1 << 20])], Then::Silence, 502);
    hostile.expect_status(vec![stdout(b"Content-Type: text/plain\r\n")], Then::Close, 502);
    hostile.expect_status(vec![stdout(b"Content-Type: text/plain\r\n")], Then::Silence, 504);
    hostile.expect_status(vec![stdout(b"Content-Type: text/plain\r\n"), end()], Then::Close, 502);
    // A head of almost 64 KiB in records of one byte, which is a response like any other.
    let long = [b"Content-Type: text/plain\r\nX-Long: ", &[b'x'; 60_000][..], b"\r\n\r\n"].concat();
    let records: Vec<u8> =
        long.iter().flat_map(|byte| record(STDOUT, std::slice::from_ref(byte))).collect();
    let before = hostile.cpu();
    let got = hostile.ask(vec![records, stdout(b"long"), end()], Then::Close).unwrap();
    let used = hostile.cpu() - before;
    assert_eq!(got, (200, "long".to_owned()));
    eprintln!("a head of 60,000 records: {used:?}");
    assert!(used < Duration::from_millis(100), "{used:?}");
}

#[test]
fn what_follows_the_end_is_in_no_other_response() {
    let hostile = Hostile::start();
    let late = stdout(b"Content-Type: text/plain\r\nX-Late: yes\r\n\r\nlate");
    for surplus in [late.clone(), [late, end()].concat(), end(), vec![1], vec![0xff; 1000]] {
        let wire = [response("first"), surplus].concat();
        let got = hostile.ask(vec![wire], Then::Silence).unwrap();
        assert_eq!(got, (200, "first".to_owned()));
        for n in 0..3 {
            hostile.expect_fine(&format!("next {n}"));
        }
    }
}

#[test]
fn a_connection_that_closes_early_cuts_the_response() {
    let hostile = Hostile::start();
    let length = b"Content-Type: text/plain\r\nContent-Length: 1000\r\n\r\n";
    for head in [HEAD, length] {
        hostile.expect_cut(vec![stdout(head), stdout(b"the beginning")], Then::Close);
        // In the middle of a record.
        let mut half = record(STDOUT, &[b'x'; 500]);
        half.truncate(300);
        hostile.expect_cut(vec![stdout(head), half.clone()], Then::Close);
        hostile.expect_cut(vec![stdout(head), half], Then::Silence);
    }
    hostile.expect_cut(vec![stdout(length), stdout(b"too little"), end()], Then::Close);
    hostile.expect_status(Vec::new(), Then::Close, 502);
    hostile.expect_status(Vec::new(), Then::Silence, 504);
    // More than was announced is left out.
    let more = vec![stdout(length), stdout(&[b'x'; 2000]), end()];
    assert_eq!(hostile.ask(more, Then::Silence).unwrap(), (200, "x".repeat(1000)));
}

/// It has dropped the connection for its answer, as a read(2) does with a descriptor.
#[test]
fn a_tunnel_that_nothing_comes_from_is_a_502() {
    let hostile = Hostile::start();
    let upgrade = Request::get("/app/x").header("Connection", "upgrade").header("Upgrade", "echo");
    // It need not know what came along.
    let got = hostile.ask_for(&upgrade, vec![response("an answer")], Then::Close);
    assert_eq!(got.unwrap(), (200, "an answer".to_owned()));
    let tunnel = || record(TUNNEL, b"");
    hostile.expect_status(vec![tunnel(), end()], Then::Silence, 502);
    for (what, pieces) in [
        ("alone", vec![tunnel()]),
        ("with an end", vec![tunnel(), end()]),
        ("twice", vec![tunnel(), tunnel(), end()]),
        ("and a response", vec![tunnel(), response("an answer")]),
        ("with content", vec![record(TUNNEL, b"x"), end()]),
        ("behind a head", vec![stdout(b"Content-Type: a/b\r\n"), tunnel(), end()]),
    ] {
        for then in [Then::Close, Then::Silence] {
            // An application that has answered without a word about tunnels is offered none.
            let hostile = Hostile::start();
            let got = hostile.ask_for(&upgrade, pieces.clone(), then).unwrap();
            assert_eq!(got.0, 502, "{what}: {}", got.1);
            hostile.expect_fine(what);
        }
    }
}

/// 200,000 empty and tiny records around a small response.
#[test]
fn tiny_records_cost_little() {
    let hostile = Hostile::start();
    let words = record(STDERR, b"").repeat(100_000);
    let body: Vec<u8> = record(STDOUT, b"x").repeat(100_000);
    let before = hostile.cpu();
    let got = hostile.ask(vec![words, stdout(HEAD), body, end()], Then::Close).unwrap();
    let used = hostile.cpu() - before;
    assert_eq!(got, (200, "x".repeat(100_000)));
    eprintln!("200,000 tiny records: {used:?}");
    assert!(used < Duration::from_secs(1), "{used:?}");
}

/// A record of one byte does not become a chunk of its own if others have arrived with it.
#[test]
fn a_body_in_records_of_one_byte_reaches_the_client_in_few_chunks() {
    const BYTES: usize = 200_000;
    let hostile = Hostile::start();
    let body: Vec<u8> = record(STDOUT, b"y").repeat(BYTES);
    hostile.scripts.send((vec![stdout(HEAD), body, end()], Then::Silence)).unwrap();
    let mut client = std::net::TcpStream::connect(hostile.server.clear_addr()).unwrap();
    client
        .write_all(
            b"POST /app/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx",
        )
        .unwrap();
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    let head = got.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    assert_eq!(got[head..].iter().filter(|byte| **byte == b'y').count(), BYTES);
    assert!(got.ends_with(b"\r\n0\r\n\r\n") && got.len() < BYTES * 11 / 10, "{} bytes", got.len());
}
