//! Servlet containers that speak AJP 1.3, scripted.

use sendoff_tests::{Broken, Request, Site, pattern};

use crate::pass_on;
use crate::responder::{Peer, Responder};

/// Reads a packet; its payload.
pub(crate) fn packet(peer: &mut Peer) -> Option<Vec<u8>> {
    let header = peer.bytes(4)?;
    assert_eq!(header[..2], [0x12, 0x34]);
    peer.bytes(usize::from(u16::from_be_bytes([header[2], header[3]])))
}

/// Reads a request; answers pings.
pub(crate) fn request(peer: &mut Peer) -> Option<Vec<u8>> {
    loop {
        let payload = packet(peer)?;
        if payload != [10] {
            assert_eq!(payload[0], 2);
            return Some(payload);
        }
        peer.say(b"AB\0\x01\x09")?;
    }
}

fn answer(payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len()).unwrap();
    [b"AB", &len.to_be_bytes()[..], payload].concat()
}

pub(crate) fn head(status: u16, fields: &[(&str, &str)]) -> Vec<u8> {
    let string = |text: &str| {
        let len = u16::try_from(text.len()).unwrap();
        [&len.to_be_bytes()[..], text.as_bytes(), b"\0"].concat()
    };
    let count = u16::try_from(fields.len()).unwrap();
    let mut payload =
        [&[4][..], &status.to_be_bytes(), &string("OK"), &count.to_be_bytes()].concat();
    for (name, value) in fields {
        payload.extend([string(name), string(value)].concat());
    }
    answer(&payload)
}

pub(crate) fn data(bytes: &[u8]) -> Vec<u8> {
    let len = u16::try_from(bytes.len()).unwrap();
    answer(&[&[3][..], &len.to_be_bytes(), bytes, b"\0"].concat())
}

fn url(app: &Responder) -> String {
    app.url().replace("http:", "ajp:")
}

pub(crate) const END: [u8; 6] = *b"AB\0\x02\x05\x01";

/// Answers requests with `ok`. Of a body it reads only the first packet, which comes unasked.
pub(crate) fn answer_ok(peer: &mut Peer) -> Option<()> {
    loop {
        if request(peer)?[1] == 4 {
            packet(peer)?;
        }
        say_ok(peer)?;
    }
}

pub(crate) fn say_ok(peer: &mut Peer) -> Option<()> {
    peer.say(head(200, &[]))?;
    peer.say(data(b"ok"))?;
    peer.say(END)
}

/// Asks for another piece of the body.
pub(crate) fn ask_for_more(peer: &mut Peer) -> Option<()> {
    peer.say(answer(&[6, 0x1f, 0xfa]))
}

#[test]
fn a_body_is_sent_as_it_is_asked_for_and_connections_are_kept() {
    let app = Responder::start(|peer| {
        loop {
            let request = request(peer)?;
            let mut body = Vec::new();
            if request[1] == 4 {
                loop {
                    let piece = packet(peer)?;
                    if piece.is_empty() {
                        break;
                    }
                    body.extend_from_slice(&piece[2..]);
                    peer.say(answer(&[6, 0x1f, 0xfa]))?;
                }
            }
            peer.say(head(200, &[("Content-Type", "text/plain"), ("X-A", "b")]))?;
            for part in body.chunks(8000) {
                peer.say(data(part))?;
            }
            peer.say(data(b"end"))?;
            peer.say(END)?;
        }
    });
    let site = Site::new();
    let server = pass_on(&site, &url(&app), ", secret = 's3cret'");
    let mut client = server.connect();
    let body = pattern(1, 200_000);
    for _ in 0..3 {
        let response = client.ask(&Request::post("/up", "text/plain", body.clone()));
        assert_eq!((response.status(), response.header("x-a")), (200, Some("b")));
        assert!(response.body == [&body[..], b"end"].concat());
        assert_eq!(client.ask(&Request::get("/")).text(), "end");
        assert!(client.ask(&Request::new("HEAD", "/")).body.is_empty());
    }
    assert_eq!(app.connections(), 1);
    let large = Request::get("/").header("Cookie", &"x".repeat(9000));
    assert_eq!(client.ask(&large).status(), 431);
}

#[test]
fn broken_answers_are_refused_or_cut() {
    let fine = [head(200, &[]), data(b"ok"), END.to_vec()].concat();
    let lengths = [("Content-Length", "1"), ("Content-Length", "2")];
    for (wire, outcome) in [
        (b"HTTP/1.1 400 Bad\r\n\r\n".to_vec(), 502),
        (END.to_vec(), 502),
        (data(b"early"), 502),
        (head(101, &[]), 502),
        (head(99, &[]), 502),
        (head(200, &lengths), 502),
        (b"AB\xff\xff".to_vec(), 502),
        (vec![], 502),
        ([head(200, &[]), head(200, &[])].concat(), 0),
        ([head(200, &[("Content-Length", "5")]), data(b"abc"), END.to_vec()].concat(), 0),
        ([head(200, &[]), data(b"abc")].concat(), 0),
        ([head(200, &[]), answer(&[7])].concat(), 0),
    ] {
        let fine = fine.clone();
        let shown = wire.escape_ascii().to_string();
        let app = Responder::start(move |peer| {
            let request = request(peer)?;
            let is_good = request.windows(5).any(|part| part == b"/good");
            peer.say_slowly(if is_good { &fine } else { &wire })
        });
        let site = Site::new();
        let server = pass_on(&site, &url(&app), "");
        match server.connect().try_ask(&Request::get("/")) {
            Ok(response) => assert!(response.status() == 502, "{shown}"),
            Err(broken) => assert!(
                outcome == 0 && matches!(broken, Broken::Cut(_) | Broken::Closed),
                "{shown}"
            ),
        }
        assert_eq!(server.page("/good"), "ok", "{shown}");
    }
}

#[test]
fn files_named_in_a_body_are_sent() {
    let site = Site::new();
    let file = site.write_at(site.outside("files/a.bin"), pattern(1, 100_000));
    let name = file.display().to_string();
    let app = Responder::start(move |peer| {
        request(peer)?;
        peer.say(head(200, &[("X-ZeroCopy", "chunked")]))?;
        peer.say(data(format!("5\r\nhello\r\n{:x};file\r\n{name}\r\n", name.len()).as_bytes()))?;
        peer.say(data(b"0\r\n\r\n"))?;
        peer.say(END)
    });
    let server = crate::serve(
        &site,
        &format!("sendfile_from = 'files'\n[[site.route]]\nproxy = '{}'\n", url(&app)),
    );
    let expected = [b"hello", &pattern(1, 100_000)[..]].concat();
    assert!(server.get("/").expect(200) == expected);
}
