//! The resolved configuration: one immutable value that `sendoff` makes at its start and gives to its processes.
//!
//! The supervisor writes the value to a sealed file ([`Config::seal`]); the front and the PHP master inherit the open file
//! and read it ([`Config::read`]). So each process works with the same decisions: no child parses the command line or looks
//! at an environment variable, and a child that is started again finds what the first one found.
//!
//! The encoding is JSON. It is read once per process start, so its speed does not matter; it is in the dependency tree
//! already, names its fields (a binary of another version fails with a sentence instead of reading nonsense), and
//! `cat /proc/PID/fd/N` shows an operator what a running process was told.
#![forbid(unsafe_code)]

mod error;
mod front;
mod path;
mod pool;
mod sealed;
mod site;
pub mod units;

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use error::Error;
pub use front::{AccessLog, FrontConfig, Limits, MAX_THREADS, Timeouts};
pub use pool::{Bounds, PoolConfig, Snapshot, Workers};
pub use site::{Accel, Address, Attachment, Delivery, Direct, Matching, Site};

/// What a server is to do, with every default filled in and every path absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Which events are logged, in the syntax of `tracing_subscriber::EnvFilter`.
    pub log: String,
    /// The addresses to listen on, as the operator wrote them: port 0 stands for any free port.
    pub listen: Vec<SocketAddr>,
    /// The user that the front and the workers change to; `None`: they stay what the supervisor is.
    pub account: Option<Account>,
    /// Time from the signal that ends the server until its last process is gone.
    pub shutdown_timeout: Duration,
    /// The process that speaks HTTP.
    pub front: FrontConfig,
    /// What is served. One site today.
    pub sites: Vec<Site>,
    /// The PHP workers; `None` if FastCGI applications answer every request that workers could.
    pub pool: Option<PoolConfig>,
}

/// A user, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
}

/// The most of `shutdown_timeout` that is kept for cutting connections and ending processes.
const RESERVE: Duration = Duration::from_secs(1);

/// ```text
///  signal                             drain_timeout     kill_timeout     shutdown_timeout
///    ├───────────────────────────────────────┼────────────────┼────────────────┤
///      front: open responses finish             front: resets     front killed    master killed, and its
///      then workers: scripts finish             and ends          workers killed  workers with it
/// ```
impl Config {
    /// Time from the signal until the front resets the connections that are still in the middle of a response, and ends.
    #[must_use]
    pub fn drain_timeout(&self) -> Duration {
        self.shutdown_timeout - self.reserve()
    }

    /// Time from the signal until the supervisor kills the front and the workers that have not ended by themselves.
    #[must_use]
    pub fn kill_timeout(&self) -> Duration {
        self.shutdown_timeout - self.reserve() / 2
    }

    fn reserve(&self) -> Duration {
        (self.shutdown_timeout / 10).min(RESERVE)
    }
}

#[cfg(test)]
mod tests;
