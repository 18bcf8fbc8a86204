//! Frames of a server.

use bytes::{BufMut, BytesMut};

use crate::{Code, MAX_FRAME, Setting, flag, kind};

/// Appends SETTINGS.
pub fn settings(all: &[Setting], out: &mut BytesMut) {
    header(all.len() * 6, kind::SETTINGS, 0, 0, out);
    for (name, value) in all.iter().map(|setting| setting.parts()) {
        out.put_u16(name);
        out.put_u32(value);
    }
}

/// Appends the acknowledgement of a SETTINGS frame.
pub fn settings_ack(out: &mut BytesMut) {
    header(0, kind::SETTINGS, flag::ACK, 0, out);
}

/// Appends PING, or its acknowledgement.
pub fn ping(is_ack: bool, payload: [u8; 8], out: &mut BytesMut) {
    header(8, kind::PING, if is_ack { flag::ACK } else { 0 }, 0, out);
    out.put_slice(&payload);
}

/// Appends GOAWAY. `last`: the last stream whose request may be answered.
pub fn goaway(last: u32, code: Code, debug: &str, out: &mut BytesMut) {
    header(8 + debug.len(), kind::GOAWAY, 0, 0, out);
    out.put_u32(last);
    out.put_u32(code.0);
    out.put_slice(debug.as_bytes());
}

/// Appends `WINDOW_UPDATE`; the stream 0 is the connection.
pub fn window_update(stream: u32, increment: u32, out: &mut BytesMut) {
    header(4, kind::WINDOW_UPDATE, 0, stream, out);
    out.put_u32(increment);
}

/// Appends `RST_STREAM`.
pub fn rst_stream(stream: u32, code: Code, out: &mut BytesMut) {
    header(4, kind::RST_STREAM, 0, stream, out);
    out.put_u32(code.0);
}

/// Appends a field block as HEADERS and, if it is larger than a frame, CONTINUATION (RFC 9113
/// §6.10). `ends`: no body follows.
pub fn headers(stream: u32, block: &[u8], ends: bool, out: &mut BytesMut) {
    let (first, mut rest) = block.split_at(block.len().min(MAX_FRAME));
    let end = |rest: &[u8]| if rest.is_empty() { flag::END_HEADERS } else { 0 };
    let ends = if ends { flag::END_STREAM } else { 0 };
    header(first.len(), kind::HEADERS, end(rest) | ends, stream, out);
    out.put_slice(first);
    while !rest.is_empty() {
        let part;
        (part, rest) = rest.split_at(rest.len().min(MAX_FRAME));
        header(part.len(), kind::CONTINUATION, end(rest), stream, out);
        out.put_slice(part);
    }
}

/// Appends the header of a DATA frame, at most [`MAX_FRAME`] bytes long.
pub fn data_header(stream: u32, len: usize, ends: bool, out: &mut BytesMut) {
    header(len, kind::DATA, if ends { flag::END_STREAM } else { 0 }, stream, out);
}

fn header(len: usize, kind: u8, flags: u8, stream: u32, out: &mut BytesMut) {
    debug_assert!(len <= MAX_FRAME, "a frame is too large");
    let [.., a, b, c] = len.to_be_bytes();
    let stream = stream.to_be_bytes();
    out.put_slice(&[a, b, c, kind, flags, stream[0], stream[1], stream[2], stream[3]]);
}
