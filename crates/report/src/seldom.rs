//! Log messages that are repeated at most once per interval, however often their cause occurs.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Least time between two messages.
const INTERVAL: Duration = Duration::from_secs(60);

/// The time of the last message.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    /// No message has been logged yet.
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Returns true if the message may be logged now, and then counts it as logged.
    pub fn is_due(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|at| at.elapsed() >= INTERVAL);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}
