//! Configuration of a pool of PHP workers.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Configuration of a pool of PHP workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolConfig {
    /// Its name in logs, which no other pool has.
    pub name: String,
    /// How many workers there are.
    pub workers: Workers,
    /// Settings on top of php.ini, each `KEY=VALUE`.
    pub php_ini: Vec<String>,
    /// Requests after which a worker is replaced; 0: never.
    pub max_requests: u64,
    /// How long a script may send nothing before it counts as stuck and its worker is replaced; `None`: for ever.
    pub request_timeout: Option<Duration>,
    /// What keeps a file as the script read it until it is sent.
    pub snapshot: Snapshot,
}

impl PoolConfig {
    /// Workers to start with.
    #[must_use]
    pub fn first_workers(&self) -> usize {
        match self.workers {
            Workers::Fixed(count) => count.into(),
            Workers::Auto(bounds) => bounds.min,
        }
    }

    /// Workers that there may be at a time.
    #[must_use]
    pub fn most_workers(&self) -> usize {
        self.bounds().map_or_else(|| self.first_workers(), |bounds| bounds.max)
    }

    /// Between which numbers of workers the front chooses, unless the operator has chosen.
    #[must_use]
    pub fn bounds(&self) -> Option<Bounds> {
        match self.workers {
            Workers::Fixed(_) => None,
            Workers::Auto(bounds) => Some(bounds),
        }
    }
}

/// How many workers there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Workers {
    /// Always this many.
    Fixed(u16),
    /// As many as requests need.
    Auto(Bounds),
}

/// Between which numbers of workers to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// Kept even while no request comes.
    pub min: usize,
    /// Never exceeded.
    pub max: usize,
    /// Workers beyond `min` that had no request for this long are ended.
    pub idle: Duration,
}

/// What keeps a file as the script read it until it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Snapshot {
    /// A read lease on the file.
    Lease,
    /// A copy.
    Copy,
}
