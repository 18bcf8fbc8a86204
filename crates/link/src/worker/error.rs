use std::fmt;

/// What the front, or the web server, did wrong. Its link cannot be used any more.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A record that FastCGI or the handover protocol does not allow.
    Record(sendoff_fastcgi::Error),
    /// More parameters than are taken.
    TooManyParams {
        /// The most parameters that a request may have.
        params: usize,
        /// The most bytes that they may have together.
        bytes: usize,
    },
    /// A record where none of its kind may come.
    Unexpected {
        /// Its type byte.
        kind: u8,
        /// Its request id.
        id: u16,
    },
    /// A `BODY` record without a regular file of at least the announced length, or beside `STDIN` bytes.
    BodyFile,
    /// A `CLIENT` record without a socket.
    Client,
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
        }
    }
}

impl std::error::Error for Error {}
