//! HTTP/2 clients that keep to the protocol but mean harm: windows of one byte and below zero,
//! fields that other parsers read differently, bodies that trickle. The bytes are right, the worker
//! is free, the memory is bounded.

use std::time::{Duration, Instant};

use sendoff_tests::frames::{
    CANCEL, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, Frame, Frames, GOAWAY, HEADERS, PING,
    RST_STREAM, SETTINGS, fields, frame, request,
};
use sendoff_tests::{LIMIT, Request, Server, Site, pattern, processes};

const MB: usize = 1 << 20;

/// SETTINGS_INITIAL_WINDOW_SIZE.
const WINDOW: u16 = 4;

/// PRIORITY_UPDATE (RFC 9218 §7.1).
const PRIORITY_UPDATE: u8 = 0x10;

/// Flag of a frame: its payload begins with the length of its padding.
const PADDED: u8 = 8;

const SHA1_OF_ABC: &[u8] = b"a9993e364706816aba3e25717850c26c9cd0d89d";

fn site() -> Site {
    let site = Site::with("quick.php", "<?php echo 'quick';");
    site.write("in.php", "<?php echo sha1(file_get_contents('php://input'));");
    site.write(
        "seen.php",
        "<?php file_put_contents('reached', $_SERVER['REQUEST_URI'] . \"\\n\", FILE_APPEND);
        echo json_encode([$_SERVER['HTTP_HOST'], $_SERVER['HTTP_COOKIE'] ?? null, $_SERVER['REQUEST_URI'], $_SERVER['HTTPS'] ?? null]);",
    );
    site.write(
        "made.php",
        "<?php for ($i = 0; $i < 10000; $i++) echo str_repeat(chr(65 + $i % 26), 1024);",
    );
    site.write("file.php", "<?php readfile('large');");
    site.write("large", pattern(1, 10 * MB));
    site.write("small.txt", "small");
    site
}

fn made() -> Vec<u8> {
    (0..10_000_u32).flat_map(|i| [b'A' + u8::try_from(i % 26).unwrap(); 1024]).collect()
}

fn window(size: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&WINDOW.to_be_bytes()[..], &size.to_be_bytes()].concat())
}

/// Streams of 10 MB each, whose window grows by one byte at a time.
#[test]
fn windows_of_a_byte() {
    let site = site();
    let server = Server::start(site.root(), &["--workers", "2", "--send-timeout", "600"]);
    // Generated pages wait on disk, so there are fewer of them.
    let paths = ["/made.php", "/file.php", "/file.php", "/file.php", "/large"];
    for path in paths {
        server.http2().ask(&Request::get(path));
    }
    let before = processes::private_memory(server.front());
    let mut clients: Vec<_> = (0..10)
        .map(|_| {
            let mut client = Frames::connect(server.clear_addr(), &[(WINDOW, 1)]);
            for n in 0..100 {
                client.get(2 * n + 1, paths[(n % 5) as usize]);
            }
            client
        })
        .collect();
    for client in &mut clients {
        let mut begun = 0;
        while begun < 100 {
            let frame = client.receive().unwrap();
            begun += usize::from(frame.kind == DATA);
            assert!(frame.kind != DATA || frame.payload.len() == 1, "{frame:?}");
        }
        // One more each, as an answer to one more each.
        (0..100).for_each(|n| client.allow(2 * n + 1, 1));
        (0..100).for_each(|_| drop(client.find(|frame| frame.kind == DATA).unwrap()));
    }
    let grown = processes::private_memory(server.front()).saturating_sub(before);
    assert!(grown < 100 << 20, "1,000 streams cost {} MiB", grown >> 20);
    let began = Instant::now();
    assert_eq!(server.page("/quick.php"), "quick");
    assert!(began.elapsed() < LIMIT / 3, "{:?}", began.elapsed());
}

/// Every byte takes 13 of the client's and a wakeup of the server's.
#[test]
fn a_body_byte_by_byte_is_not_sent_to_its_end() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let mut client = Frames::connect(server.clear_addr(), &[(WINDOW, 0)]);
    client.allow(0, 0x7000_0000);
    client.get(1, "/large");
    let update = frame(sendoff_tests::frames::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]).repeat(500);
    let mut reader = client.stream().try_clone().unwrap();
    let drain = std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    assert!(client.flood(&update, 128 * MB) < 128 * MB, "all of it");
    let _reset = drain.join().unwrap();
    server.await_log("frames that ask for nothing");
    assert_eq!(server.page("/quick.php"), "quick");
}

/// A smaller initial window makes the windows of open streams negative (RFC 9113 §6.9.2).
#[test]
fn windows_below_zero() {
    const FIRST: u32 = 60_000;
    let site = site();
    let server = Server::start(site.root(), &["--send-timeout", "600"]);
    for (path, whole) in
        [("/large", pattern(1, 10 * MB)), ("/file.php", pattern(1, 10 * MB)), ("/made.php", made())]
    {
        let mut client = Frames::connect(server.clear_addr(), &[(WINDOW, FIRST)]);
        client.allow(0, 0x7000_0000);
        client.get(1, path);
        // The number of bytes that the server may have sent in all, and the newest initial window.
        let (mut allowed, mut initial) = (i64::from(FIRST), i64::from(FIRST));
        let mut body = Vec::new();
        let receive = |client: &mut Frames, body: &mut Vec<u8>, allowed: i64| {
            let frame = client.receive().unwrap();
            if frame.kind == DATA {
                body.extend(&frame.payload);
                assert!(i64::try_from(body.len()).unwrap() <= allowed, "{path}: too much");
            }
            frame
        };
        let sizes = [0, 1, 100_000, 7, 1_000_000, 0, 300_000].into_iter().cycle();
        for (size, more) in sizes.zip([0, 50_000, 1, 150_000, 200_000].into_iter().cycle()) {
            while body.len() < whole.len() && i64::try_from(body.len()).unwrap() < allowed {
                receive(&mut client, &mut body, allowed);
            }
            if body.len() == whole.len() {
                break;
            }
            client.send(window(size));
            allowed += i64::from(size) - initial;
            initial = i64::from(size);
            if more > 0 {
                client.allow(1, more);
                allowed += i64::from(more);
            }
            let is_acknowledged = |frame: &Frame| frame.kind == SETTINGS && frame.flags == 1;
            while !is_acknowledged(&receive(&mut client, &mut body, allowed)) {}
        }
        assert!(body == whole, "{path}: other bytes");
    }
}

/// The first frame on the stream of a request with this field block, or the GOAWAY.
fn outcome(server: &Server, block: &[u8]) -> Option<Frame> {
    let mut client = Frames::connect(server.clear_addr(), &[]);
    client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block));
    client.find(|frame| frame.stream == 1 || frame.kind == GOAWAY)
}

#[test]
fn fields_that_others_read_in_another_way_reach_no_script() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let usual =
        [(":method", "GET"), (":scheme", "http"), (":path", "/seen.php"), (":authority", "a")];
    let with = |more: &[(&str, &str)]| fields(&[&usual[..], more].concat());
    let path = |path: &str| request("GET", path, &[]);
    let authority = |name: &str| fields(&[usual[0], usual[1], usual[2], (":authority", name)]);
    for block in [
        with(&[("X-Upper", "a")]),
        with(&[("x y", "a")]),
        with(&[("x:y", "a")]),
        with(&[("", "a")]),
        with(&[("x\r\nhost", "b")]),
        with(&[("x", "a\r\n\r\nGET /seen.php HTTP/1.1")]),
        with(&[("x", "a\nb")]),
        with(&[("x", "a\0b")]),
        with(&[("x", "\x01\x7f")]),
        with(&[("cookie", "a=1"), ("cookie", "b=2\r\nx: y")]),
        with(&[(":path", "/other")]),
        with(&[(":method", "POST")]),
        with(&[(":status", "200")]),
        with(&[(":protocol", "websocket")]),
        with(&[(":unknown", "a")]),
        with(&[("x", "a"), (":authority", "b")]),
        with(&[("host", "b")]),
        with(&[("host", "")]),
        with(&[("content-length", "0"), ("content-length", "1")]),
        with(&[("content-length", "0, 0")]),
        with(&[("content-length", "-1")]),
        with(&[("content-length", "0x0")]),
        with(&[("content-length", "18446744073709551616")]),
        with(&[("te", "trailers, chunked")]),
        with(&[("proxy-connection", "x")]),
        with(&[("keep-alive", "1")]),
        with(&[("connection", "x-forwarded-for")]),
        path("/seen.php \t"),
        path("/seen.php\r\nx: y"),
        path("/seen.php\0"),
        path("/seen.php?\u{7f}"),
        path("//user@host:1/../seen.php%00"),
        path("/%2e%2e/%2e%2e/etc/passwd"),
        path("/../../../../etc/passwd"),
        path("/small.txt#/../seen.php"),
        path("seen.php"),
        path("\\seen.php"),
        path("*"),
        path("ftp://a/seen.php"),
        authority("user@a"),
        authority("a, b"),
        authority("a/b"),
        authority("a b"),
        authority("a#b"),
        authority("a\r\nx: y"),
        authority(""),
        fields(&[(":method", "GE T"), usual[1], usual[2], usual[3]]),
        fields(&[(":method", ""), usual[1], usual[2], usual[3]]),
        fields(&[(":method", "GET\r\n"), usual[1], usual[2], usual[3]]),
        fields(&[usual[0], usual[1], usual[3]]),
        fields(&[usual[0], usual[2], usual[3]]),
        fields(&[usual[1], usual[2], usual[3]]),
    ] {
        let shown = String::from_utf8_lossy(&block).into_owned();
        let first = outcome(&server, &block);
        let is_refused = first.as_ref().is_none_or(|frame| match frame.kind {
            // The statuses 200, 204 and 206 have their own entries in the table (RFC 7541, appendix
            // A).
            HEADERS => !(0x88..=0x8a).contains(&frame.payload[0]),
            RST_STREAM | GOAWAY => true,
            _ => false,
        });
        assert!(is_refused, "{shown:?}: {first:?}");
    }
    assert!(!site.path("reached").exists(), "{:?}", std::fs::read_to_string(site.path("reached")));
    // Crumbs of cookies are one field, in their order.
    let crumbs: Vec<String> = (0..90).map(|n| format!("c{n}={n}")).collect();
    let more: Vec<_> = crumbs.iter().map(|crumb| ("cookie", &crumb[..])).collect();
    let mut client = Frames::connect(server.clear_addr(), &[]);
    client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &with(&more)));
    let seen = String::from_utf8(client.body(1).unwrap()).unwrap();
    assert_eq!(seen, format!("[\"a\",\"{}\",\"\\/seen.php\",null]", crumbs.join("; ")));
}

#[test]
fn trailers_and_frames_behind_the_end() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let post = request("POST", "/in.php", &[]);
    for trailers in [
        &[("X-Upper", "a")][..],
        &[("x", "a\r\nb: c")],
        &[("connection", "close")],
        &[("transfer-encoding", "chunked")],
        &[(":path", "/small.txt")],
        &[(":method", "GET")],
    ] {
        let mut client = Frames::connect(server.clear_addr(), &[]);
        client.send(frame(HEADERS, END_HEADERS, 1, &post));
        client.send(frame(DATA, 0, 1, b"abc"));
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields(trailers)));
        let first = client.find(|frame| frame.stream == 1 || frame.kind == GOAWAY);
        let is_reset = first.as_ref().is_none_or(|f| matches!(f.kind, RST_STREAM | GOAWAY));
        assert!(is_reset, "{trailers:?}: {first:?}");
    }
    // A trailer that may not be passed on is dropped: the request does not change.
    let mut client = Frames::connect(server.clear_addr(), &[]);
    client.send(frame(HEADERS, END_HEADERS, 1, &post));
    client.send(frame(DATA, 0, 1, b"abc"));
    let trailers = fields(&[("content-length", "9")]);
    client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &trailers));
    assert_eq!(client.body(1).unwrap(), SHA1_OF_ABC);
    // A reset of a complete or an answered request affects no other request.
    let mut client = Frames::connect(server.clear_addr(), &[]);
    client.get(1, "/small.txt");
    assert_eq!(client.body(1).unwrap(), b"small");
    client.send(frame(RST_STREAM, 0, 1, &CANCEL.to_be_bytes()));
    // Bytes that were sent before the reset came have used the window of the connection.
    client.allow(0, 1 << 20);
    client.get(3, "/large");
    client.send(frame(RST_STREAM, 0, 3, &CANCEL.to_be_bytes()));
    client.get(5, "/small.txt");
    assert_eq!(client.body(5).unwrap(), b"small");
    // Padding and priorities are no part of a body, or of fields.
    let padded = [&[3_u8][..], b"abc", &[0; 3]].concat();
    client.send(frame(HEADERS, END_HEADERS, 7, &post));
    client.send(frame(DATA, PADDED | END_STREAM, 7, &padded));
    assert_eq!(client.body(7).unwrap(), SHA1_OF_ABC);
}

/// RFC 9218; this server has no use for them.
#[test]
fn priorities_that_are_updated_for_ever() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let before = processes::private_memory(server.front());
    let mut client = Frames::connect(server.clear_addr(), &[]);
    let mut bytes = Vec::new();
    for stream in 0..2000_u32 {
        let value = [&(2 * stream + 1).to_be_bytes()[..], b"u=0, i"].concat();
        bytes.extend(frame(PRIORITY_UPDATE, 0, 0, &value));
    }
    // A few are not an excessive load.
    client.send(&bytes);
    client.get(1, "/small.txt");
    assert_eq!(client.body(1).unwrap(), b"small");
    assert!(client.flood(&bytes, 64 * MB) < 64 * MB, "all of them");
    let code = client.end();
    assert!(code.is_none_or(|code| code == ENHANCE_YOUR_CALM), "{code:?}");
    let grown = processes::private_memory(server.front()).saturating_sub(before);
    assert!(grown < 16 << 20, "{} KiB", grown >> 10);
}

/// A frame of 17 bytes would make a line of 100.
#[test]
fn single_frames_leave_no_line_in_the_log() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let mut client = Frames::connect(server.clear_addr(), &[]);
    let acknowledgements = (0..1000_u64).flat_map(|n| frame(PING, 1, 0, &n.to_be_bytes()));
    client.send(acknowledgements.collect::<Vec<_>>());
    client.get(1, "/small.txt");
    assert_eq!(client.body(1).unwrap(), b"small");
    let log = server.log();
    assert!(log.lines().count() < 10, "{log}");
}

/// 4,000 bodies that come a byte at a time, with pauses.
#[test]
fn bodies_that_trickle_hold_no_worker() {
    let site = site();
    let server = Server::start(site.root(), &["--workers", "1", "--body-timeout", "600"]);
    let before = processes::private_memory(server.front());
    let post = request("POST", "/in.php", &[("content-length", "100000")]);
    let mut clients: Vec<_> = (0..32)
        .map(|_| {
            let mut client = Frames::connect(server.clear_addr(), &[]);
            for n in 0..125 {
                client.send(frame(HEADERS, END_HEADERS, 2 * n + 1, &post));
            }
            client
        })
        .collect();
    for round in 0..3_u8 {
        for client in &mut clients {
            for n in 0..125 {
                client.send(frame(DATA, 0, 2 * n + 1, &[round]));
            }
            client.send(frame(PING, 0, 0, &[round; 8]));
            client.find(|frame| frame.kind == PING && frame.payload == [round; 8]).unwrap();
        }
        let began = Instant::now();
        assert_eq!(server.page("/quick.php"), "quick");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
    let grown = processes::private_memory(server.front()).saturating_sub(before);
    assert!(grown < 100 << 20, "4,000 bodies cost {} MiB", grown >> 20);
}
