//! Handshakes that end without a connection.

use std::fmt;
use std::io;

use super::trouble;

/// Reason why a handshake has made no connection.
#[derive(Debug)]
pub enum HandshakeFailure {
    /// The client has left, or its socket is broken.
    Io(io::Error),
    /// The client and the server do not agree, or the client's bytes are not TLS.
    Tls(rustls::Error),
    /// The client speaks HTTP without TLS.
    Plain,
    /// The client is a certificate authority that has validated a name: it needs only the handshake
    /// (RFC 8737 §3).
    Authority,
}

impl fmt::Display for HandshakeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Tls(error) => f.write_str(&trouble::sentence(error)),
            Self::Plain => f.write_str("the client speaks HTTP in the clear"),
            Self::Authority => f.write_str("an authority has checked a name"),
        }
    }
}

impl From<io::Error> for HandshakeFailure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
