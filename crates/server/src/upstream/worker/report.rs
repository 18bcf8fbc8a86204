//! What a pool and its workers have done, for the status page.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::Method;

/// The state of a pool, and what it has done since the front has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolReport {
    /// Since when the front has it.
    pub started: SystemTime,
    /// Requests that workers were given.
    pub requests: u64,
    /// Requests that wait for a worker.
    pub waiting: usize,
    /// The most that waited at a time.
    pub most_waiting: usize,
    /// Requests that may wait.
    pub queue: usize,
    /// Workers without a request.
    pub idle: usize,
    /// Workers that take requests, idle ones too.
    pub workers: usize,
    /// The most that were busy at a time.
    pub most_busy: usize,
    /// How many times requests called for more workers than there may be.
    pub limit_reached: u64,
    /// Requests that the slow log has.
    pub slow: u64,
}

/// What a worker does and has done.
#[derive(Debug, Clone)]
pub struct WorkerReport {
    /// Its process.
    pub pid: i32,
    /// Since when the front has it.
    pub started: SystemTime,
    /// Requests that it was given.
    pub requests: u64,
    /// It has no request.
    pub is_idle: bool,
    /// Its request, or the last one that it had; `None`: it had none, or requests of the pool are not described.
    pub request: Option<Arc<Described>>,
    /// How long the worker has had that request, or had it.
    pub took: Duration,
}

/// A request as the status page shows it.
#[derive(Debug, PartialEq, Eq)]
pub struct Described {
    /// Its method.
    pub method: Method,
    /// `SCRIPT_NAME`.
    pub uri: Vec<u8>,
    /// The query.
    pub query: Vec<u8>,
    /// Bytes of its body.
    pub body: u64,
    /// The name that the client has authenticated with; empty: none.
    pub user: Vec<u8>,
    /// `SCRIPT_FILENAME`.
    pub script: Vec<u8>,
}
