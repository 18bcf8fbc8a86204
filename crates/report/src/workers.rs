//! Reports about a pool and its workers, for the status page.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::Method;
use serde::{Deserialize, Serialize};

/// The state of a pool, and its counters since the front has had it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolReport {
    /// The time since which the front has had the pool.
    pub started: SystemTime,
    /// Requests that workers were given.
    pub requests: u64,
    /// Requests that wait for a worker.
    pub waiting: usize,
    /// The most requests that waited at the same time.
    pub most_waiting: usize,
    /// Requests that may wait.
    pub queue: usize,
    /// Workers without a request.
    pub idle: usize,
    /// Workers that take requests, idle ones too.
    pub workers: usize,
    /// The most workers that were busy at the same time.
    pub most_busy: usize,
    /// Number of times that requests needed another worker when the pool already had the most
    /// allowed.
    pub limit_reached: u64,
    /// Requests that the slow log has.
    pub slow: u64,
    /// Processes that the kernel has ended because there was no memory left.
    pub out_of_memory: u64,
    /// The report that its workers sent about PHP; `None`: none has arrived yet.
    pub php: Option<PhpReport>,
}

/// A worker's report about PHP, sent as JSON at the end of its first request. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhpReport {
    /// Its version, such as "8.2.36".
    pub version: String,
    /// The state of opcache; `None`: it is not loaded, or does not report.
    pub opcache: Option<OpcacheReport>,
    /// The memory of APCu; `None`: it is not loaded, or off.
    pub apcu: Option<u64>,
    /// The names of its extensions, those that are compiled into PHP, too. A worker of an older
    /// server reports none.
    #[serde(default)]
    pub extensions: Vec<String>,
}

/// The configuration and the state of opcache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpcacheReport {
    /// True if opcache takes new scripts. It does not between a reset and the restart that follows.
    pub enabled: bool,
    /// Its shared memory; 0: it uses files only.
    pub memory: u64,
    /// The memory of its compiler (JIT); `None`: the compiler is off.
    pub jit: Option<u64>,
    /// The script that has preloaded others (`opcache.preload`).
    pub preload: Option<String>,
    /// Its folder of files (`opcache.file_cache`).
    pub file_cache: Option<String>,
}

impl PhpReport {
    /// The largest report that is read, in bytes. A worker leaves out what would not fit.
    pub const MAX: usize = 4096;

    /// Parses a worker's report; `None`: it is not valid.
    #[must_use]
    pub fn parse(said: &[u8]) -> Option<Self> {
        let mut report: Self = serde_json::from_slice(said).ok()?;
        // They are printed in one line.
        let texts = report.opcache.iter_mut().flat_map(|o| [&mut o.preload, &mut o.file_cache]);
        let texts = texts.flatten().chain([&mut report.version]).chain(&mut report.extensions);
        texts.for_each(|text| *text = text.replace(char::is_control, "?"));
        Some(report)
    }
}

/// The activity of a worker and its counters.
#[derive(Debug, Clone)]
pub struct WorkerReport {
    /// Its process.
    pub pid: i32,
    /// The time since which the front has had the worker.
    pub started: SystemTime,
    /// Requests that it was given.
    pub requests: u64,
    /// True if it has no request.
    pub is_idle: bool,
    /// Its current or last request; `None`: it had none, or the pool does not describe requests.
    pub request: Option<Arc<Described>>,
    /// Time that the worker has spent on that request so far, or spent in all.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_says_of_php_is_read_and_cannot_forge_lines() {
        let said = br#"{"version":"8.2\n","opcache":{"enabled":true,"memory":128,"jit":32,"preload":"/a\u001b[2J"},"apcu":5,"extensions":["gd","a\nb"]}"#;
        let report = PhpReport::parse(said).expect("a report");
        assert_eq!((&*report.version, report.apcu), ("8.2?", Some(5)));
        assert_eq!(report.extensions, ["gd", "a?b"]);
        let opcache = report.opcache.expect("opcache");
        assert_eq!((opcache.enabled, opcache.memory, opcache.jit), (true, 128, Some(32)));
        assert_eq!((opcache.preload.as_deref(), opcache.file_cache), (Some("/a?[2J"), None));
        for bad in [&b""[..], b"{}", b"null", br#"{"version":8}"#, br#"{"version":"8","apcu":-1}"#]
        {
            assert_eq!(PhpReport::parse(bad), None);
        }
    }
}
