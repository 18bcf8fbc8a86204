//! What the command line decides about a front.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Settings of a front, the same for all its event loops.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The site: static files and scripts. Absolute, without symbolic links.
    pub root: PathBuf,
    /// Folders outside the root that symbolic links in it may lead to.
    pub follow: Vec<PathBuf>,
    /// Whether workers may hand files over; otherwise every byte of their output passes through the link.
    pub accept_files: bool,
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
