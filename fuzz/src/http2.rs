//! The promise: the frames of a connection over HTTP/2 are the same however its bytes are cut, and a
//! head that is accepted could be written as HTTP/1.1. Fields that are encoded are decoded to the
//! same fields.

use bytes::{Bytes, BytesMut};
use http::{StatusCode, Version};
use sendoff_field_section::{FieldSection, SectionBuilder};
use sendoff_http2::hpack::{self, Decoder};
use sendoff_http2::{Code, ConnectionError, Frame, FrameDecoder, Setting, encode};

use crate::heads;

const MAX_BLOCK: usize = 2048;
const MAX_SECTION: usize = 1024;

/// The frames and the field blocks in these pieces, and the error at their end.
fn frames<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (Vec<String>, Vec<Vec<u8>>, Option<ConnectionError>) {
    let (mut decoder, mut buffer) = (FrameDecoder::new(MAX_BLOCK), Vec::new());
    let (mut frames, mut blocks) = (Vec::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        let mut at = 0;
        loop {
            match decoder.next(&buffer[at..]) {
                Ok(None) => break,
                Ok(Some((frame, size))) => {
                    at += size;
                    if let Frame::Headers { block, .. } = &frame {
                        blocks.push(block.to_vec());
                    }
                    frames.push(format!("{frame:?}"));
                }
                Err(error) => return (frames, blocks, Some(error)),
            }
        }
        buffer.drain(..at);
    }
    (frames, blocks, None)
}

/// The head in a block, if it is valid, and false if the block cannot be decoded.
fn section(decoder: &mut Decoder, block: &[u8]) -> (Option<FieldSection>, bool) {
    let (mut fields, mut is_valid) = (SectionBuilder::new(MAX_SECTION), true);
    let decoded = decoder.decode(block, |name, value| {
        is_valid = is_valid && fields.push(&name, value).is_ok();
    });
    let head = is_valid.then(|| fields.finish().ok()).flatten();
    (head, decoded.is_ok())
}

/// Fields that are encoded again have the same names, in lower case, and values.
fn again(block: &[u8]) {
    let mut fields: Vec<(Bytes, Bytes)> = Vec::new();
    let field = |name: Bytes, value| fields.push((name.to_ascii_lowercase().into(), value));
    if Decoder::default().decode(block, field).is_err() {
        return;
    }
    let mut out = BytesMut::new();
    hpack::encode_trailers(fields.iter().map(|(name, value)| (&name[..], &value[..])), &mut out);
    let mut decoded = Vec::new();
    let result = Decoder::default().decode(&out, |name, value| decoded.push((name, value)));
    assert_eq!((result, decoded), (Ok(()), fields));
}

/// Checks the promise for a client's bytes.
///
/// # Panics
/// The promise is broken.
pub fn check(input: &[u8]) {
    let whole = frames([input].into_iter());
    let (first, second) = input.split_at(input.len() / 2);
    assert_eq!(frames([first, second].into_iter()), whole);
    assert_eq!(frames(input.chunks(1)), whole);
    let mut decoder = Decoder::default();
    for block in whole.1.iter().map(|block| &block[..]).chain([input]) {
        let (section, is_decoded) = section(&mut decoder, block);
        section.into_iter().for_each(|head| heads::check(head, Version::HTTP_2, MAX_SECTION));
        again(block);
        if !is_decoded {
            break;
        }
    }
}

/// Inputs to start from.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    // `GET http://www.example.com/` (RFC 7541 C.4.1), and two fields.
    let mut block =
        b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff".to_vec();
    block.extend_from_slice(b"\x40\x03x-a\x01b\x10\x03x-c\x01d\xbe");
    let mut bytes = BytesMut::new();
    encode::settings(&[Setting::InitialWindowSize(1), Setting::EnableConnectProtocol], &mut bytes);
    encode::headers(1, &block, false, &mut bytes);
    encode::data_header(1, 5, true, &mut bytes);
    bytes.extend_from_slice(b"hello");
    encode::window_update(0, 1, &mut bytes);
    encode::ping(false, [0; 8], &mut bytes);
    encode::rst_stream(1, Code::NO_ERROR, &mut bytes);
    encode::settings_ack(&mut bytes);
    encode::goaway(0, Code::NO_ERROR, "", &mut bytes);
    // HEADERS without END_HEADERS, CONTINUATION with it.
    let mut cut = BytesMut::new();
    encode::settings(&[], &mut cut);
    cut.extend_from_slice(b"\0\0\x02\x01\x01\0\0\0\x03\x82\x86\0\0\x01\x09\x04\0\0\0\x03\x84");
    let mut response = BytesMut::new();
    hpack::encode(StatusCode::OK, [(&b"vary"[..], &b"x"[..])].into_iter(), &mut response);
    vec![block, bytes.to_vec(), cut.to_vec(), response.to_vec()]
}

/// Strings that inputs are likely to contain.
pub const WORDS: &[&[u8]] = &[
    b"\0\0\0\x04\x01\0\0\0\0",
    b"\0\0\x05\x00\x08\0\0\0\x01",
    b"\0\0\x01\x01\x25\0\0\0\x05",
    b"\0\0\x01\x09\x04\0\0\0\x01",
    b"\0\0\x05\x02\x00\0\0\0\x01",
    b"\x3f\xe1\x1f",
    b"\x20",
    b"\xbe",
    b"\x82",
    b":path",
    b":protocol",
    b"content-length",
    b"\xff",
    b"/",
];
