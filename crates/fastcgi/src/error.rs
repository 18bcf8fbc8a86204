//! Mistakes of a peer in FastCGI and in handover records.

use std::fmt;

/// A mistake of the peer. Each of these makes the link unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The version byte was not 1.
    Version(u8),
    /// A record of a fixed layout had another length.
    ContentLength {
        /// The record's type byte.
        kind: u8,
        /// The length its header gave, in bytes.
        len: usize,
    },
    /// A name-value pair extends beyond the end of its stream (§3.4).
    TruncatedParam,
    /// A guard message that is not in `docs/handover.md` §3.
    GuardMessage,
    /// A region, or a piece of one, that violates `docs/handover.md` §4.
    Region(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(v) => write!(f, "FastCGI version {v}, expected 1"),
            Self::ContentLength { kind, len } => {
                write!(f, "FastCGI record of type {kind} with a content of {len} bytes")
            }
            Self::TruncatedParam => f.write_str("FastCGI parameter runs past the end of PARAMS"),
            Self::GuardMessage => f.write_str("malformed guard message"),
            Self::Region(what) => write!(f, "shared memory {what}"),
        }
    }
}

impl std::error::Error for Error {}
