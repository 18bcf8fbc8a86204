//! Chooses the worker for the next request. The event loops share the pool.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use sendoff_report::workers::{Described, PhpReport, PoolReport, WorkerReport};
use sendoff_sys::purges::PurgeCounters;
pub use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use sendoff_upstream::queue::{Number, QueueLimits, WaitQueue};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

mod ring;

use self::ring::Ring;
pub(crate) use self::ring::{Finding, Posted};

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

#[derive(Debug)]
struct State {
    /// Last in, first out: the worker that ran last has the warmest caches.
    idle: Vec<WorkerId>,
    /// Keyed by the number of the event loop.
    waiting: WaitQueue<usize, oneshot::Sender<WorkerPermit>>,
    /// A tree: with few workers its lookups are faster than hashing.
    workers: BTreeMap<WorkerId, Worker>,
    /// Number of workers whose links are all made: these take requests.
    complete: usize,
    /// Smallest number of idle workers since the last [`Pool::take_load`].
    least_idle: usize,
    /// The worker script failed to boot, and no worker has booted since.
    cannot_start: bool,
    /// The pool socket is closed: no more workers will come.
    is_abandoned: bool,
    /// PHP's version and memory, as a worker reported them.
    php: Option<PhpReport>,
    counts: Counts,
    /// Requests that wait, in place of `waiting`. A worker in `idle` may have taken one of them, and
    /// may then not be given another.
    ring: Option<Ring>,
}

/// State of a worker.
#[derive(Debug)]
struct Worker {
    pid: i32,
    started: SystemTime,
    /// Event loops that have not yet made their link to it.
    links_missing: usize,
    /// Requests that the worker was given.
    requests: u64,
    /// The last request that was described.
    last: Option<Last>,
    /// Its seat in the ring.
    seat: Option<u16>,
    /// Its permits. A worker that takes requests from the ring may begin one of another event loop
    /// before the end of the last one has been read.
    permits: usize,
}

/// A worker's current or last request.
#[derive(Debug)]
struct Last {
    request: Arc<Described>,
    since: Instant,
    /// Duration of the request; `None` while the worker works on it.
    took: Option<Duration>,
}

/// Counters since the pool was made.
#[derive(Debug, Default)]
struct Counts {
    requests: u64,
    most_waiting: usize,
    most_busy: usize,
    limit_reached: u64,
    slow: u64,
    out_of_memory: u64,
}

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

impl State {
    /// The waiting requests, if no worker runs. The caller drops them after it has released the
    /// lock.
    fn refused(&mut self) -> Vec<oneshot::Sender<WorkerPermit>> {
        if self.complete == 0 { self.waiting.take() } else { Vec::new() }
    }

    fn not_started(&self) -> UpstreamError {
        let why = match self.is_abandoned {
            true => "the pool has no worker, and its master is gone",
            false => {
                "the worker script of the pool does not start; the lines of sendoff-php in the log say why"
            }
        };
        UpstreamError::new(UpstreamErrorKind::Overloaded, Retry::Safe, why)
    }

    fn cannot_start(&self) -> bool {
        self.cannot_start && self.complete == 0
    }

    /// Number of requests that wait for a worker.
    fn waiting(&self) -> usize {
        self.ring.as_ref().map_or_else(|| self.waiting.len(), Ring::waiting)
    }

    /// Number of workers that have no request.
    fn idle(&self) -> usize {
        self.idle.iter().filter(|worker| self.is_idle(**worker)).count()
    }

    /// True if the worker has no request.
    fn is_idle(&self, worker: WorkerId) -> bool {
        let seat = || self.workers.get(&worker).and_then(|worker| worker.seat);
        let has_claim =
            || self.ring.as_ref().zip(seat()).is_some_and(|(r, seat)| r.has_claim(seat));
        self.idle.contains(&worker) && !has_claim()
    }

    /// Gives a worker a seat in the ring, if there is a ring.
    fn join_ring(&mut self, worker: WorkerId, links: usize) {
        let seat = self.ring.as_mut().and_then(|ring| ring.join(worker, links));
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.seat = seat;
        }
    }

    /// Takes an idle worker out of the ring. False: it is about to take a request there.
    fn dismiss(&mut self, worker: WorkerId) -> bool {
        let Some(ring) = &mut self.ring else { return true };
        let seat = self.workers.get(&worker).and_then(|worker| worker.seat);
        seat.is_some_and(|seat| ring.take_idle(worker, seat))
    }

    fn forget(&mut self, worker: WorkerId) {
        if let Some((ring, seat)) =
            self.ring.as_ref().zip(self.workers.get(&worker).and_then(|worker| worker.seat))
        {
            ring.leave(seat);
        }
        if self.workers.remove(&worker).is_some_and(|worker| worker.links_missing == 0) {
            self.complete -= 1;
        }
    }

    fn note_idle(&mut self) {
        self.least_idle = self.least_idle.min(self.idle.len());
    }

    /// Counts a request that a worker gets.
    fn note_request(&mut self, worker: WorkerId) {
        let busy = self.complete.saturating_sub(self.idle.len());
        self.counts.most_busy = self.counts.most_busy.max(busy);
        self.counts.requests += 1;
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.requests += 1;
            worker.permits += 1;
        }
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
mod tests {
    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
            .block_on(future)
    }

    fn pool_with(workers: u32, loops: usize) -> Arc<Pool> {
        let pool = Pool::new(loops);
        for worker in 0..workers {
            (0..loops).for_each(|event_loop| {
                pool.link_made(WorkerId(worker), 100 + worker.cast_signed(), event_loop);
            });
        }
        pool
    }

    #[test]
    fn a_worker_takes_requests_once_every_loop_has_its_link() {
        let pool = Pool::new(2);
        pool.link_made(WorkerId(7), 70, 0);
        assert_eq!(pool.workers(), 0);
        pool.link_made(WorkerId(7), 70, 1);
        assert_eq!(pool.workers(), 1);
    }

    #[test]
    fn the_oldest_waiter_is_served_and_one_that_left_is_passed_over() {
        block_on(async {
            let pool = pool_with(1, 1);
            let permit = pool.acquire(0).await.unwrap();
            let mut gone = Box::pin(pool.acquire(0));
            let mut first = Box::pin(pool.acquire(0));
            let mut second = Box::pin(pool.acquire(0));
            for waiter in [&mut gone, &mut first, &mut second] {
                assert!(futures_poll(waiter).await.is_none());
            }
            drop(gone);
            drop(permit);
            let permit = first.await.unwrap();
            assert!(futures_poll(&mut second).await.is_none());
            drop(permit);
            assert_eq!(second.await.unwrap().worker(), WorkerId(0));
        });
    }

    #[test]
    fn the_load_is_that_since_the_last_look() {
        block_on(async {
            let pool = pool_with(3, 1);
            pool.take_load();
            let permits = (pool.acquire(0).await.unwrap(), pool.acquire(0).await.unwrap());
            drop(permits);
            let idle = Load { workers: 3, waiting: 0, oldest: Duration::ZERO, peak: 0 };
            assert_eq!(pool.take_load(), Load { peak: 2, ..idle });
            assert_eq!(pool.take_load(), idle);
            let _busy = (pool.acquire(0).await.unwrap(), pool.acquire(0).await.unwrap());
            let _last = pool.acquire(0).await.unwrap();
            let mut waiter = Box::pin(pool.acquire(0));
            assert!(futures_poll(&mut waiter).await.is_none());
            let load = pool.take_load();
            assert_eq!((load.waiting, load.peak), (1, 3));
            drop(waiter);
            assert_eq!(pool.take_load().waiting, 0);
        });
    }

    #[test]
    fn the_worker_that_was_idle_longest_retires_and_is_not_given_out_again() {
        block_on(async {
            let pool = pool_with(3, 1);
            let permit = pool.acquire(0).await.unwrap();
            assert_eq!(permit.worker(), WorkerId(2));
            assert_eq!(pool.retire(1), [WorkerId(0)]);
            assert_eq!(pool.workers(), 2);
            // The third worker is busy, and busy workers stay.
            assert_eq!(pool.retire(5), [WorkerId(1)]);
            drop(permit);
            assert_eq!(pool.acquire(0).await.unwrap().worker(), WorkerId(2));
        });
    }

    #[test]
    fn a_lost_worker_is_not_given_out_again() {
        block_on(async {
            let pool = pool_with(2, 1);
            let permit = pool.acquire(0).await.unwrap();
            pool.remove(permit.worker());
            let lost = permit.worker();
            drop(permit);
            let other = pool.acquire(0).await.unwrap();
            assert_ne!(other.worker(), lost);
            assert!(futures_poll(&mut Box::pin(pool.acquire(0))).await.is_none());
        });
    }

    /// Requests whose clients have left must not delay the next request or have it refused.
    #[test]
    fn a_request_that_is_dropped_leaves_the_queue_at_once() {
        block_on(async {
            let limits = QueueLimits { requests: 3, ..QueueLimits::default() };
            let pool = Pool::with_limits(1, limits);
            pool.link_made(WorkerId(0), 100, 0);
            let permit = pool.acquire(0).await.unwrap();
            let mut gone: Vec<_> = (0..3).map(|_| Box::pin(pool.acquire(0))).collect();
            for waiter in &mut gone {
                assert!(futures_poll(waiter).await.is_none());
            }
            assert_eq!(pool.acquire(0).await.unwrap_err().kind(), UpstreamErrorKind::QueueFull);
            drop(gone);
            assert_eq!(pool.take_load().waiting, 0);
            let mut live = Box::pin(pool.acquire(0));
            assert!(futures_poll(&mut live).await.is_none(), "there is room");
            drop(permit);
            assert_eq!(live.await.unwrap().worker(), WorkerId(0));
        });
    }

    /// The worker is granted to a request that is dropped before it is polled.
    #[test]
    fn a_ticket_that_was_granted_to_a_dropped_request_goes_to_the_next() {
        block_on(async {
            let pool = pool_with(1, 1);
            let permit = pool.acquire(0).await.unwrap();
            let (mut first, mut second) = (Box::pin(pool.acquire(0)), Box::pin(pool.acquire(0)));
            for waiter in [&mut first, &mut second] {
                assert!(futures_poll(waiter).await.is_none());
            }
            drop(permit);
            drop(first);
            assert_eq!(second.await.unwrap().worker(), WorkerId(0));
            assert_eq!(pool.state().idle, [WorkerId(0)]);
        });
    }

    #[test]
    fn a_request_waits_for_a_bounded_time() {
        block_on(async {
            let limits = QueueLimits { wait: Duration::from_millis(1), ..QueueLimits::default() };
            let pool = Pool::with_limits(1, limits);
            let error = pool.acquire(0).await.unwrap_err();
            assert_eq!(error.kind(), UpstreamErrorKind::WaitTimedOut);
            assert_eq!(pool.take_load().waiting, 0);
        });
    }

    #[test]
    fn a_report_counts_requests_of_the_pool_and_of_each_worker() {
        block_on(async {
            let pool = pool_with(2, 2);
            let first = pool.acquire(0).await.unwrap();
            let second = pool.acquire(1).await.unwrap();
            let mut waiter = Box::pin(pool.acquire(0));
            let mut gone = Box::pin(pool.acquire(1));
            assert!(futures_poll(&mut waiter).await.is_none());
            assert!(futures_poll(&mut gone).await.is_none());
            drop(gone);
            let (method, uri) = (http::Method::GET, b"/a.php".to_vec());
            let (query, user, script) = (Vec::new(), Vec::new(), b"/srv/a.php".to_vec());
            let described = Arc::new(Described { method, uri, query, body: 3, user, script });
            second.describe(Arc::clone(&described), Instant::now());
            pool.note_slow();
            pool.note_limit_reached();
            let busy = pool.report();
            assert_eq!((busy.idle, busy.workers, busy.most_busy), (0, 2, 2));
            assert_eq!((busy.waiting, busy.most_waiting, busy.requests), (1, 2, 2));
            assert_eq!((busy.slow, busy.limit_reached), (1, 1));
            assert_eq!(busy.queue, QueueLimits::default().requests);
            drop(first);
            let third = waiter.await.unwrap();
            assert_eq!(third.worker(), WorkerId(1));
            drop((second, third));
            let idle = PoolReport { idle: 2, waiting: 0, requests: 3, ..busy };
            assert_eq!(pool.report(), idle);
            let [zero, one] = &pool.worker_reports()[..] else { panic!("two workers") };
            assert_eq!((zero.pid, zero.requests, one.pid, one.requests), (100, 1, 101, 2));
            assert!(zero.is_idle && one.is_idle && one.request.is_none());
            assert_eq!(zero.request.as_ref(), Some(&described));
            assert_eq!(zero.took, pool.worker_reports()[0].took, "it has ended");
            pool.remove(WorkerId(0));
            assert_eq!(pool.report(), PoolReport { idle: 1, workers: 1, ..idle });
            assert_eq!(pool.worker_reports().len(), 1);
        });
    }

    /// Polls a future once.
    async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = std::future::ready(()) => None,
        }
    }
}
