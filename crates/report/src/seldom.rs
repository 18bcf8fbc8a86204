//! What is said in the log once in a while, however often it happens.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often something is said.
const INTERVAL: Duration = Duration::from_secs(60);

/// When something was said last.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    /// It has not been said yet.
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Whether it is to be said now; it then counts as said.
    pub fn is_due(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|at| at.elapsed() >= INTERVAL);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}
