//! The reasons why a request is refused, and their statuses.

use std::fmt;

use http::StatusCode;

/// The reason why a request is refused. The connection cannot be resumed after any of these: answer
/// with [`status`](Self::status) and close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestError {
    /// The bytes break the grammar, or can be understood in two ways. The text names the mistake.
    Malformed(&'static str),
    /// The request line is longer than the limit.
    TargetTooLong,
    /// The head is larger than the limit or has too many fields.
    HeadTooLarge,
    /// The body is larger than the limit.
    BodyTooLarge,
    /// An `Expect` field that asks for something other than `100-continue`.
    UnknownExpectation,
    /// `CONNECT`: this server is no tunnel.
    Tunnel,
    /// A transfer coding other than `chunked`.
    UnknownTransferCoding,
    /// A version other than HTTP/1.x.
    UnsupportedVersion,
}

impl RequestError {
    /// The status code to answer with.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
            Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnknownExpectation => StatusCode::EXPECTATION_FAILED,
            Self::Tunnel | Self::UnknownTransferCoding => StatusCode::NOT_IMPLEMENTED,
            Self::UnsupportedVersion => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed(what) => what,
            Self::TargetTooLong => "the request line is too long",
            Self::HeadTooLarge => "the request head is too large",
            Self::BodyTooLarge => "the request body is too large",
            Self::UnknownExpectation => "an expectation other than 100-continue",
            Self::Tunnel => "CONNECT is not offered",
            Self::UnknownTransferCoding => "a transfer coding other than chunked",
            Self::UnsupportedVersion => "a version other than HTTP/1.x",
        })
    }
}

impl std::error::Error for RequestError {}
