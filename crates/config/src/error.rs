//! Errors in passing a configuration to a process.

use std::{fmt, io};

/// An error in passing a configuration to a process. None of these is the operator's mistake: the
/// operator's mistakes are reported before there is a [`Config`](crate::Config).
#[derive(Debug)]
pub enum Error {
    /// The system refused a file for it, or its bytes.
    System(io::Error),
    /// It is not the configuration of this version of the server: the programs do not belong
    /// together.
    Foreign(serde_json::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(error) => error.fmt(f),
            Self::Foreign(error) => write!(f, "it is not from this version of sendoff ({error})"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System(error) => Some(error),
            Self::Foreign(error) => Some(error),
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}
