//! HTTP/2 (RFC 9113) and HPACK (RFC 7541) for a server: frames, settings and field blocks. No I/O
//! and no clock: the server passes in the bytes of a connection and sends the bytes that it gets.
//!
//! ```text
//!  bytes ──▶ FrameDecoder ──▶ Headers ──▶ hpack::Decoder ──▶ fields
//!                         ──▶ Data, Settings, WindowUpdate, ...
//!  response ──▶ hpack::encode ──▶ encode::headers, encode::data_header ──▶ bytes
//! ```
//! Windows and the states of streams are the server's.
#![forbid(unsafe_code)]

mod code;
mod decode;
pub mod encode;
mod frame;
pub mod hpack;
mod settings;

#[cfg(test)]
mod tests;

pub use code::{Code, ConnectionError};
pub use decode::FrameDecoder;
pub use frame::Frame;
pub use settings::{Setting, Settings};

/// The first bytes of a connection (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The most bytes of a frame's payload, in both directions: the initial value of
/// `SETTINGS_MAX_FRAME_SIZE`, which is also the smallest.
pub const MAX_FRAME: usize = 16_384;

/// The size of a frame header (RFC 9113 §4.1).
pub const FRAME_HEADER: usize = 9;

/// The initial size of flow-control windows (RFC 9113 §6.9.2).
pub const INITIAL_WINDOW: u32 = 65_535;

/// The largest size of a flow-control window (RFC 9113 §6.9.1).
pub const MAX_WINDOW: u32 = (1 << 31) - 1;

/// The types of frames (RFC 9113 §6).
mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

/// The flags of frames.
mod flag {
    /// Of SETTINGS and PING.
    pub(crate) const ACK: u8 = 1;
    pub(crate) const END_STREAM: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;
    pub(crate) const PADDED: u8 = 8;
    pub(crate) const PRIORITY: u8 = 0x20;
}
