//! Log messages that are repeated at most once per interval, however often their cause occurs.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time of the last message.
#[derive(Debug)]
pub struct Seldom {
    /// Least time between two messages.
    interval: Duration,
    last: Mutex<Option<Instant>>,
}

impl Default for Seldom {
    fn default() -> Self {
        Self::new()
    }
}

impl Seldom {
    /// One message a minute at most; none has been logged yet.
    pub const fn new() -> Self {
        Self::every(Duration::from_secs(60))
    }

    /// One message in each interval at most; none has been logged yet.
    pub const fn every(interval: Duration) -> Self {
        Self { interval, last: Mutex::new(None) }
    }

    /// Returns true if the message may be logged now, and then counts it as logged.
    pub fn is_due(&self) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|at| at.elapsed() >= self.interval);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}
