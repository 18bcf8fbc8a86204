//! The promise for responses of upstreams, over HTTP/1.1 and AJP: the result is the same however a
//! stream is cut, there is never more than one response, and the remaining bytes belong to none.

use std::fmt::Debug;

use bytes::BytesMut;
use sendoff_http1::client::{Reply, ResponseDecoder};

/// The result of a stream: its events as text, with joined bodies; the remaining bytes; true if it
/// was refused.
type Read = (Vec<String>, Vec<u8>, bool);

/// Maximum number of events that are kept for the comparison.
const MAX_WORDS: usize = 10_000;

fn http<'a>(is_head: bool, pieces: impl Iterator<Item = &'a [u8]>) -> Read {
    let (mut decoder, mut buf) = (ResponseDecoder::new(is_head), BytesMut::new());
    let (mut said, mut body, mut ended) = (Vec::new(), Vec::new(), false);
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            match decoder.next(&mut buf) {
                Ok(Reply::NeedMore) => break,
                Ok(Reply::Data(data)) => {
                    assert!(!data.is_empty() && !ended && !is_head);
                    body.extend_from_slice(&data);
                }
                Ok(Reply::End { may_stay }) => {
                    assert!(!ended, "a response ends once");
                    ended = true;
                    said.push(format!("{body:?} {may_stay}"));
                }
                Ok(Reply::Trailers(trailers)) => {
                    assert!(!ended && !trailers.fields().is_empty());
                    said.push(format!("{trailers:?}"));
                }
                Ok(reply) => {
                    assert!(!ended && body.is_empty());
                    note(&mut said, &reply);
                }
                Err(_) => return (said, Vec::new(), true),
            }
        }
    }
    if !ended {
        said.push(format!("{body:?} {}", decoder.closed()));
    }
    (said, buf.to_vec(), false)
}

fn ajp<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Read {
    let decoder = sendoff_ajp::Decoder::new(sendoff_ajp::PACKET_SIZE);
    let (mut buf, mut said) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        while !buf.is_empty() {
            match decoder.next(&mut buf) {
                Ok(Some(answer)) => note(&mut said, &answer),
                Ok(None) => break,
                Err(_) => return (said, Vec::new(), true),
            }
        }
    }
    (said, buf.to_vec(), false)
}

fn note(said: &mut Vec<String>, what: &impl Debug) {
    if said.len() < MAX_WORDS {
        said.push(format!("{what:?}"));
    }
}

/// Checks the promise for a stream, which follows the size of its pieces and the kind of the
/// stream.
///
/// # Panics
/// The promise is broken.
pub fn check(input: &[u8]) {
    let [size, kind, wire @ ..] = input else { return };
    let pieces = || wire.chunks(usize::from(*size).max(1));
    let (whole, cut) = match kind {
        b'a' => (ajp(std::iter::once(wire)), ajp(pieces())),
        kind => (http(*kind == b'h', std::iter::once(wire)), http(*kind == b'h', pieces())),
    };
    assert_eq!(whole, cut);
}

/// Streams to start from.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let http = [
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nX-A: b\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n06\r\n world\r\n0\r\nX-T: z\r\n\r\nnext",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close, X-A\r\nX-A: b\r\n\r\nabcd",
        "HTTP/1.0 404 No\r\n\r\nto the end",
        "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x01\x02",
        "HTTP/1.1 304 Not\r\nContent-Length: 5\r\n\r\n",
    ];
    let http = http
        .iter()
        .flat_map(|wire| [b'g', b'h'].map(|kind| [&[5, kind], wire.as_bytes()].concat()));
    let ajp = b"\x05aAB\0\x03\x06\x1f\xfaAB\0\x21\x04\0\xc8\0\x02OK\0\0\x02\xa0\x01\0\x09text/html\0\0\x03X-A\0\0\x01b\0AB\0\x09\x03\0\x05hello\0AB\0\x01\x09AB\0\x02\x05\x01";
    http.chain([ajp.to_vec()]).collect()
}

/// Strings that streams are likely to contain.
pub const WORDS: &[&[u8]] = &[
    b"\r\n",
    b"\r\n\r\n",
    b"Content-Length: 1\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"0\r\n\r\n",
    b"AB\0",
    b"\xff\xff",
    b"\xa0\x01",
];
