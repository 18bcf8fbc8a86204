//! The wait for a request on a connection, and its end by a signal handler or another thread.
//!
//! ```text
//!            begin            poll returns
//!   Working ──────▶ Waiting ──────────────▶ Working
//!      │ stop          │ stop: shuts down the reading half
//!      ▼               ▼
//!   Stopping         Ended
//! ```
//!
//! Only a wait is ended: a request that has begun is read to its end. If a request arrives at the
//! moment of the stop, it is either served or not read at all; then the web server sees a reset and
//! may send it to another process.

use std::sync::atomic::{AtomicU8, Ordering};

const WORKING: u8 = 0;
const WAITING: u8 = 1;
const STOPPING: u8 = 2;
const ENDED: u8 = 3;

/// The state of one connection. All calls are async-signal-safe.
#[derive(Debug, Default)]
pub(crate) struct Wait(AtomicU8);

impl Wait {
    fn change(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Begins to wait. `false`: the worker is to stop, and may only take a request that has arrived.
    pub(crate) fn begin(&self) -> bool {
        self.change(WORKING, WAITING)
    }

    /// Ends the wait that has begun. `false`: a stop has ended it, and nothing may be read.
    pub(crate) fn end(&self) -> bool {
        self.change(WAITING, WORKING)
    }

    /// Stops the worker. `true`: the caller must shut down the reading half of the connection, so
    /// that the wait returns.
    pub(crate) fn stop(&self) -> bool {
        !self.change(WORKING, STOPPING) && self.change(WAITING, ENDED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_wait_is_ended() {
        let wait = Wait::default();
        assert!(wait.begin() && wait.end());
        assert!(!wait.stop(), "a request is being read");
        assert!(!wait.begin());
        assert!(!wait.stop());

        let wait = Wait::default();
        assert!(wait.begin() && wait.stop());
        assert!(!wait.end(), "the request belongs to another process");
        assert!(!wait.stop(), "once is enough");
    }
}
