//! The promise: a request over HTTP/3 means the same however its stream is cut, the bytes of its
//! body are bytes of the stream, and a head that is accepted could be written as HTTP/1.1. A control
//! stream means the same however it is cut.

use bytes::{Bytes, BytesMut};
use http::Version;
use sendoff_http3::frame::{self, Control, ControlDecoder, RequestDecoder, RequestPart};
use sendoff_http3::{Code, qpack};

use crate::heads;

const MAX_SECTION: usize = 1024;

/// The parts of a request stream, its body joined, and the error at its end.
fn parts(pieces: &[&[u8]]) -> (Vec<Bytes>, Vec<u8>, Option<frame::Error>) {
    let (mut decoder, mut buffer) = (RequestDecoder::new(MAX_SECTION), BytesMut::new());
    let (mut sections, mut body) = (Vec::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.next(&mut buffer) {
                Ok(RequestPart::NeedMore) => break,
                Ok(RequestPart::Data(data)) => body.extend_from_slice(&data),
                Ok(RequestPart::Head(section) | RequestPart::Trailers(section)) => {
                    sections.push(section);
                }
                Err(error) => return (sections, body, Some(error)),
            }
        }
    }
    (sections, body, None)
}

fn controls(pieces: &[&[u8]]) -> (Vec<Control>, Option<Code>) {
    let (mut decoder, mut buffer) = (ControlDecoder::default(), BytesMut::new());
    let mut controls = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.next(&mut buffer) {
                Ok(Control::NeedMore) => break,
                Ok(control) => controls.push(control),
                Err(code) => return (controls, Some(code)),
            }
        }
    }
    (controls, None)
}

fn head(section: &[u8]) {
    if let Ok(head) = qpack::decode(section, MAX_SECTION) {
        heads::check(head, Version::HTTP_3, MAX_SECTION);
    }
}

/// Checks the promise for a client's bytes.
///
/// # Panics
/// The promise is broken.
pub fn check(input: &[u8]) {
    let whole = parts(&[input]);
    assert!(whole.1.len() <= input.len());
    let middle = input.len() / 2;
    assert_eq!(parts(&[&input[..middle], &input[middle..]]), whole);
    let bytes: Vec<_> = input.chunks(1).collect();
    assert_eq!(parts(&bytes), whole);
    assert_eq!(controls(&bytes), controls(&[input]));
    whole.0.iter().for_each(|section| head(section));
    head(input);
}

/// Inputs to start from.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    // `GET https://a.example/`, with two literal fields.
    let mut section = b"\x00\x00\xd1\xd7\xc1\x50\x09a.example".to_vec();
    section.extend_from_slice(b"\x23x-a\x01b\x5f\x1d\x01c");
    let mut request = BytesMut::new();
    frame::headers(&section, &mut request);
    frame::data_header(5, &mut request);
    request.extend_from_slice(b"hello");
    frame::headers(b"\x00\x00\x23x-t\x01z", &mut request);
    let mut control = BytesMut::new();
    frame::settings(4096, true, &mut control);
    frame::goaway(8, &mut control);
    vec![section, request.to_vec(), control.to_vec()]
}

/// Strings that inputs are likely to contain.
pub const WORDS: &[&[u8]] = &[
    b"\x00\x00",
    b"\x01",
    b"\x04",
    b"\x07",
    b"\x0d\x01",
    b"\x40\x21",
    b"\xd1",
    b"\xd7",
    b"\xc1",
    b":path",
    b":method",
    b":protocol",
    b"CONNECT",
    b"content-length",
    b"\xff",
    b"\x80",
    b"/",
];
