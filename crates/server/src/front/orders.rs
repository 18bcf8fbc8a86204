//! What a running front is told.

use std::fs::File;
use std::future::Future;
use std::os::fd::OwnedFd;

use sendoff_config::Config;
use sendoff_tls::Vault;
use tokio::sync::oneshot;

use crate::observe::status::Status;

/// What a running front is told.
#[derive(Debug)]
pub enum Order {
    /// Take no more requests, finish open responses, end.
    Drain,
    /// End at once: responses that are under way are cut.
    Cut,
    /// Write the access log to this file from now on.
    ReopenLog(File),
    /// Serve by another configuration from the next request on. The answer says why that is impossible; then nothing changes.
    Reload(Box<Reload>, oneshot::Sender<Result<(), String>>),
    /// Say what the front is doing.
    Status(oneshot::Sender<Status>),
}

/// Another configuration for a running front.
#[derive(Debug)]
pub struct Reload {
    /// Its number of threads, its account and its listeners are those of the current one.
    pub config: Config,
    /// The credentials of its sites.
    pub vault: Vault,
    /// Where the workers of each pool come from.
    pub pools: Vec<PoolSource>,
    /// Where the access log goes.
    pub log: LogTarget,
}

/// Where the workers of a pool come from.
#[derive(Debug)]
pub enum PoolSource {
    /// It stays: its number in the current configuration.
    Kept(usize),
    /// Another PHP master sends them here.
    New(OwnedFd),
}

/// Where the access log goes.
#[derive(Debug)]
pub enum LogTarget {
    /// Where it went.
    Same,
    /// Nowhere.
    Nowhere,
    /// To this file, opened for appending.
    File(File),
}

/// Where orders come from.
pub trait Orders {
    /// Waits for the next order. A call that is dropped loses none.
    fn next(&mut self) -> impl Future<Output = Order>;
}
