//! What the command line decides about a front.

use std::fs::File;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::upstream::{Address, Bounds};

/// Settings of a front, the same for all its event loops.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The site: static files and scripts. Absolute, without symbolic links.
    pub root: PathBuf,
    /// Folders outside the root that symbolic links in it may lead to.
    pub follow: Vec<PathBuf>,
    /// Whether workers may hand files over; otherwise every byte of their output passes through the link.
    pub accept_files: bool,
    /// Whether FastCGI applications on this host may open links and hand files over on them.
    pub channel: bool,
    /// Between which numbers of workers to choose; `None`: the operator has chosen.
    pub workers: Option<Bounds>,
    /// FastCGI applications that somebody else has started, and what they answer.
    pub fastcgi: Vec<Attachment>,
    /// How long a FastCGI application may be silent while it has a request.
    pub fastcgi_timeout: Duration,
    /// Folders outside the root whose files applications may name in `X-Sendfile`.
    pub sendfile_from: Vec<PathBuf>,
    /// Beginnings of URIs in `X-Accel-Redirect` and the folders they stand for.
    pub accel: Vec<(String, PathBuf)>,
    /// Bytes of a request body.
    pub max_body: u64,
    /// How long a request head may take, from its first byte.
    pub head_timeout: Duration,
    /// How long a client may pause within a request body.
    pub body_timeout: Duration,
    /// How long a connection may stay open without a request.
    pub idle_timeout: Duration,
    /// How long a client may take nothing of what it is owed.
    pub send_timeout: Duration,
    /// Where the access log goes, opened for appending.
    pub access_log: Option<Arc<File>>,
}

/// Which requests go to a FastCGI application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Matching {
    /// Files of the site with this ending, which begins with a dot, and what follows them in a path.
    Ending(String),
    /// Everything beneath this path, which begins with a slash and does not end with one: "" is the whole site.
    Prefix(String),
}

/// A FastCGI application and what it answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// What it answers.
    pub matching: Matching,
    /// Where it listens.
    pub address: Address,
}

impl FromStr for Attachment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (matching, address) =
            text.split_once('=').ok_or("expected .EXT=ADDRESS or /PREFIX=ADDRESS")?;
        let matching = match matching.as_bytes() {
            [b'.', ending @ ..] if !ending.is_empty() && !ending.contains(&b'/') => {
                Matching::Ending(matching.to_owned())
            }
            [b'/', ..] => Matching::Prefix(matching.trim_end_matches('/').to_owned()),
            _ => return Err(format!("{matching:?} is neither .EXT nor /PREFIX")),
        };
        Ok(Self { matching, address: address.parse()? })
    }
}

/// Whether any request can need a worker.
#[must_use]
pub fn needs_workers(fastcgi: &[Attachment]) -> bool {
    !fastcgi.iter().any(|attachment| match &attachment.matching {
        Matching::Ending(ending) => ending == ".php",
        Matching::Prefix(prefix) => prefix.is_empty(),
    })
}
