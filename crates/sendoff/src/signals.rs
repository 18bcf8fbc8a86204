//! Signals and their meaning.
//!
//! | signal | supervisor | front |
//! |---|---|---|
//! | TERM, QUIT | drain | drain |
//! | INT | cut | cut |
//! | USR1 | open the logs again | nothing |
//! | HUP | read the configuration again | nothing |
//! | USR2 | let a new program file take over; else reload, with new workers | nothing |
//!
//! The front ignores signals that only concern the supervisor, because `pkill -HUP sendoff` reaches
//! both.

use std::io;

use sendoff_control::Command;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// Requests that signals express.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalRequest {
    /// End when open responses have been sent.
    Drain,
    /// End at once.
    Cut,
    /// Open the logs again: they were renamed.
    Reopen,
    /// Read the configuration again.
    Reload,
    /// Let another program take the server's place.
    Upgrade,
    /// [`Upgrade`](Self::Upgrade) if a different program is now at this program's path; else read
    /// the configuration again, and replace the workers of every pool.
    Renew,
}

impl SignalRequest {
    /// The request of the signal that is equivalent to a command; `None` for commands that no
    /// signal can give.
    pub(crate) fn of(command: &Command) -> Option<Self> {
        match command {
            Command::Status | Command::Purge(_) | Command::Warm => None,
            Command::Reload => Some(Self::Reload),
            Command::Reopen => Some(Self::Reopen),
            Command::Upgrade => Some(Self::Upgrade),
            Command::Stop => Some(Self::Drain),
            Command::StopNow => Some(Self::Cut),
        }
    }
}

/// The signals that the server handles. While the value exists, none of them ends the process by
/// itself.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Stream,
    quit: Stream,
    interrupt: Stream,
    user_1: Stream,
    user_2: Stream,
    hangup: Stream,
}

impl Signals {
    /// Must be called inside an event loop.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            quit: signal(SignalKind::quit())?,
            interrupt: signal(SignalKind::interrupt())?,
            user_1: signal(SignalKind::user_defined1())?,
            user_2: signal(SignalKind::user_defined2())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The request of the next signal. If several signals are pending, the signal that ends the
    /// server fastest comes first.
    pub(crate) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            biased;
            asked = end(&mut self.interrupt, &mut self.terminate, &mut self.quit) => asked,
            _ = self.user_1.recv() => SignalRequest::Reopen,
            _ = self.hangup.recv() => SignalRequest::Reload,
            _ = self.user_2.recv() => SignalRequest::Renew,
        }
    }
}

async fn end(interrupt: &mut Stream, terminate: &mut Stream, quit: &mut Stream) -> SignalRequest {
    tokio::select! {
        biased;
        _ = interrupt.recv() => SignalRequest::Cut,
        _ = terminate.recv() => SignalRequest::Drain,
        _ = quit.recv() => SignalRequest::Drain,
    }
}
