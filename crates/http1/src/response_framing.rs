//! The framing of a response: by its length, in chunks, or by the end of the connection.

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode, Version};

use crate::HeadEncoder;
use crate::response::{CHUNK_END, LAST_CHUNK, encode_chunk_header};

/// The framing of a response body (RFC 9112 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// No body, whatever the head says (HEAD, 1xx, 204, 304).
    NoBody,
    /// `Content-Length`; this number of bytes is still to be sent.
    Length(u64),
    /// Chunked coding.
    Chunked,
    /// The end of the connection: HTTP/1.0 without a known length.
    Close,
}

impl Framing {
    /// The framing for a body of `length` bytes; `None` if the length is not known yet.
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

    /// The bytes to send before a piece of `len` bytes.
    #[must_use]
    pub fn before_piece(self, len: u64) -> Option<Bytes> {
        if self != Self::Chunked {
            return None;
        }
        let mut out = BytesMut::with_capacity(18);
        encode_chunk_header(&mut out, len);
        Some(out.freeze())
    }

    /// The bytes to send after a piece.
    #[must_use]
    pub fn after_piece(self) -> Option<Bytes> {
        (self == Self::Chunked).then_some(Bytes::from_static(CHUNK_END))
    }

    /// The bytes that end the body.
    #[must_use]
    pub fn end(self) -> Option<Bytes> {
        (self == Self::Chunked).then_some(Bytes::from_static(LAST_CHUNK))
    }

    /// Accounts for the next `len` bytes. Returns the number of them that are part of the body, at
    /// most its announced length.
    pub fn take(&mut self, len: u64) -> u64 {
        match self {
            Self::NoBody => 0,
            Self::Length(left) => {
                let taken = len.min(*left);
                *left -= taken;
                taken
            }
            Self::Chunked | Self::Close => len,
        }
    }

    /// The bytes of the announced length that are still to be sent; 0 if no length was announced.
    #[must_use]
    pub fn missing(self) -> u64 {
        if let Self::Length(left) = self { left } else { 0 }
    }
}

impl HeadEncoder<'_> {
    /// Writes the fields that frame the body, and the end of the head. For a response without a
    /// body, `length` is the length that a response to GET would have.
    pub fn finish_framed(
        mut self,
        framing: Framing,
        length: Option<u64>,
        version: Version,
        keep_alive: bool,
    ) {
        match framing {
            Framing::Length(length) => self.number("Content-Length", length),
            Framing::NoBody => {
                if let Some(length) = length {
                    self.number("Content-Length", length);
                }
            }
            Framing::Chunked => self.known("Transfer-Encoding", "chunked"),
            Framing::Close => {}
        }
        match (keep_alive, version) {
            (false, _) => self.known("Connection", "close"),
            (true, Version::HTTP_10) => self.known("Connection", "keep-alive"),
            (true, _) => {}
        }
        self.finish();
    }
}
