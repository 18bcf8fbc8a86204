//! Configuration of the process that speaks HTTP.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::access_log::AccessLog;

/// The largest number of event loops of a front: a worker's links, one per event loop, and its
/// guard socket travel in one message, which carries at most 64 descriptors.
pub const MAX_THREADS: u8 = 63;

/// Configuration of the process that speaks HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrontConfig {
    /// Event loops, at most [`MAX_THREADS`].
    pub threads: u8,
    /// The server's access log.
    pub access_log: Option<AccessLog>,
    /// Gives each request an id, for the log and as `REQUEST_ID` for scripts. A trusted proxy's
    /// `X-Request-Id` is used as it is.
    pub request_ids: bool,
    /// Time limits for clients.
    pub timeouts: Timeouts,
    /// Size and rate limits for clients.
    pub limits: Limits,
    /// The page cache.
    pub page_cache: PageStore,
}

/// The page cache on disk. `PageCache` rules say which pages go into it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageStore {
    /// The folder; it belongs to the user of the front.
    #[serde(with = "crate::path::one")]
    pub folder: PathBuf,
    /// The largest size of all pages, in bytes.
    pub size: u64,
}

/// Time limits for clients. No value is zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timeouts {
    /// From the first byte of a request head to its last.
    pub head: Duration,
    /// Between two pieces of a request body.
    pub body: Duration,
    /// While an open connection has no request.
    pub idle: Duration,
    /// While response bytes wait and the client reads none of them.
    pub send: Duration,
}

/// Size and rate limits for clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Bytes of a request body.
    pub max_body: u64,
    /// Connections at a time; `None`: as many as the descriptors allow.
    pub connections: Option<u64>,
    /// Connections of one client at a time; `None`: half of all connections, and no limit for an
    /// address of this machine.
    pub connections_per_client: Option<u64>,
    /// The lowest rate, in bytes per second, at which a client may send a body that takes longer
    /// than the timeout; 0: no lowest rate.
    pub body_rate: u64,
    /// The lowest rate, in bytes per second, at which a client may read a response that takes
    /// longer than the timeout; 0: no lowest rate.
    pub send_rate: u64,
    /// The most bytes of memory for response bytes that wait for clients.
    pub queued: u64,
}

impl Limits {
    /// The default of both rates. A GPRS link carries 20 times as much; slow-attack tools send or
    /// read a tenth.
    pub const RATE: u64 = 100;

    /// Limits with this one for request bodies. The other values are defaults; `queued` is
    /// unlimited.
    #[must_use]
    pub fn new(max_body: u64) -> Self {
        Self {
            max_body,
            connections: None,
            connections_per_client: None,
            body_rate: Self::RATE,
            send_rate: Self::RATE,
            queued: u64::MAX,
        }
    }
}
