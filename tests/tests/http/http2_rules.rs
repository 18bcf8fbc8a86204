//! Rules of RFC 9113 and RFC 7541 that no other client here checks, by single frames.

use sendoff_tests::frames::{
    CANCEL, DATA, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, PING, PROTOCOL_ERROR,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, frame, request,
};
use sendoff_tests::{Server, Site, pattern};

const KB: usize = 1 << 10;
const MB: usize = 1 << 20;

/// SETTINGS_HEADER_TABLE_SIZE and SETTINGS_INITIAL_WINDOW_SIZE.
const TABLE: u16 = 1;
const WINDOW: u16 = 4;

fn serve() -> (Site, Server) {
    let site = Site::with("in.php", "<?php echo strlen(file_get_contents('php://input'));");
    site.write("small.txt", "small");
    site.write("large", pattern(1, 10 * MB));
    let server = Server::start(site.root(), &["--max-body", "1000"]);
    (site, server)
}

/// A client that sets the size of its dynamic table expects a size in the next block (RFC 7541
/// §4.2).
#[test]
fn a_table_of_another_size_is_acknowledged_in_the_next_block() {
    let (_site, server) = serve();
    let mut client = Frames::connect(server.clear_addr(), &[(TABLE, 0)]);
    client.get(1, "/small.txt");
    let first = client.find(|frame| frame.kind == HEADERS).unwrap();
    assert_eq!(first.payload[..2], [0x20, 0x88], "a size of 0, status 200");
    client.get(3, "/small.txt");
    let next = client.find(|frame| frame.kind == HEADERS).unwrap();
    assert_eq!(next.payload[0], 0x88);
}

/// The bodies of refused requests count for the window of the connection, and are given back.
#[test]
fn late_parts_of_bodies_do_not_use_up_the_window() {
    let (_site, server) = serve();
    let mut client = Frames::connect(server.clear_addr(), &[]);
    let part = vec![0; 16 * KB];
    for stream in (1..81).step_by(2) {
        let head = request("POST", "/in.php", &[("content-length", "1000000")]);
        client.send(frame(HEADERS, END_HEADERS, stream, &head));
        for _ in 0..8 {
            client.send(frame(DATA, 0, stream, &part));
        }
        client.send(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
        client.send(frame(PING, 0, 0, &[1; 8]));
        let is_end = |frame: &sendoff_tests::frames::Frame| {
            frame.kind == GOAWAY || frame.kind == PING && frame.flags == 1
        };
        assert_eq!(client.find(is_end).unwrap().kind, PING, "{stream}");
    }
    client.get(101, "/small.txt");
    assert_eq!(client.body(101).unwrap(), b"small");
}

/// RFC 9113 §8.1.1.
#[test]
fn a_body_of_another_length_resets_its_stream() {
    let (_site, server) = serve();
    let mut client = Frames::connect(server.clear_addr(), &[]);
    let head = request("POST", "/in.php", &[("content-length", "3")]);
    for (stream, body) in [(1, &b"four"[..]), (3, b"12"), (5, b"")] {
        client.send(frame(HEADERS, END_HEADERS, stream, &head));
        client.send(frame(DATA, END_STREAM, stream, body));
        assert_eq!(client.body(stream), Err(Some(PROTOCOL_ERROR)), "{body:?}");
    }
    client.send(frame(HEADERS, END_HEADERS, 7, &head));
    client.send(frame(DATA, END_STREAM, 7, b"123"));
    assert_eq!(client.body(7).unwrap(), b"3");
}

/// Streams that wait for the window of the connection get it in turn.
#[test]
fn streams_share_the_window_of_the_connection() {
    let (_site, server) = serve();
    let mut client = Frames::connect(server.clear_addr(), &[(WINDOW, 0x7fff_ffff)]);
    let streams = [1, 3, 5, 7];
    let mut received = [0; 4];
    for stream in streams {
        client.get(stream, "/large");
    }
    let all = 65_535 + 100 * 16_384;
    for round in 0..=100 {
        let allowed = 65_535 + round * 16_384;
        while received.iter().sum::<usize>() < allowed {
            let frame = client.find(|frame| frame.kind == DATA).unwrap();
            let place = streams.iter().position(|stream| *stream == frame.stream).unwrap();
            received[place] += frame.payload.len();
        }
        assert_eq!(received.iter().sum::<usize>(), allowed);
        client.allow(0, 16_384);
    }
    let least = received.iter().min().unwrap();
    assert!(*least > all / 8, "{received:?}");
}

/// Bytes that a reset drops have not used the window of the connection.
#[test]
fn a_reset_returns_the_window_of_what_was_not_sent() {
    let (_site, server) = serve();
    let mut client = Frames::connect(server.clear_addr(), &[(WINDOW, 0x7fff_ffff)]);
    let mut seen = 0;
    for stream in (1..41).step_by(2) {
        client.get(stream, "/large");
        let reset = frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
        client.send([reset, frame(PING, 0, 0, &[2; 8])].concat());
        loop {
            let frame = client.receive().unwrap();
            assert_ne!(frame.kind, GOAWAY);
            seen += if frame.kind == DATA { frame.payload.len() } else { 0 };
            if frame.kind == PING {
                break;
            }
        }
    }
    client.allow(0, u32::try_from(seen + 1).unwrap());
    client.get(99, "/small.txt");
    assert_eq!(client.body(99).unwrap(), b"small");
}

/// A window of nothing ends its stream; settings are acknowledged in their order.
#[test]
fn wrong_updates_end_their_stream_only() {
    let (_site, server) = serve();
    let mut client = Frames::connect(server.clear_addr(), &[(WINDOW, 0)]);
    client.get(1, "/large");
    client.send(frame(WINDOW_UPDATE, 0, 1, &[0; 4]));
    assert_eq!(client.body(1), Err(Some(PROTOCOL_ERROR)));
    client.send(frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 100]));
    client.get(3, "/small.txt");
    assert_eq!(client.body(3).unwrap(), b"small");
}

/// The tasks of streams that wait for a window are told: the server gives the connection back, which
/// every scenario checks at its end.
#[test]
fn a_connection_that_is_reset_leaves_no_stream() {
    let (_site, server) = serve();
    let mut client = Frames::connect(server.clear_addr(), &[(WINDOW, 0)]);
    client.get(1, "/large");
    client.find(|frame| frame.kind == HEADERS).unwrap();
    client.send(frame(PING, 0, 0, &[3; 8]));
    // Bytes that are not read make the kernel reset the connection.
    client.stream().peek(&mut [0]).unwrap();
}
