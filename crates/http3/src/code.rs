//! Error codes of HTTP/3 and QPACK.

use std::fmt;

/// An error code of HTTP/3 (RFC 9114 §8.1) or QPACK (RFC 9204 §6), for closing a connection or
/// resetting a stream. `Display` shows the name in the RFC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub u64);

macro_rules! codes {
    ($($name:ident = $value:literal, $text:literal, $doc:literal;)+) => {
        impl Code {
            $(#[doc = $doc] pub const $name: Self = Self($value);)+
        }

        impl fmt::Display for Code {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($value => formatter.write_str($text),)+
                    other => write!(formatter, "{other:#x}"),
                }
            }
        }
    };
}

codes! {
    NO_ERROR = 0x100, "H3_NO_ERROR", "The connection or stream is closed without an error.";
    GENERAL_PROTOCOL_ERROR = 0x101, "H3_GENERAL_PROTOCOL_ERROR", "A violation without own code.";
    INTERNAL_ERROR = 0x102, "H3_INTERNAL_ERROR", "The sender of the code has failed.";
    STREAM_CREATION_ERROR = 0x103, "H3_STREAM_CREATION_ERROR", "A stream that is not accepted.";
    CLOSED_CRITICAL_STREAM = 0x104, "H3_CLOSED_CRITICAL_STREAM", "A necessary stream was closed.";
    FRAME_UNEXPECTED = 0x105, "H3_FRAME_UNEXPECTED", "A frame that is not allowed here.";
    FRAME_ERROR = 0x106, "H3_FRAME_ERROR", "A frame with a wrong layout or length.";
    EXCESSIVE_LOAD = 0x107, "H3_EXCESSIVE_LOAD", "The peer causes an excessive load.";
    ID_ERROR = 0x108, "H3_ID_ERROR", "A wrong use of an identifier.";
    SETTINGS_ERROR = 0x109, "H3_SETTINGS_ERROR", "An error in the payload of SETTINGS.";
    MISSING_SETTINGS = 0x10a, "H3_MISSING_SETTINGS", "The first frame is not SETTINGS.";
    REQUEST_REJECTED = 0x10b, "H3_REQUEST_REJECTED", "The request was not processed.";
    REQUEST_CANCELLED = 0x10c, "H3_REQUEST_CANCELLED", "The request or response is cancelled.";
    REQUEST_INCOMPLETE = 0x10d, "H3_REQUEST_INCOMPLETE", "The stream ended within a request.";
    MESSAGE_ERROR = 0x10e, "H3_MESSAGE_ERROR", "A malformed message.";
    CONNECT_ERROR = 0x10f, "H3_CONNECT_ERROR", "The connection behind CONNECT was closed.";
    VERSION_FALLBACK = 0x110, "H3_VERSION_FALLBACK", "The client should retry over HTTP/1.1.";
    QPACK_DECOMPRESSION_FAILED = 0x200, "QPACK_DECOMPRESSION_FAILED", "An invalid field section.";
    QPACK_ENCODER_STREAM_ERROR = 0x201, "QPACK_ENCODER_STREAM_ERROR", "A wrong instruction.";
    QPACK_DECODER_STREAM_ERROR = 0x202, "QPACK_DECODER_STREAM_ERROR", "A wrong instruction.";
}
