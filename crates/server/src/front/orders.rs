//! Orders to a running front.

use std::fs::File;
use std::future::Future;
use std::os::fd::OwnedFd;

use sendoff_config::{Config, LogTarget};
use sendoff_page_cache::Purge;
use sendoff_report::status::Status;
use sendoff_tls::{Challenge, Vault};
use tokio::sync::oneshot;

/// An order to a running front.
#[derive(Debug)]
pub enum FrontOrder {
    /// Take no more requests, finish open responses, end.
    Drain,
    /// End at once: open responses are cut.
    Cut,
    /// Announce from now on that the server is about to leave, and go on as before.
    Leave,
    /// Write logs to these files from now on; they are opened for appending.
    ReopenLogs(Vec<(LogTarget, File)>),
    /// Serve by another configuration from the next request on. The answer is empty, or the reason
    /// why that is impossible; then nothing changes.
    Reload(Box<Reload>, oneshot::Sender<Result<(), String>>),
    /// Answer these challenges of authorities and no others. The answer is empty, or the reason why
    /// that is impossible.
    Challenges(Vec<Challenge>, oneshot::Sender<Result<(), String>>),
    /// Use these certificates from now on, at the sites that have one here. Open connections go on.
    /// The answer is empty, or the reason why that is impossible; then nothing changes.
    Certificates(Vault, oneshot::Sender<Result<(), String>>),
    /// Report the state of the front.
    Status(oneshot::Sender<Status>),
    /// Forget kept pages. The answer is their number.
    Purge(Purge, oneshot::Sender<usize>),
    /// Make the pages of sitemaps that are missing. The answer is the number of sites.
    Warm(oneshot::Sender<usize>),
}

/// Another configuration for a running front.
#[derive(Debug)]
pub struct Reload {
    /// Has the same number of threads and the same account as the current configuration.
    pub config: Config,
    /// The credentials of its sites.
    pub vault: Vault,
    /// The source of each pool's workers.
    pub pools: Vec<PoolSource>,
    /// The files of access logs, in the order of `Config::log_targets`.
    pub logs: Vec<LogSource>,
    /// The sockets of each listener.
    pub listeners: Vec<ListenerSource>,
}

/// The source of a pool's workers.
#[derive(Debug)]
pub enum PoolSource {
    /// The pool stays: its number in the current configuration.
    Kept(usize),
    /// The pool socket of a new PHP master.
    New(OwnedFd),
}

/// The file of an access log.
#[derive(Debug)]
pub enum LogSource {
    /// The file stays: the number of its target in the current configuration.
    Kept(usize),
    /// A new file, opened for appending.
    New(File),
}

/// The sockets of a listener.
#[derive(Debug)]
pub enum ListenerSource {
    /// The sockets stay: the listener's number in the current configuration.
    Kept(usize),
    /// New sockets, one for each event loop.
    New(Vec<OwnedFd>),
}

/// The source of orders.
pub trait Orders {
    /// Waits for the next order. Dropping the future loses no order.
    fn next(&mut self) -> impl Future<Output = FrontOrder>;
}
