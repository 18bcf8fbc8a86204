//! Figures of a pool: for the status page, for metrics, and for the number of its workers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sendoff_report::workers::{PhpReport, PoolReport, WorkerReport};

use super::Pool;
use super::state::{Counts, Worker};

/// Load of the pool since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Workers that take requests.
    pub workers: usize,
    /// Requests that wait for a worker.
    pub waiting: usize,
    /// Waiting time of the oldest of them.
    pub oldest: Duration,
    /// Largest number of busy workers since the last look.
    pub peak: usize,
}

impl Pool {
    /// State and counters of the pool, for the status page.
    #[must_use]
    pub fn report(&self) -> PoolReport {
        let mut state = self.state();
        // A request that was posted while its worker seemed idle.
        let waiting = state.waiting();
        state.counts.most_waiting = state.counts.most_waiting.max(waiting);
        let Counts { requests, most_waiting, most_busy, limit_reached, slow, out_of_memory } =
            state.counts;
        PoolReport {
            started: self.started,
            requests,
            waiting,
            most_waiting,
            queue: self.limits.requests,
            idle: state.idle(),
            workers: state.complete,
            most_busy,
            limit_reached,
            slow,
            out_of_memory,
            php: state.php.clone(),
        }
    }

    /// Stores a worker's report about PHP.
    pub fn set_php(&self, said: PhpReport) {
        self.state().php = Some(said);
    }

    /// State and counters of each worker, oldest first.
    #[must_use]
    pub fn worker_reports(&self) -> Vec<WorkerReport> {
        let state = self.state();
        let complete = state.workers.iter().filter(|(_, worker)| worker.links_missing == 0);
        let mut complete: Vec<_> = complete.collect();
        complete.sort_unstable_by_key(|(id, _)| id.0);
        complete.into_iter().map(|(id, worker)| worker.report(state.is_idle(*id))).collect()
    }

    /// Turns the description of requests on.
    pub fn describe_requests(&self) {
        self.describes.store(true, Ordering::Relaxed);
    }

    /// True if requests are described even without a status page.
    #[must_use]
    pub fn describes(&self) -> bool {
        self.describes.load(Ordering::Relaxed)
    }

    /// Counts a process that the kernel has killed for want of memory.
    pub fn note_out_of_memory(&self) {
        self.state().counts.out_of_memory += 1;
    }

    /// Counts a slow request.
    pub fn note_slow(&self) {
        self.state().counts.slow += 1;
    }

    /// Counts the event that requests call for more workers than the limit allows.
    pub(crate) fn note_limit_reached(&self) {
        self.state().counts.limit_reached += 1;
    }

    /// Returns the load since the last call.
    pub(crate) fn take_load(&self) -> Load {
        let mut state = self.state();
        let (workers, waiting) = (state.complete, state.waiting());
        let oldest = match &state.ring {
            Some(ring) => ring.oldest(),
            None => state.waiting.oldest(),
        };
        let oldest = oldest.map_or(Duration::ZERO, |since| since.elapsed());
        let idle = state.idle.len();
        let least_idle = std::mem::replace(&mut state.least_idle, idle);
        Load { workers, waiting, oldest, peak: workers.saturating_sub(least_idle) }
    }
}

impl Worker {
    fn report(&self, is_idle: bool) -> WorkerReport {
        let took = self.last.as_ref().map(|last| last.took.unwrap_or_else(|| last.since.elapsed()));
        WorkerReport {
            pid: self.pid,
            started: self.started,
            requests: self.requests,
            is_idle,
            request: self.last.as_ref().map(|last| Arc::clone(&last.request)),
            took: took.unwrap_or_default(),
        }
    }
}
