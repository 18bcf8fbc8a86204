//! Configuration of the process that speaks HTTP.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::access_log::AccessLog;

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
    /// Whether each request gets an id, for the log and as `REQUEST_ID` for scripts. A trusted proxy's `X-Request-Id` is taken.
    pub request_ids: bool,
    /// How long clients may take.
    pub timeouts: Timeouts,
    /// How much clients may send.
    pub limits: Limits,
    /// Where pages are kept.
    pub page_cache: PageStore,
}

/// Where pages of applications are kept, if rules say so (`PageCache`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageStore {
    /// The folder; it belongs to the user of the front.
    #[serde(with = "crate::path::one")]
    pub folder: PathBuf,
    /// Bytes that the pages may take.
    pub size: u64,
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

/// How much clients may send and hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Bytes of a request body.
    pub max_body: u64,
    /// Connections at a time; `None`: as many as descriptors allow.
    pub connections: Option<u64>,
    /// Connections of one client at a time; `None`: half of all, and as many as it likes from an address of this machine.
    pub connections_per_client: Option<u64>,
    /// Bytes per second that a client sends of a body, once it has been at it for the timeout; 0: any rate will do.
    pub body_rate: u64,
    /// Bytes per second that a client takes of a response, once it has been at it for the timeout; 0: any rate will do.
    pub send_rate: u64,
    /// Bytes of memory for what waits for clients.
    pub queued: u64,
}

impl Limits {
    /// The default of both rates. A GPRS link carries 20 times as much; what tests of slow attacks send or take is a tenth.
    pub const RATE: u64 = 100;

    /// A limit of request bodies. Every other value is a default; of memory there may be any amount.
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
