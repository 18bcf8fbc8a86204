//! How the end of a response body is found (RFC 9112 §6), and the head that says so.

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode, Version};
use sendoff_http1::{CHUNK_END, HeadEncoder, LAST_CHUNK, encode_chunk_header};

/// How the client finds the end of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is no body, whatever the head says (HEAD, 1xx, 204, 304).
    NoBody,
    /// `Content-Length`; so many bytes are still to come.
    Length(u64),
    /// Chunked coding.
    Chunked,
    /// The end of the connection; an HTTP/1.0 client knows nothing better.
    Close,
}

impl Framing {
    /// The framing for a body of `length` bytes, if that is known.
    #[must_use]
    pub fn choose(
        method: &Method,
        version: Version,
        status: StatusCode,
        length: Option<u64>,
    ) -> Self {
        let bodiless = status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
        match length {
            _ if *method == Method::HEAD || bodiless => Self::NoBody,
            Some(length) => Self::Length(length),
            None if version == Version::HTTP_11 => Self::Chunked,
            None => Self::Close,
        }
    }

    /// What stands before a piece of `len` bytes on the wire.
    #[must_use]
    pub fn before_piece(self, len: u64) -> Option<Bytes> {
        if self != Self::Chunked {
            return None;
        }
        let mut out = BytesMut::with_capacity(18);
        encode_chunk_header(&mut out, len);
        Some(out.freeze())
    }

    /// What stands after a piece.
    #[must_use]
    pub fn after_piece(self) -> Option<Bytes> {
        (self == Self::Chunked).then_some(Bytes::from_static(CHUNK_END))
    }

    /// What ends the body.
    #[must_use]
    pub fn end(self) -> Option<Bytes> {
        (self == Self::Chunked).then_some(Bytes::from_static(LAST_CHUNK))
    }
}

/// A response head that is being written.
#[derive(Debug)]
pub struct Head<'a> {
    encoder: HeadEncoder<'a>,
}

impl<'a> Head<'a> {
    /// Writes the status line.
    pub fn new(out: &'a mut BytesMut, status: StatusCode, reason: Option<&[u8]>) -> Self {
        Self { encoder: HeadEncoder::new(out, status, reason) }
    }

    /// Writes a field. One that would break the head is left out and logged.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        if self.encoder.field(name, value).is_err() {
            let name = String::from_utf8_lossy(name);
            tracing::warn!("a response field was left out, it holds control characters: {name}");
        }
    }

    /// Writes the fields that frame the body and the end of the head. `length` is what the application would have sent,
    /// for a response without a body.
    pub fn finish(
        mut self,
        framing: Framing,
        length: Option<u64>,
        version: Version,
        keep_alive: bool,
    ) {
        match framing {
            Framing::Length(length) => self.encoder.number("Content-Length", length),
            Framing::NoBody => {
                if let Some(length) = length {
                    self.encoder.number("Content-Length", length);
                }
            }
            Framing::Chunked => self.field(b"Transfer-Encoding", b"chunked"),
            Framing::Close => {}
        }
        match (keep_alive, version) {
            (false, _) => self.field(b"Connection", b"close"),
            (true, Version::HTTP_10) => self.field(b"Connection", b"keep-alive"),
            (true, _) => {}
        }
        self.encoder.finish();
    }
}
