//! QPACK (RFC 9204) with a dynamic table of capacity 0, and the rules for the fields of requests
//! (RFC 9114 §4.2, §4.3).

mod decode;
mod encode;
mod lines;
mod static_table;
mod streams;

#[cfg(test)]
mod tests;

pub use decode::{decode, trailers};
pub use encode::{encode, encode_trailers};
use sendoff_field_section::FieldError;
pub use sendoff_field_section::FieldSection;
pub use streams::{DecoderStream, EncoderStream};

/// An error in a field section. The client is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QpackError {
    /// The section cannot be decoded (RFC 9204 §6): the server closes the connection with
    /// [`QPACK_DECOMPRESSION_FAILED`](crate::Code::QPACK_DECOMPRESSION_FAILED).
    Decompression,
    /// The fields exceed the limit of the server, which may answer with status 431.
    TooLarge,
    /// A malformed message (RFC 9114 §4.1.2): the server resets the stream with
    /// [`MESSAGE_ERROR`](crate::Code::MESSAGE_ERROR). The text says what is wrong.
    Malformed(&'static str),
}

impl From<FieldError> for QpackError {
    fn from(error: FieldError) -> Self {
        match error {
            FieldError::TooLarge => Self::TooLarge,
            FieldError::Malformed(why) => Self::Malformed(why),
        }
    }
}
