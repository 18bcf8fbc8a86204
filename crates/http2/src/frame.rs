//! Frames of a client (RFC 9113 §6).

use std::borrow::Cow;

use crate::{Code, Settings};

/// A frame. Streams have an odd number; the stream 0 is the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A part of a body.
    Data {
        /// The stream.
        stream: u32,
        /// The contents, without padding.
        data: &'a [u8],
        /// The bytes that count for the windows, with padding.
        size: u32,
        /// The client ends the stream.
        ends: bool,
    },
    /// A complete field block.
    Headers {
        /// The stream.
        stream: u32,
        /// The encoded fields.
        block: Cow<'a, [u8]>,
        /// The client ends the stream.
        ends: bool,
    },
    /// The client ends a stream early.
    RstStream {
        /// The stream.
        stream: u32,
    },
    /// New settings, which are to be acknowledged.
    Settings(Settings),
    /// The acknowledgement of the server's settings.
    SettingsAck,
    /// A ping, to be answered with the same bytes.
    Ping([u8; 8]),
    /// The answer to a ping of the server.
    PingAck([u8; 8]),
    /// The client makes no further requests.
    GoAway,
    /// The client takes more bytes.
    WindowUpdate {
        /// The stream.
        stream: u32,
        /// The number of bytes, at least 1.
        increment: u32,
    },
    /// An error on one stream, which ends with this code.
    Malformed {
        /// The stream.
        stream: u32,
        /// The code.
        code: Code,
    },
    /// A frame without an effect here, such as PRIORITY.
    Ignored,
}
