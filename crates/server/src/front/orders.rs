//! What a running front is told.

use std::fs::File;
use std::future::Future;

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
    /// Say what the front is doing.
    Status(oneshot::Sender<Status>),
}

/// Where orders come from.
pub trait Orders {
    /// Waits for the next order. A call that is dropped loses none.
    fn next(&mut self) -> impl Future<Output = Order>;
}
