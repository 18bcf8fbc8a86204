//! Types of unidirectional streams.

/// The first integer of a unidirectional stream (RFC 9114 §6.2, RFC 9204 §4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamType {
    /// The control stream; exactly one in each direction.
    Control,
    /// A pushed response, which a client must not send.
    Push,
    /// Instructions of the peer's QPACK encoder; at most one stream.
    QpackEncoder,
    /// Instructions of the peer's QPACK decoder; at most one stream.
    QpackDecoder,
    /// Another type: the server stops reading the stream, which is no error.
    Other(u64),
}

impl From<u64> for StreamType {
    fn from(value: u64) -> Self {
        match value {
            0 => Self::Control,
            1 => Self::Push,
            2 => Self::QpackEncoder,
            3 => Self::QpackDecoder,
            other => Self::Other(other),
        }
    }
}
