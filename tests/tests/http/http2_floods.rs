//! HTTP/2 clients that try to overload the server or to fill its memory. Each is ended soon and
//! costs little, and others are served.

use std::time::{Duration, Instant};

use sendoff_tests::frames::{
    CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, Frame, Frames, GOAWAY,
    HEADERS, NO_ERROR, PING, PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame, request,
};
use sendoff_tests::{Request, Server, Site, processes};

const MB: usize = 1 << 20;

/// Bound on the growth of the front's memory by a flood, in bytes. The allocator keeps some freed
/// memory.
const MEMORY: u64 = 16 << 20;

/// Time limit for the end of a flood. Long, because test machines are busy.
const SOON: Duration = Duration::from_secs(20);

fn serve() -> (Site, Server) {
    let site = Site::with("quick.php", "<?php echo 'quick';");
    site.write("in.php", "<?php echo strlen(file_get_contents('php://input'));");
    site.write("small.txt", "small");
    // A client that reads no answers is not read from until then.
    let server = Server::start(site.root(), &["--send-timeout", "1"]);
    // A first request, whose allocations do not count.
    server.http2().ask(&Request::get("/quick.php"));
    (site, server)
}

/// Runs a client's attack, and checks that the server survives it, by time and memory.
#[track_caller]
fn attack(what: &str, act: impl FnOnce(&mut Frames)) {
    let (_site, server) = serve();
    let before = processes::private_memory(server.front());
    let began = Instant::now();
    let mut client = Frames::connect(server.clear_addr(), &[]);
    act(&mut client);
    let grown = processes::private_memory(server.front()).saturating_sub(before);
    assert!(grown < MEMORY, "{what}: the front grew by {} KiB", grown >> 10);
    assert!(began.elapsed() < SOON, "{what}: it took {:?}", began.elapsed());
    assert_eq!(server.http2().ask(&Request::get("/quick.php")).text(), "quick", "{what}");
}

/// Sends the frame until the server has enough of it, at most 64 MB.
#[track_caller]
fn flood(what: &str, bytes: &[u8]) {
    attack(what, |client| {
        let many = bytes.repeat(16_000 / bytes.len());
        let sent = client.flood(&many, 64 * MB);
        assert!(sent < 64 * MB, "{what}: the server takes everything");
    });
}

#[test]
fn frames_that_ask_for_nothing() {
    flood("pings", &frame(PING, 0, 0, &[0; 8]));
    flood("settings", &frame(SETTINGS, 0, 0, &[]));
    flood("settings with a table size", &frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 16, 0]));
    flood("priorities", &frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 1]));
    flood("windows of the connection", &frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]));
    flood("frames of an unknown type", &frame(200, 0, 0, &[0; 100]));
}

#[test]
fn pings_whose_answers_are_read() {
    attack("pings", |client| {
        let mut answers = client.stream().try_clone().unwrap();
        let reader = std::thread::spawn(move || std::io::copy(&mut answers, &mut std::io::sink()));
        let many = frame(PING, 0, 0, &[0; 8]).repeat(1000);
        assert!(client.flood(&many, 64 * MB) < 64 * MB);
        let _reset = reader.join().unwrap();
    });
}

#[test]
fn empty_parts_of_a_body() {
    attack("empty DATA", |client| {
        client.send(frame(HEADERS, END_HEADERS, 1, &request("POST", "/in.php", &[])));
        let sent = client.flood(&frame(DATA, 0, 1, &[]).repeat(1000), 64 * MB);
        assert!(sent < 64 * MB);
    });
    attack("padding only", |client| {
        client.send(frame(HEADERS, END_HEADERS, 1, &request("POST", "/in.php", &[])));
        let padded = [&[255][..], &[0; 255]].concat();
        let sent = client.flood(&frame(DATA, 8, 1, &padded).repeat(50), 64 * MB);
        assert!(sent < 64 * MB);
    });
}

/// CVE-2023-44487.
#[test]
fn requests_that_are_reset_at_once() {
    for path in ["/quick.php", "/small.txt"] {
        attack("rapid reset", |client| {
            let block = request("GET", path, &[]);
            let mut bytes = Vec::new();
            for stream in (1..20_000).step_by(2) {
                bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &block));
                bytes.extend(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
            }
            client.try_send(&bytes);
            assert_eq!(client.end(), Some(ENHANCE_YOUR_CALM));
        });
    }
}

/// The server has begun with each of them.
#[test]
fn requests_that_are_given_up_one_after_the_other() {
    attack("given up", |client| {
        let block = request("POST", "/in.php", &[]);
        // It is told to go, and does not.
        let mut codes = Vec::new();
        for stream in (1..6000).step_by(2) {
            client.try_send(&frame(HEADERS, END_HEADERS, stream, &block));
            client.try_send(&frame(PING, 0, 0, &[0; 8]));
            while let Some(end) = client.find(|frame| is_goaway(frame) || is_answer(frame))
                && is_goaway(&end)
            {
                codes.push(end.code());
            }
            if codes.contains(&ENHANCE_YOUR_CALM) {
                assert_eq!(codes[0], NO_ERROR);
                return;
            }
            client.try_send(&frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
        }
        panic!("3,000 requests were given up: {codes:?}");
    });
}

fn is_goaway(frame: &Frame) -> bool {
    frame.kind == GOAWAY
}

/// True for the answer to a ping.
fn is_answer(frame: &Frame) -> bool {
    frame.kind == PING && frame.flags & END_STREAM != 0
}

/// A client cancels requests, as a browser does when its user leaves a page or types: all other
/// requests are answered.
#[test]
fn a_client_that_gives_up_requests_gets_the_others() {
    let site = Site::with("in.php", "<?php echo strlen(file_get_contents('php://input'));");
    site.write("slow.php", "<?php file_get_contents('pipe'); echo 'wanted';");
    let pipe = site.fifo("pipe");
    let server = Server::start(site.root(), &["--workers", "2"]);
    let mut client = Frames::connect(server.clear_addr(), &[]);
    client.get(1, "/slow.php");
    let block = request("POST", "/in.php", &[]);
    // All that may be open, in one go: a page is left.
    let mut bytes = Vec::new();
    for stream in (3..203).step_by(2) {
        bytes.extend(frame(HEADERS, END_HEADERS, stream, &block));
        bytes.extend(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
    }
    bytes.extend(frame(PING, 0, 0, &[0; 8]));
    client.send(bytes);
    let answer = client.find(|frame| is_goaway(frame) || is_answer(frame)).unwrap();
    assert!(is_answer(&answer), "{answer:?}");
    for stream in (203..1003).step_by(2) {
        client.send(frame(HEADERS, END_HEADERS, stream, &block));
        client.send(frame(PING, 0, 0, &[0; 8]));
        let end = client.find(|frame| is_goaway(frame) || is_answer(frame)).unwrap();
        if is_goaway(&end) {
            assert_eq!(end.code(), NO_ERROR);
            break;
        }
        client.send(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
        assert!(stream < 1001, "400 requests were given up");
    }
    pipe.release();
    assert_eq!(client.body(1).unwrap(), b"wanted");
    client.half_close();
    assert_ne!(client.end(), Some(ENHANCE_YOUR_CALM));
}

/// CVE-2025-8671: the client makes the server reset its streams.
#[test]
fn requests_that_the_server_must_reset() {
    attack("made you reset", |client| {
        let block = request("POST", "/in.php", &[]);
        let mut bytes = Vec::new();
        for stream in (1..20_000).step_by(2) {
            bytes.extend(frame(HEADERS, END_HEADERS, stream, &block));
            bytes.extend(frame(WINDOW_UPDATE, 0, stream, &0x7fff_ffff_u32.to_be_bytes()));
        }
        client.try_send(&bytes);
        assert_eq!(client.end(), Some(ENHANCE_YOUR_CALM));
    });
}

/// CVE-2024-27316.
#[test]
fn fields_without_an_end() {
    for (what, payload) in [("continuations", &b"\x00\x01a\x01b"[..]), ("empty continuations", b"")]
    {
        attack(what, |client| {
            client.send(frame(HEADERS, END_STREAM, 1, &request("GET", "/quick.php", &[])));
            let many = frame(CONTINUATION, 0, 1, payload).repeat(1000);
            assert!(client.flood(&many, 64 * MB) < 64 * MB, "{what}");
        });
    }
}

/// A field of 4,000 bytes in the table, and then one byte for each further copy of it.
#[test]
fn fields_that_grow_when_they_are_decoded() {
    attack("HPACK bomb", |client| {
        let mut block = request("GET", "/quick.php", &[]);
        block.extend([0x40, 1, b'x', 127, 0xa1, 0x1e]);
        block.extend([b'a'; 4000]);
        block.extend([0xbe; 12_000]);
        for stream in (1..200).step_by(2) {
            client.try_send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &block));
        }
        let refused = client.find(|frame| frame.kind == GOAWAY || frame.stream == 1);
        assert!(refused.is_none_or(|frame| frame.kind != HEADERS || frame.payload[0] != 0x88));
    });
}

/// A few fields above the limit are refused on their stream.
#[test]
fn fields_beyond_the_limit() {
    let (_site, server) = serve();
    let mut client = server.http2();
    let large = Request::get("/quick.php").header("x", &"a".repeat(33 << 10));
    client.ask(&large).expect(431);
    let many = (0..200)
        .fold(Request::get("/quick.php"), |request, n| request.header(&format!("x-{n}"), "a"));
    client.ask(&many).expect(431);
    client.ask(&Request::get(&format!("/{}", "a".repeat(9000)))).expect(414);
    assert_eq!(client.ask(&Request::get("/quick.php")).text(), "quick");
}

/// More streams than allowed are refused, and the client may go on.
#[test]
fn streams_beyond_the_limit() {
    let (_site, server) = serve();
    let mut client = Frames::connect(server.clear_addr(), &[]);
    for stream in (1..300).step_by(2) {
        client.send(frame(HEADERS, END_HEADERS, stream, &request("POST", "/in.php", &[])));
    }
    let refused = client.find(|frame| frame.kind == RST_STREAM).unwrap();
    assert_eq!((refused.stream, refused.code()), (257, sendoff_tests::frames::REFUSED_STREAM));
    client.send(frame(DATA, END_STREAM, 1, b"abc"));
    assert_eq!(client.body(1).unwrap(), b"3");
}
