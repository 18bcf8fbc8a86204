//! The control socket: `sendoff status`, `purge`, `reload`, `reopen`, `upgrade` and `stop` reach a
//! running supervisor through it.
//!
//! It is a UNIX stream socket; only the server's user and root may connect. A client sends one line
//! with the name of a command and its argument; the server answers with one JSON value and closes
//! the connection. A server that ends at a client's command sends no answer: it closes the
//! connection when it has ended.

#![forbid(unsafe_code)]

mod client;
mod confinement;
mod fleet;
mod listener;
mod php;
mod report;
pub mod runtime_folder;
mod warming;

pub use client::{CommandError, ServerSelection, run, watch};
pub use confinement::Confinement;
pub use listener::Commands;
pub use report::{GroupUse, PoolReport, Reloaded, ServerReport, SiteReport};

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Maximum length of a command in bytes, including the end of the line.
const MAX_COMMAND: usize = 8 * 1024;

/// Time limit for a client to send its command, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Commands of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Report the state of the server.
    Status,
    /// Remove the kept pages of this address from the cache, or all pages if `None`.
    Purge(Option<String>),
    /// Make the pages of sitemaps that are missing in the cache.
    Warm,
    /// Read the configuration again.
    Reload,
    /// Open the logs again.
    Reopen,
    /// Let another program take the server's place.
    Upgrade,
    /// Same as SIGTERM.
    Stop,
    /// Same as SIGINT.
    StopNow,
}

impl Command {
    /// The commands that consist of one word.
    const PLAIN: [Self; 8] = [
        Self::Status,
        Self::Purge(None),
        Self::Warm,
        Self::Reload,
        Self::Reopen,
        Self::Upgrade,
        Self::Stop,
        Self::StopNow,
    ];

    fn parse(line: &str) -> Option<Self> {
        match line.strip_prefix("purge ") {
            Some(url) => Some(Self::Purge(Some(url.to_owned()))),
            None => Self::PLAIN.into_iter().find(|command| command.to_string() == line),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Status => "status",
            Self::Purge(None) => "purge",
            Self::Purge(Some(url)) => return write!(f, "purge {url}"),
            Self::Warm => "warm",
            Self::Reload => "reload",
            Self::Reopen => "reopen",
            Self::Upgrade => "upgrade",
            Self::Stop => "stop",
            Self::StopNow => "stop now",
        })
    }
}

/// Answers of the server.
#[derive(Debug, Serialize, Deserialize)]
pub enum ControlAnswer {
    /// The command was carried out; a sentence for the operator.
    Done(String),
    /// The command was not carried out; the reason.
    Failed(String),
    /// The state of the server.
    Status(Box<ServerReport>),
    /// The pages were removed.
    Purged(Purged),
}

/// The result of a purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purged {
    /// Kept pages that were removed; each variant of a page counts.
    pages: usize,
}

impl From<usize> for Purged {
    fn from(pages: usize) -> Self {
        Self { pages }
    }
}

impl fmt::Display for Purged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pages {
            1 => writeln!(f, "1 kept page is forgotten"),
            pages => writeln!(f, "{pages} kept pages are forgotten"),
        }
    }
}
