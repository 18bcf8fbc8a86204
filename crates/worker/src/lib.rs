//! The worker's side of Sendoff's links: takes requests from the front, answers with bytes and files.
//!
//! `docs/handover.md` specifies what passes over the sockets, `include/sendoff.h` what the calls promise.
#![forbid(unsafe_code)]

mod blob;
mod channel;
mod direct;
mod files;
mod guard;
mod helper;
mod input;
pub mod listener;
mod numbers;
mod output;
mod peer;
mod queue;
mod region;
mod request;
mod state;
mod worker;

use std::fmt;

pub use blob::{MAX_BLOB_BYTES, MAX_BLOBS};
pub use files::Identity;
pub use numbers::MAX_HELD;
pub use peer::{Role, Roles};
pub use request::{MAX_PARAMS, MAX_PARAMS_LEN};
pub use rustix::fs::Timespec;
pub use worker::{Stopper, Worker};

/// The client has gone or the link is lost: output leads nowhere any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client has gone")
    }
}

impl std::error::Error for Gone {}

/// Why a link cannot be used any more.
#[derive(Debug)]
enum Bad {
    Protocol(sendoff_fastcgi::Error),
    Io(std::io::Error),
    TooManyParams,
    Unexpected { kind: u8, id: u16 },
    BodyFile,
    Client,
    Cut,
}

impl From<sendoff_fastcgi::Error> for Bad {
    fn from(error: sendoff_fastcgi::Error) -> Self {
        Self::Protocol(error)
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
            Self::TooManyParams => {
                write!(f, "more than {MAX_PARAMS} parameters or {MAX_PARAMS_LEN} bytes of them")
            }
            Self::Unexpected { kind, id } => {
                write!(f, "a record of type {kind} for request {id} where none may come")
            }
            Self::BodyFile => f.write_str("a BODY record without a regular file of its length"),
            Self::Client => f.write_str("a CLIENT record without a socket"),
            Self::Cut => f.write_str("the front closed the link in the middle of a request"),
        }
    }
}

/// A line for the server's log.
fn log(what: fmt::Arguments<'_>) {
    eprintln!("sendoff worker {}: {what}", std::process::id());
}
