//! The web server's side of the uwsgi protocol
//! (<https://uwsgi-docs.readthedocs.io/en/latest/Protocol.html>). No I/O. A response is one of
//! HTTP/1, and the connection serves one request.
//!
//! ```text
//!  modifier1 0 │ size of the parameters, 16 bits │ modifier2 0 │ parameters │ body
//!  parameter: size of the name, 16 bits │ name │ size of the value, 16 bits │ value
//! ```
//! Sizes are little-endian.
#![forbid(unsafe_code)]

use std::collections::HashSet;

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes before the parameters.
const HEADER: usize = 4;

/// A parameter that cannot be sent: its name is empty, or the value has 64 KiB or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidParam;

/// The parameters have 64 KiB or more, which a packet cannot announce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge;

/// Collects the parameters of a request.
#[derive(Debug)]
pub struct RequestHead {
    /// The packet, whose size is still 0.
    packet: BytesMut,
    names: HashSet<Box<[u8]>>,
}

impl RequestHead {
    /// The head of a request with a body of `content_length` bytes, which the application must know.
    #[must_use]
    pub fn new(content_length: u64) -> Self {
        let mut packet = BytesMut::with_capacity(2048);
        packet.put_bytes(0, HEADER);
        let mut head = Self { packet, names: HashSet::new() };
        // A number is short enough.
        let _written = head.param(b"CONTENT_LENGTH", content_length.to_string().as_bytes());
        head
    }

    /// Adds a parameter. The first of a name counts; `CONTENT_LENGTH` is there already.
    ///
    /// # Errors
    /// The parameter cannot be sent and was left out.
    pub fn param(&mut self, name: &[u8], value: &[u8]) -> Result<(), InvalidParam> {
        let sizes = u16::try_from(name.len()).ok().zip(u16::try_from(value.len()).ok());
        let (name_size, value_size) = sizes.filter(|(name, _)| *name > 0).ok_or(InvalidParam)?;
        if self.names.insert(name.into()) {
            self.packet.put_u16_le(name_size);
            self.packet.put_slice(name);
            self.packet.put_u16_le(value_size);
            self.packet.put_slice(value);
        }
        Ok(())
    }

    /// The head as it is sent; the body follows.
    ///
    /// # Errors
    /// It is too large for a packet.
    pub fn finish(mut self) -> Result<Bytes, TooLarge> {
        let size = u16::try_from(self.packet.len() - HEADER).map_err(|_| TooLarge)?;
        self.packet[1..3].copy_from_slice(&size.to_le_bytes());
        Ok(self.packet.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_announces_its_size() {
        let mut head = RequestHead::new(7);
        head.param(b"REQUEST_METHOD", b"POST").unwrap();
        head.param(b"A", b"").unwrap();
        let expected =
            b"\0\x2e\0\0\x0e\0CONTENT_LENGTH\x01\x007\x0e\0REQUEST_METHOD\x04\0POST\x01\0A\0\0";
        assert_eq!(head.finish().unwrap(), expected[..]);
    }

    #[test]
    fn names_occur_once_and_sizes_have_16_bits() {
        let mut head = RequestHead::new(0);
        let before = head.packet.len();
        head.param(b"CONTENT_LENGTH", b"5").unwrap();
        assert_eq!(head.param(b"", b"x"), Err(InvalidParam));
        assert_eq!(head.param(b"A", &[b'x'; 65_536]), Err(InvalidParam));
        assert_eq!(head.packet.len(), before);
        let left = 65_535 - (before - HEADER) - b"A".len() - 4;
        head.param(b"A", &vec![b'x'; left]).unwrap();
        let mut larger = RequestHead::new(0);
        larger.param(b"A", &vec![b'x'; left + 1]).unwrap();
        assert_eq!(head.finish().unwrap()[..4], [0, 255, 255, 0]);
        assert_eq!(larger.finish(), Err(TooLarge));
    }
}
