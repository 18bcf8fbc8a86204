//! The control socket: how `sendoff status`, `purge`, `reload`, `reopen`, `upgrade` and `stop` reach a running supervisor.
//!
//! A UNIX stream socket that only the user of the server, and root, may connect to. A client sends one line with the name of a
//! command and what it is about; the server answers with one JSON value and closes the connection. A server that ends at the client's command answers by
//! closing the connection, when it has ended.

mod client;
mod confinement;
mod listener;
mod report;

pub(crate) use client::{run, watch};
pub(crate) use confinement::Confinement;
pub(crate) use listener::Commands;
pub(crate) use report::{PoolReport, Reloaded, Report, SiteReport};

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::signals::Asked;

/// Bytes of a command, with the end of its line.
const MAX_COMMAND: usize = 8 * 1024;

/// How long a client may take to send its command or to read the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    Status,
    /// Forget the kept pages with this address; `None`: all.
    Purge(Option<String>),
    Reload,
    Reopen,
    /// Another program takes the server's place.
    Upgrade,
    /// As SIGTERM.
    Stop,
    /// As SIGINT.
    StopNow,
}

impl Command {
    /// Those of one word.
    const PLAIN: [Self; 7] = [
        Self::Status,
        Self::Purge(None),
        Self::Reload,
        Self::Reopen,
        Self::Upgrade,
        Self::Stop,
        Self::StopNow,
    ];

    /// What the command asks for, if a signal could ask for it too.
    pub(crate) fn asks_for(&self) -> Option<Asked> {
        match self {
            Self::Status | Self::Purge(_) => None,
            Self::Reload => Some(Asked::Reload),
            Self::Reopen => Some(Asked::Reopen),
            Self::Upgrade => Some(Asked::Upgrade),
            Self::Stop => Some(Asked::Drain),
            Self::StopNow => Some(Asked::Cut),
        }
    }

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
            Self::Reload => "reload",
            Self::Reopen => "reopen",
            Self::Upgrade => "upgrade",
            Self::Stop => "stop",
            Self::StopNow => "stop now",
        })
    }
}

/// What the server answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The command has been followed; a sentence for the operator.
    Done(String),
    /// It has not; why.
    Failed(String),
    Status(Box<Report>),
    Purged(Purged),
}

/// What has been forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Purged {
    /// Kept pages; each form of a page counts.
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
