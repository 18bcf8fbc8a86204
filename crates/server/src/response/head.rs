//! The head of a response, as the front writes it.

use bytes::BytesMut;
use http::{StatusCode, Version};
use sendoff_http1::{Framing, HeadEncoder};

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

    /// Ends the head: see [`HeadEncoder::finish_framed`].
    pub fn finish(self, framing: Framing, length: Option<u64>, version: Version, keep_alive: bool) {
        self.encoder.finish_framed(framing, length, version, keep_alive);
    }
}
