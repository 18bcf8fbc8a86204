//! The worker's side of Sendoff's links: takes requests from the front, answers with bytes and
//! files.
//!
//! `docs/handover.md` specifies the messages on the sockets, `include/sendoff.h` the guarantees of
//! the calls.
#![forbid(unsafe_code)]

mod client;
mod files;
mod filesystem;
mod guard;
mod helper;
mod input;
pub mod listener;
mod numbers;
mod output;
mod region;
mod sender;
mod state;
mod wait;
mod worker;

use std::fmt;
use std::io::Write;

pub use files::HeldVersion;
pub use numbers::MAX_HELD;
pub use rustix::fs::Timespec;
pub use sender::{BodyPart, BodyTransfer, Sender};
pub use sendoff_link::worker::{MAX_PARAMS, MAX_PARAMS_LEN, Role, Roles};
pub use worker::{MAX_BLOB_BYTES, MAX_BLOBS, Stopper, Worker};

/// The client has closed the connection or the link is lost: output is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client has gone")
    }
}

impl std::error::Error for Gone {}

/// Errors after which a link cannot be used any more.
#[derive(Debug)]
enum Bad {
    /// The peer broke the protocol.
    Protocol(sendoff_link::worker::Error),
    /// A system call failed.
    Io(std::io::Error),
    /// Its only request asked for a role that this application does not accept.
    Refused,
    /// It was closed in the middle of a request.
    Cut,
}

impl From<sendoff_link::worker::Error> for Bad {
    fn from(error: sendoff_link::worker::Error) -> Self {
        Self::Protocol(error)
    }
}

impl From<sendoff_fastcgi::Error> for Bad {
    fn from(error: sendoff_fastcgi::Error) -> Self {
        Self::Protocol(error.into())
    }
}

impl From<std::io::Error> for Bad {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
            Self::Refused => f.write_str("a request for a role that is not taken"),
            Self::Cut => f.write_str("the front closed the link in the middle of a request"),
        }
    }
}

/// Writes an entry for the server's log to standard error, in one piece.
fn log(what: fmt::Arguments<'_>) {
    let entry = format!("sendoff worker {}: {what}\n", std::process::id());
    // If standard error is closed, the entry cannot be reported.
    let _closed = std::io::stderr().write_all(entry.as_bytes());
}
