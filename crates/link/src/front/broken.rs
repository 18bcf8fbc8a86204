//! Violations of the protocol by the worker.

use std::fmt;

use sendoff_fastcgi::record::Kind;

use super::MAX_FILES;

/// A violation of the protocol by the worker. The link cannot be used any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broken {
    /// A record that is malformed.
    Malformed(sendoff_fastcgi::Error),
    /// A record of this type is not allowed in this state.
    OutOfPlace(Kind),
    /// A record that needs a descriptor came without one.
    NoDescriptor(Kind),
    /// More descriptors arrived than records need.
    TooManyDescriptors,
    /// More than [`MAX_FILES`] files are open.
    TooManyFiles,
    /// `OPEN` of a file id that is already open, or another record with a file id that is not open.
    WrongFile(Kind),
    /// An `EXPLAIN` record that is too long.
    LongExplanation,
    /// The worker refused the request.
    Refused,
    /// The link ended inside a record.
    Cut,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "it sent a {error}"),
            Self::OutOfPlace(kind) => write!(f, "a record of type {} out of place", kind.0),
            Self::NoDescriptor(kind) => {
                write!(f, "a record of type {} came without its descriptor", kind.0)
            }
            Self::TooManyDescriptors => f.write_str("it sent descriptors that no record claims"),
            Self::TooManyFiles => write!(f, "it opened more than {MAX_FILES} files"),
            Self::WrongFile(kind) => {
                write!(f, "a record of type {} with a file id that cannot be", kind.0)
            }
            Self::LongExplanation => f.write_str("an explanation that is too long"),
            Self::Refused => f.write_str("it refused the request"),
            Self::Cut => f.write_str("it closed the link inside a record"),
        }
    }
}

impl std::error::Error for Broken {}

impl From<sendoff_fastcgi::Error> for Broken {
    fn from(error: sendoff_fastcgi::Error) -> Self {
        Self::Malformed(error)
    }
}
