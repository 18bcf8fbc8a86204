//! AJP 1.3 (`ajp13`), the web server's side: requests to servlet containers such as Tomcat, and
//! their answers. No I/O and no clock.
//!
//! ```text
//!  server ── FORWARD_REQUEST, first piece of the body ──▶ container
//!         ◀─────────────── GET_BODY_CHUNK ───────────────
//!         ─────────────── piece of the body ────────────▶
//!         ◀── SEND_HEADERS, SEND_BODY_CHUNK*, END_RESPONSE ──
//! ```
//! Every packet begins with two bytes that name its sender, and two with the length of its payload.
//! Numbers are big-endian; a string is its length, its bytes and a NUL.
#![forbid(unsafe_code)]

mod answer;
mod request;
mod words;

pub use answer::{ContainerPacket, Decoder, Malformed};
pub use request::{Facts, ForwardRequest, TooLarge, body_piece, piece_room};

/// The default packet size of containers, in bytes, with the four bytes before the payload.
pub const PACKET_SIZE: usize = 8192;

/// The largest packet size, in bytes: the length of a payload is a number of 16 bits.
pub const MAX_PACKET_SIZE: usize = 65536;

/// A question that a container answers at once ([`ContainerPacket::Pong`]).
pub const PING: [u8; 5] = [0x12, 0x34, 0, 1, 10];

/// Bytes of a packet before its payload.
pub(crate) const HEADER: usize = 4;

/// The first bytes of packets from the web server, and from the container.
pub(crate) const FROM_SERVER: [u8; 2] = [0x12, 0x34];
pub(crate) const FROM_CONTAINER: [u8; 2] = *b"AB";

#[cfg(test)]
mod tests;
