//! Configuration of the process that speaks HTTP.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The most event loops a front may have: a worker's links, one per event loop, and its guard socket travel in one message,
/// which carries at most 64 descriptors.
pub const MAX_THREADS: u8 = 63;

/// Configuration of the process that speaks HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrontConfig {
    /// Event loops, at most [`MAX_THREADS`].
    pub threads: u8,
    /// Where requests are logged; `None`: nowhere.
    pub access_log: Option<AccessLog>,
    /// How long clients may take.
    pub timeouts: Timeouts,
    /// How much clients may send.
    pub limits: Limits,
}

/// Where requests are logged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessLog {
    /// The server's standard output.
    Stdout,
    /// A file, opened for appending.
    File(#[serde(with = "crate::path::one")] PathBuf),
}

/// How long clients may take. No value is zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timeouts {
    /// For a request head, from its first byte on.
    pub head: Duration,
    /// Between two pieces of a request body.
    pub body: Duration,
    /// Without a request on an open connection.
    pub idle: Duration,
    /// Without taking a byte of the response that the client is owed.
    pub send: Duration,
}

/// How much clients may send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Bytes of a request body.
    pub max_body: u64,
}
