//! The contents of a pool, behind its lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sendoff_report::workers::{Described, PhpReport};
use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use sendoff_upstream::queue::WaitQueue;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::ring::Ring;
use super::{WorkerId, WorkerPermit};

#[derive(Debug)]
pub(super) struct State {
    /// Last in, first out: the worker that ran last has the warmest caches.
    pub(super) idle: Vec<WorkerId>,
    /// Keyed by the number of the event loop.
    pub(super) waiting: WaitQueue<usize, oneshot::Sender<WorkerPermit>>,
    /// A tree: with few workers its lookups are faster than hashing.
    pub(super) workers: BTreeMap<WorkerId, Worker>,
    /// Number of workers whose links are all made: these take requests.
    pub(super) complete: usize,
    /// Smallest number of idle workers since the last [`Pool::take_load`].
    pub(super) least_idle: usize,
    /// The worker script failed to boot, and no worker has booted since.
    pub(super) cannot_start: bool,
    /// The pool socket is closed: no more workers will come.
    pub(super) is_abandoned: bool,
    /// PHP's version and memory, as a worker reported them.
    pub(super) php: Option<PhpReport>,
    pub(super) counts: Counts,
    /// Requests that wait, in place of `waiting`. A worker in `idle` may have taken one of them, and
    /// may then not be given another.
    pub(super) ring: Option<Ring>,
}

/// State of a worker.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) pid: i32,
    pub(super) started: SystemTime,
    /// Event loops that have not yet made their link to it.
    pub(super) links_missing: usize,
    /// Requests that the worker was given.
    pub(super) requests: u64,
    /// The last request that was described.
    pub(super) last: Option<Last>,
    /// Its seat in the ring.
    pub(super) seat: Option<u16>,
    /// Its permits. A worker that takes requests from the ring may begin one of another event loop
    /// before the end of the last one has been read.
    pub(super) permits: usize,
}

/// A worker's current or last request.
#[derive(Debug)]
pub(super) struct Last {
    pub(super) request: Arc<Described>,
    pub(super) since: Instant,
    /// Duration of the request; `None` while the worker works on it.
    pub(super) took: Option<Duration>,
}

/// Counters since the pool was made.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) requests: u64,
    pub(super) most_waiting: usize,
    pub(super) most_busy: usize,
    pub(super) limit_reached: u64,
    pub(super) slow: u64,
    pub(super) out_of_memory: u64,
}

impl State {
    /// The waiting requests, if no worker runs. The caller drops them after it has released the
    /// lock.
    pub(super) fn refused(&mut self) -> Vec<oneshot::Sender<WorkerPermit>> {
        if self.complete == 0 { self.waiting.take() } else { Vec::new() }
    }

    pub(super) fn not_started(&self) -> UpstreamError {
        let why = match self.is_abandoned {
            true => "the pool has no worker, and its master is gone",
            false => {
                "the worker script of the pool does not start; the lines of sendoff-php in the log say why"
            }
        };
        UpstreamError::new(UpstreamErrorKind::Overloaded, Retry::Safe, why)
    }

    pub(super) fn cannot_start(&self) -> bool {
        self.cannot_start && self.complete == 0
    }

    /// Number of requests that wait for a worker.
    pub(super) fn waiting(&self) -> usize {
        self.ring.as_ref().map_or_else(|| self.waiting.len(), Ring::waiting)
    }

    /// Number of workers that have no request.
    pub(super) fn idle(&self) -> usize {
        self.idle.iter().filter(|worker| self.is_idle(**worker)).count()
    }

    /// True if the worker has no request.
    pub(super) fn is_idle(&self, worker: WorkerId) -> bool {
        let seat = || self.workers.get(&worker).and_then(|worker| worker.seat);
        let has_claim =
            || self.ring.as_ref().zip(seat()).is_some_and(|(r, seat)| r.has_claim(seat));
        self.idle.contains(&worker) && !has_claim()
    }

    /// Gives a worker a seat in the ring, if there is a ring.
    pub(super) fn join_ring(&mut self, worker: WorkerId, links: usize) {
        let seat = self.ring.as_mut().and_then(|ring| ring.join(worker, links));
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.seat = seat;
        }
    }

    /// Takes an idle worker out of the ring. False: it is about to take a request there.
    pub(super) fn dismiss(&mut self, worker: WorkerId) -> bool {
        let Some(ring) = &mut self.ring else { return true };
        let seat = self.workers.get(&worker).and_then(|worker| worker.seat);
        seat.is_some_and(|seat| ring.take_idle(worker, seat))
    }

    pub(super) fn forget(&mut self, worker: WorkerId) {
        if let Some((ring, seat)) =
            self.ring.as_ref().zip(self.workers.get(&worker).and_then(|worker| worker.seat))
        {
            ring.leave(seat);
        }
        if self.workers.remove(&worker).is_some_and(|worker| worker.links_missing == 0) {
            self.complete -= 1;
        }
    }

    pub(super) fn note_idle(&mut self) {
        self.least_idle = self.least_idle.min(self.idle.len());
    }

    /// Counts a request that a worker gets.
    pub(super) fn note_request(&mut self, worker: WorkerId) {
        let busy = self.complete.saturating_sub(self.idle.len());
        self.counts.most_busy = self.counts.most_busy.max(busy);
        self.counts.requests += 1;
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.requests += 1;
            worker.permits += 1;
        }
    }
}
