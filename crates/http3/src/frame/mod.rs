//! Frames (RFC 9114 §7): decoders for request streams and for the control stream, and encoders for
//! the frames of a server.

mod control;
mod request;

#[cfg(test)]
mod tests;

use bytes::{BufMut, BytesMut};

use crate::{Code, varint};

pub use control::{Control, ControlDecoder, MAX_PAYLOAD, Settings, settings};
pub use request::{RequestDecoder, RequestPart};

const DATA: u64 = 0x0;
const HEADERS: u64 = 0x1;
const CANCEL_PUSH: u64 = 0x3;
const SETTINGS: u64 = 0x4;
const PUSH_PROMISE: u64 = 0x5;
const GOAWAY: u64 = 0x7;
const MAX_PUSH_ID: u64 = 0xd;

/// An error in the frames of a request stream. The client is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// The server closes the connection with this code.
    Connection(Code),
    /// A field section exceeds the limit. The server may answer with status 431, or resets the
    /// stream with [`Code::EXCESSIVE_LOAD`]; the connection stays usable.
    SectionTooLarge,
}

/// Type and length of a frame (RFC 9114 §7.1), and the size of this header itself.
struct Header {
    kind: u64,
    length: u64,
    size: usize,
}

impl Header {
    /// The header at the beginning of `bytes`; `None` if more bytes are needed.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, kind_size) = varint::decode(bytes)?;
        let (length, length_size) = varint::decode(&bytes[kind_size..])?;
        Some(Self { kind, length, size: kind_size + length_size })
    }

    /// True if the RFC defines the type, or forbids it because HTTP/2 has it (RFC 9114 §7.2.8).
    const fn is_known(&self) -> bool {
        let is_frame = matches!(self.kind, DATA | HEADERS | CANCEL_PUSH | SETTINGS | PUSH_PROMISE);
        is_frame || matches!(self.kind, GOAWAY | MAX_PUSH_ID | 0x2 | 0x6 | 0x8 | 0x9)
    }
}

/// The bytes of `buf` that belong to a payload of which `left` bytes are missing.
fn available(buf: &BytesMut, left: u64) -> usize {
    usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()))
}

/// Appends the type of the server's control stream (RFC 9114 §6.2.1), which [`settings`] follow.
pub fn control_stream(out: &mut BytesMut) {
    varint::encode(0, out);
}

/// Appends the header of a DATA frame (RFC 9114 §7.2.1), whose payload of `length` bytes follows.
pub fn data_header(length: u64, out: &mut BytesMut) {
    varint::encode(DATA, out);
    varint::encode(length, out);
}

/// Appends a HEADERS frame (RFC 9114 §7.2.2) with an encoded field section.
pub fn headers(section: &[u8], out: &mut BytesMut) {
    varint::encode(HEADERS, out);
    varint::encode(section.len() as u64, out);
    out.put_slice(section);
}

/// Appends a GOAWAY frame (RFC 9114 §7.2.6): requests with this stream id and higher ones are not
/// processed. A later frame must not have a higher id.
pub fn goaway(id: u64, out: &mut BytesMut) {
    varint::encode(GOAWAY, out);
    varint::encode(varint::len(id) as u64, out);
    varint::encode(id, out);
}
