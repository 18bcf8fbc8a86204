//! Error codes (RFC 9113 §7).

/// The reason for the end of a stream or a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub u32);

#[allow(missing_docs, reason = "the names are the RFC's")]
impl Code {
    pub const NO_ERROR: Self = Self(0);
    pub const PROTOCOL_ERROR: Self = Self(1);
    pub const INTERNAL_ERROR: Self = Self(2);
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    pub const STREAM_CLOSED: Self = Self(5);
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    pub const REFUSED_STREAM: Self = Self(7);
    pub const COMPRESSION_ERROR: Self = Self(9);
    pub const ENHANCE_YOUR_CALM: Self = Self(11);
}

/// An error after which the connection ends (RFC 9113 §5.4.1), with the text for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionError {
    /// The code of GOAWAY.
    pub code: Code,
    /// The cause.
    pub why: &'static str,
}

impl ConnectionError {
    /// An error with this code.
    #[must_use]
    pub const fn new(code: Code, why: &'static str) -> Self {
        Self { code, why }
    }

    pub(crate) const fn protocol(why: &'static str) -> Self {
        Self::new(Code::PROTOCOL_ERROR, why)
    }

    pub(crate) const fn size(why: &'static str) -> Self {
        Self::new(Code::FRAME_SIZE_ERROR, why)
    }
}
