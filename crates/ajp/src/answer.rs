//! Packets from a container.

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};

use crate::words::{self, CODED};
use crate::{FROM_CONTAINER, HEADER};

const SEND_BODY_CHUNK: u8 = 3;
const SEND_HEADERS: u8 = 4;
const END_RESPONSE: u8 = 5;
const GET_BODY_CHUNK: u8 = 6;
const PONG: u8 = 9;

/// A packet from a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerPacket {
    /// The head of the response.
    Head {
        /// The status, not checked.
        status: u16,
        /// The reason phrase; may be empty.
        reason: Bytes,
        /// Names and values in their order, not checked.
        fields: Vec<(Bytes, Bytes)>,
    },
    /// Bytes of the body. Without bytes it is a flush: the bytes so far should reach the client
    /// now.
    Data(Bytes),
    /// The container wants this number of further bytes of the request body.
    Wants(u16),
    /// The response is complete.
    End {
        /// True if the connection may serve another request.
        may_stay: bool,
    },
    /// The answer to [`PING`](crate::PING).
    Pong,
}

/// The mistake in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

/// Takes packets of a container out of a buffer.
#[derive(Debug, Clone)]
pub struct Decoder {
    packet_size: usize,
}

impl Decoder {
    /// A decoder for packets of at most `packet_size` bytes.
    #[must_use]
    pub fn new(packet_size: usize) -> Self {
        Self { packet_size }
    }

    /// The next packet; `None` until it is complete. Between two calls bytes may only be appended
    /// to `buf`.
    ///
    /// # Errors
    /// The packet breaks the protocol; the connection must not be used any more.
    pub fn next(&self, buf: &mut BytesMut) -> Result<Option<ContainerPacket>, Malformed> {
        let known = buf.len().min(2);
        if buf[..known] != FROM_CONTAINER[..known] {
            return Err(Malformed("a packet that does not begin with AB"));
        }
        let Some(header) = buf.first_chunk::<HEADER>() else { return Ok(None) };
        let len = HEADER + usize::from(u16::from_be_bytes([header[2], header[3]]));
        if len > self.packet_size {
            return Err(Malformed("a packet that is larger than packet_size"));
        }
        if buf.len() < len {
            return Ok(None);
        }
        let mut payload = Payload(buf.split_to(len).freeze());
        payload.0.advance(HEADER);
        let answer = payload.answer()?;
        if payload.0.is_empty() { Ok(Some(answer)) } else { Err(SURPLUS) }
    }
}

const SHORT: Malformed = Malformed("a packet that ends too early");
const SURPLUS: Malformed = Malformed("a packet with more bytes than it should have");

/// The rest of a payload.
struct Payload(Bytes);

impl Payload {
    fn answer(&mut self) -> Result<ContainerPacket, Malformed> {
        match self.byte()? {
            SEND_HEADERS => self.head(),
            SEND_BODY_CHUNK => {
                let len = self.number()?;
                let data = self.take(len)?;
                // Tomcat adds a NUL behind the bytes, as for strings.
                if self.0.len() == 1 {
                    self.byte()?;
                }
                Ok(ContainerPacket::Data(data))
            }
            END_RESPONSE => Ok(ContainerPacket::End { may_stay: self.byte()? == 1 }),
            GET_BODY_CHUNK => Ok(ContainerPacket::Wants(self.number()?)),
            PONG => Ok(ContainerPacket::Pong),
            _ => Err(Malformed("a packet of an unknown type")),
        }
    }

    fn head(&mut self) -> Result<ContainerPacket, Malformed> {
        let status = self.number()?;
        let reason = self.string()?;
        let count = self.number()?;
        // A field has at least four bytes: the packet's own count is not trusted for the
        // allocation.
        let mut fields = Vec::with_capacity(usize::from(count).min(self.0.len() / 4));
        for _ in 0..count {
            let name = self.name()?;
            fields.push((name, self.string()?));
        }
        Ok(ContainerPacket::Head { status, reason, fields })
    }

    fn name(&mut self) -> Result<Bytes, Malformed> {
        let [CODED, number] = *self.0.first_chunk::<2>().ok_or(SHORT)? else {
            return self.string();
        };
        self.0.advance(2);
        let name = words::response_field(number);
        name.map(Bytes::from).ok_or(Malformed("an unknown number for the name of a field"))
    }

    /// A string; an absent one is returned as empty.
    fn string(&mut self) -> Result<Bytes, Malformed> {
        let len = self.number()?;
        if len == u16::MAX {
            return Ok(Bytes::new());
        }
        let text = self.take(len)?;
        match self.byte()? {
            0 => Ok(text),
            _ => Err(Malformed("a string that does not end with a NUL")),
        }
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.0.try_get_u8().map_err(|_| SHORT)
    }

    fn number(&mut self) -> Result<u16, Malformed> {
        self.0.try_get_u16().map_err(|_| SHORT)
    }

    fn take(&mut self, len: u16) -> Result<Bytes, Malformed> {
        let len = usize::from(len);
        if self.0.len() < len { Err(SHORT) } else { Ok(self.0.split_to(len)) }
    }
}
