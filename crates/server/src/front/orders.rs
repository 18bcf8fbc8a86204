//! What a running front is told.

use std::fs::File;
use std::future::Future;
use std::os::fd::OwnedFd;

use sendoff_config::{Config, LogTarget};
use sendoff_page_cache::Purge;
use sendoff_report::status::Status;
use sendoff_tls::{Challenge, Vault};
use tokio::sync::oneshot;

/// What a running front is told.
#[derive(Debug)]
pub enum Order {
    /// Take no more requests, finish open responses, end.
    Drain,
    /// End at once: responses that are under way are cut.
    Cut,
    /// Say from now on that the server is about to leave, and go on as before.
    Leave,
    /// Write logs to these files from now on, opened for appending.
    ReopenLogs(Vec<(LogTarget, File)>),
    /// Serve by another configuration from the next request on. The answer says why that is impossible; then nothing changes.
    Reload(Box<Reload>, oneshot::Sender<Result<(), String>>),
    /// Answer these challenges of authorities and no others. The answer says why that is impossible.
    Challenges(Vec<Challenge>, oneshot::Sender<Result<(), String>>),
    /// Meet clients with these certificates from now on, at the sites that have one here. Open connections go on. The answer says
    /// why that is impossible; then nothing changes.
    Certificates(Vault, oneshot::Sender<Result<(), String>>),
    /// Say what the front is doing.
    Status(oneshot::Sender<Status>),
    /// Forget kept pages. The answer is their number.
    Purge(Purge, oneshot::Sender<usize>),
}

/// Another configuration for a running front.
#[derive(Debug)]
pub struct Reload {
    /// Its number of threads and its account are those of the current one.
    pub config: Config,
    /// The credentials of its sites.
    pub vault: Vault,
    /// Where the workers of each pool come from.
    pub pools: Vec<PoolSource>,
    /// The files of access logs, in the order of `Config::log_targets`.
    pub logs: Vec<LogSource>,
    /// The sockets of each listener.
    pub listeners: Vec<ListenerSource>,
}

/// Where the workers of a pool come from.
#[derive(Debug)]
pub enum PoolSource {
    /// It stays: its number in the current configuration.
    Kept(usize),
    /// Another PHP master sends them here.
    New(OwnedFd),
}

/// The file of an access log.
#[derive(Debug)]
pub enum LogSource {
    /// It stays: the number of its target in the current configuration.
    Kept(usize),
    /// This one, opened for appending.
    New(File),
}

/// The sockets of a listener.
#[derive(Debug)]
pub enum ListenerSource {
    /// They stay: its number in the current configuration.
    Kept(usize),
    /// These, one for each event loop.
    New(Vec<OwnedFd>),
}

/// Where orders come from.
pub trait Orders {
    /// Waits for the next order. A call that is dropped loses none.
    fn next(&mut self) -> impl Future<Output = Order>;
}
