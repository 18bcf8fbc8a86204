//! Chooses the worker for the next request. The event loops share the pool.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use sendoff_report::workers::Described;
use sendoff_sys::purges::PurgeCounters;
pub use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use sendoff_upstream::queue::{Number, QueueLimits, WaitQueue};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

mod figures;
mod ring;
mod state;

pub use self::figures::Load;
use self::ring::Ring;
pub(crate) use self::ring::{Finding, Posted};
use self::state::{Counts, Last, State, Worker};

/// Number of a worker, unique for the life of the front.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u32);

/// The workers, and the requests that wait for one.
#[derive(Debug)]
pub struct Pool {
    state: Mutex<State>,
    loops: usize,
    limits: QueueLimits,
    started: SystemTime,
    /// Requests are described even without a status page: a script has asked for the state of the
    /// pool.
    describes: AtomicBool,
    /// Notified when a link to a worker is made.
    link_made: Notify,
    /// Notified when a request begins to wait, and when a worker becomes ready for requests.
    news: Notify,
    /// Notified when workers cannot start.
    failed: Notify,
    /// The counters by which fragments of the workers are purged; `None`: the master keeps none.
    purges: Mutex<Option<PurgeCounters>>,
}

/// The right to send one request to one worker. Dropping it makes the worker idle again, so it must
/// be kept until the worker has finished.
#[derive(Debug)]
pub struct WorkerPermit {
    pool: Arc<Pool>,
    worker: WorkerId,
    event_loop: usize,
}

/// A request's place in the queue. Dropping it removes the request from the queue.
struct QueueGuard<'a> {
    pool: &'a Pool,
    number: Number<usize>,
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        // The lock is released before the sender is dropped.
        let left = self.pool.state().waiting.remove(self.number);
        drop(left);
    }
}

impl Pool {
    /// An empty pool for `loops` event loops, with the default limits.
    #[must_use]
    pub fn new(loops: usize) -> Arc<Self> {
        Self::with_limits(loops, QueueLimits::default())
    }

    /// An empty pool for `loops` event loops.
    #[must_use]
    pub fn with_limits(loops: usize, limits: QueueLimits) -> Arc<Self> {
        let state = State {
            idle: Vec::new(),
            waiting: WaitQueue::default(),
            workers: BTreeMap::new(),
            complete: 0,
            least_idle: 0,
            cannot_start: false,
            is_abandoned: false,
            php: None,
            counts: Counts::default(),
            ring: None,
        };
        let (state, link_made, news) = (Mutex::new(state), Notify::new(), Notify::new());
        let (failed, purges) = (Notify::new(), Mutex::new(None));
        let (started, describes) = (SystemTime::now(), AtomicBool::new(false));
        Arc::new(Self { state, loops, limits, started, describes, link_made, news, failed, purges })
    }

    /// Takes the counters of purges of a new master; `None`: it keeps no fragments.
    pub fn set_purge_counters(&self, counters: Option<OwnedFd>) {
        let opened = counters.as_ref().map(PurgeCounters::open).transpose();
        let opened = opened.inspect_err(|error| {
            tracing::error!(%error, "fragments of a pool cannot be purged");
        });
        *self.purges.lock().unwrap_or_else(PoisonError::into_inner) = opened.unwrap_or_default();
    }

    /// Purges the fragments of the workers with one of these tags; `None`: all fragments. Workers
    /// send none of them once this has returned.
    pub fn purge_fragments(&self, tags: Option<&[&str]>) {
        let purges = self.purges.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(counters) = &*purges else { return };
        match tags {
            Some(tags) => tags.iter().for_each(|tag| counters.purge(tag.as_bytes())),
            None => counters.purge_everything(),
        }
    }

    /// Lets the workers take requests from a ring. Call it before the first worker comes.
    ///
    /// # Errors
    /// The memory of the ring cannot be had.
    pub fn make_ring(&self) -> io::Result<()> {
        self.state().ring = Some(Ring::new(self.limits.requests)?);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere cannot leave the lists half changed: no code between lock and unlock
        // panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that one event loop has made its link to `worker`, whose process is `pid`. With the
    /// last event loop's link the worker begins to take requests; that is true then.
    pub(crate) fn link_made(
        self: &Arc<Self>,
        worker: WorkerId,
        pid: i32,
        event_loop: usize,
    ) -> bool {
        let mut state = self.state();
        let known = state.workers.entry(worker).or_insert_with(|| Worker {
            pid,
            started: SystemTime::now(),
            links_missing: self.loops,
            requests: 0,
            last: None,
            seat: None,
            permits: 0,
        });
        known.links_missing -= 1;
        let is_complete = known.links_missing == 0;
        if is_complete {
            state.complete += 1;
            state.cannot_start = false;
            state.join_ring(worker, self.loops);
            self.give(state, worker, event_loop);
            self.news.notify_one();
        }
        self.link_made.notify_waiters();
        is_complete
    }

    /// Gives a free worker to a waiting request, or makes it idle.
    fn give(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        worker: WorkerId,
        event_loop: usize,
    ) {
        let Some((event_loop, grant)) = state.waiting.pop(event_loop) else {
            return state.idle.push(worker);
        };
        state.note_request(worker);
        drop(state);
        let permit = WorkerPermit { pool: Arc::clone(self), worker, event_loop };
        // A request that has just gone away drops the permit, which gives the worker to the next
        // request.
        drop(grant.send(permit));
    }

    /// Completes when an event loop makes a link to a worker. Links made before the first poll do
    /// not count.
    pub(crate) async fn next_link(&self) {
        self.link_made.notified().await;
    }

    /// Completes when a request begins to wait or a worker becomes ready for requests, also if that
    /// has happened since the last call. For one caller.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    /// Records that the worker script has failed to boot. Unless other workers run, requests are
    /// refused until a worker has booted.
    pub fn set_cannot_start(&self) {
        let mut state = self.state();
        state.cannot_start = true;
        // The senders are dropped without the lock.
        let refused = state.refused();
        drop(state);
        drop(refused);
        self.failed.notify_one();
    }

    /// Records that no master is left to start workers. Once no worker runs, requests are refused.
    pub fn set_abandoned(&self) {
        let mut state = self.state();
        state.is_abandoned = true;
        let refused = state.refused();
        drop(state);
        drop(refused);
    }

    /// True if no worker runs because the worker script fails to boot.
    #[must_use]
    pub fn cannot_start(&self) -> bool {
        self.state().cannot_start()
    }

    /// Completes when the worker script fails to boot, also if it has failed since the last call.
    /// For one caller.
    pub async fn fails_to_start(&self) {
        self.failed.notified().await;
    }

    /// Forgets a worker whose link is lost.
    pub fn remove(&self, worker: WorkerId) {
        let mut state = self.state();
        state.forget(worker);
        state.idle.retain(|&idle| idle != worker);
        state.note_idle();
        let refused = if state.is_abandoned { state.refused() } else { Vec::new() };
        drop(state);
        // The senders are dropped without the lock.
        drop(refused);
    }

    /// Number of workers that take requests.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.state().complete
    }

    /// Number of requests that wait for a worker.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.state().waiting()
    }

    /// True if a further request takes no worker from clients: none waits, and another worker stays
    /// idle unless the pool has only one.
    #[must_use]
    pub fn has_spare(&self) -> bool {
        let state = self.state();
        let idle = state.idle();
        state.waiting() == 0 && (idle > 1 || idle == state.complete)
    }

    /// Takes up to `most` idle workers out of the pool, beginning with those that have been idle
    /// longest.
    pub fn retire(&self, most: usize) -> Vec<WorkerId> {
        let mut state = self.state();
        let (mut retired, mut kept) = (Vec::new(), Vec::new());
        for worker in std::mem::take(&mut state.idle) {
            let goes = retired.len() < most && state.dismiss(worker);
            if goes { retired.push(worker) } else { kept.push(worker) }
        }
        state.idle = kept;
        state.note_idle();
        for worker in &retired {
            state.forget(*worker);
        }
        retired
    }

    /// Waits for a worker; the oldest request is served first. A request that is dropped while it
    /// waits leaves the queue at once.
    ///
    /// # Errors
    /// The queue is full or the wait was too long (in both cases the client may try again later),
    /// or no worker can start.
    pub async fn acquire(
        self: &Arc<Self>,
        event_loop: usize,
    ) -> Result<WorkerPermit, UpstreamError> {
        let (_turn, granted) = {
            let mut state = self.state();
            if let Some(worker) = state.idle.pop() {
                state.note_idle();
                state.note_request(worker);
                return Ok(WorkerPermit { pool: Arc::clone(self), worker, event_loop });
            }
            if state.complete == 0 && (state.cannot_start || state.is_abandoned) {
                return Err(state.not_started());
            }
            if state.waiting.len() >= self.limits.requests {
                return Err(self.queue_full());
            }
            let (grant, granted) = oneshot::channel();
            let number = state.waiting.push(event_loop, Instant::now(), grant);
            state.counts.most_waiting = state.counts.most_waiting.max(state.waiting.len());
            (QueueGuard { pool: self, number }, granted)
        };
        self.news.notify_one();
        match tokio::time::timeout(self.limits.wait, granted).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) => Err(self.state().not_started()),
            Err(_) => Err(self.timed_out()),
        }
    }

    fn queue_full(&self) -> UpstreamError {
        let why = format!("{} requests are waiting for a worker already", self.limits.requests);
        UpstreamError::new(UpstreamErrorKind::QueueFull, Retry::Safe, why)
    }

    fn timed_out(&self) -> UpstreamError {
        let why = format!("no worker was free for {} s", self.limits.wait.as_secs());
        UpstreamError::new(UpstreamErrorKind::WaitTimedOut, Retry::Safe, why)
    }
}

impl WorkerPermit {
    /// The worker that the permit is for.
    #[must_use]
    pub fn worker(&self) -> WorkerId {
        self.worker
    }

    /// Notes, for the status page, the request that the worker gets.
    pub fn describe(&self, request: Arc<Described>, since: Instant) {
        if let Some(worker) = self.pool.state().workers.get_mut(&self.worker) {
            worker.last = Some(Last { request, since, took: None });
        }
    }
}

impl Drop for WorkerPermit {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        let Some(worker) = state.workers.get_mut(&self.worker) else { return };
        if let Some(last) = worker.last.as_mut().filter(|last| last.took.is_none()) {
            last.took = Some(last.since.elapsed());
        }
        worker.permits -= 1;
        if worker.permits > 0 {
            return;
        }
        self.pool.give(state, self.worker, self.event_loop);
    }
}

#[cfg(test)]
mod tests;
