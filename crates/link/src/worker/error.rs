//! Violations of the protocol, as the worker sees them.

use std::fmt;

/// A violation of the protocol by the front or the web server. The link cannot be used any more.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A record that FastCGI or the handover protocol does not allow.
    Record(sendoff_fastcgi::Error),
    /// A request with more parameters than allowed.
    TooManyParams {
        /// Limit on the number of parameters.
        params: usize,
        /// Limit on their total size, in bytes.
        bytes: usize,
    },
    /// A record of a type that is not allowed in this state.
    Unexpected {
        /// Its type byte.
        kind: u8,
        /// Its request id.
        id: u16,
    },
    /// A `BODY` record without a regular file of at least the announced length, or after `STDIN`
    /// bytes.
    BodyFile,
    /// A `CLIENT` record without a socket.
    Client,
    /// A `RING` record without its files, or with others; or a request in it that is not whole.
    Ring,
}

impl From<sendoff_fastcgi::Error> for Error {
    fn from(error: sendoff_fastcgi::Error) -> Self {
        Self::Record(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(error) => error.fmt(f),
            Self::TooManyParams { params, bytes } => {
                write!(f, "more than {params} parameters or {bytes} bytes of them")
            }
            Self::Unexpected { kind, id } => {
                write!(f, "a record of type {kind} for request {id} where none may come")
            }
            Self::BodyFile => f.write_str("a BODY record without a regular file of its length"),
            Self::Client => f.write_str("a CLIENT record without a socket"),
            Self::Ring => f.write_str("a ring that cannot be used"),
        }
    }
}

impl std::error::Error for Error {}
