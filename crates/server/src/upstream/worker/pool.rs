//! Which worker takes the next request. One pool for all event loops; the only state they share.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// Requests that may wait for a worker, on all loops together; the next one is refused.
const MAX_WAITING: usize = 4096;

/// How long a request may wait for a worker.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// A worker is rather given to a request of the same event loop, unless another loop's has waited this much longer:
/// waking the other loop costs about 25 µs.
const LOCALITY: Duration = Duration::from_millis(1);

/// Names a worker for the life of the front.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WorkerId(pub u32);

/// The workers and the requests that wait for one.
#[derive(Debug)]
pub struct Pool {
    state: Mutex<State>,
    loops: usize,
}

#[derive(Debug)]
struct State {
    /// Last in, first out: the worker that ran last has the warmest caches.
    idle: Vec<WorkerId>,
    /// Per event loop, oldest first.
    waiting: Vec<VecDeque<Waiter>>,
    /// Every worker, with the number of event loops that have not yet made their link to it.
    links_missing: HashMap<WorkerId, usize>,
    /// The fewest that were idle at a time since somebody asked.
    least_idle: usize,
}

/// What the pool has had to do lately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Workers that take requests.
    pub workers: usize,
    /// Requests that wait for one.
    pub waiting: usize,
    /// How long the first of them has waited.
    pub oldest: Duration,
    /// The most workers that were busy at a time since this was asked last.
    pub peak: usize,
}

#[derive(Debug)]
struct Waiter {
    since: Instant,
    grant: oneshot::Sender<Ticket>,
}

/// The right to send one request to one worker. Dropping it makes the worker idle again, so it must not be dropped while
/// the worker is at work.
#[derive(Debug)]
pub struct Ticket {
    pool: Arc<Pool>,
    worker: WorkerId,
    event_loop: usize,
}

/// Why no worker was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcquireError {
    /// Too many requests wait already.
    QueueFull,
    /// All workers were busy for too long.
    TimedOut,
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QueueFull => write!(f, "{MAX_WAITING} requests are waiting for a worker already"),
            Self::TimedOut => write!(f, "no worker was free for {} s", MAX_WAIT.as_secs()),
        }
    }
}

impl Pool {
    /// An empty pool for that many event loops.
    #[must_use]
    pub fn new(loops: usize) -> Arc<Self> {
        let waiting = (0..loops).map(|_| VecDeque::new()).collect();
        let state =
            State { idle: Vec::new(), waiting, links_missing: HashMap::new(), least_idle: 0 };
        Arc::new(Self { state: Mutex::new(state), loops })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere cannot leave the lists half changed: nothing between lock and unlock panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that one event loop has made its link to `worker`; with the last one the worker takes requests.
    pub fn link_made(self: &Arc<Self>, worker: WorkerId, event_loop: usize) {
        let mut state = self.state();
        let missing = state.links_missing.entry(worker).or_insert(self.loops);
        *missing -= 1;
        if *missing == 0 {
            drop(state);
            drop(Ticket { pool: Arc::clone(self), worker, event_loop });
        }
    }

    /// Forgets a worker whose link is lost.
    pub fn remove(&self, worker: WorkerId) {
        let mut state = self.state();
        state.links_missing.remove(&worker);
        state.idle.retain(|&idle| idle != worker);
        state.note_idle();
    }

    /// How many workers take requests.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.state().workers()
    }

    /// What there was to do since the last call.
    pub fn take_load(&self) -> Load {
        let mut state = self.state();
        let workers = state.workers();
        let mut waiting = 0;
        let mut oldest = Duration::ZERO;
        for waiter in state.waiting.iter().flatten().filter(|waiter| !waiter.grant.is_closed()) {
            waiting += 1;
            oldest = oldest.max(waiter.since.elapsed());
        }
        let idle = state.idle.len();
        let least_idle = std::mem::replace(&mut state.least_idle, idle);
        Load { workers, waiting, oldest, peak: workers.saturating_sub(least_idle) }
    }

    /// Takes up to `most` idle workers out of the pool, those first that have been idle longest.
    pub fn retire(&self, most: usize) -> Vec<WorkerId> {
        let mut state = self.state();
        let most = most.min(state.idle.len());
        let retired: Vec<WorkerId> = state.idle.drain(..most).collect();
        state.note_idle();
        for worker in &retired {
            state.links_missing.remove(worker);
        }
        retired
    }

    /// Waits for a worker, oldest request first.
    ///
    /// # Errors
    /// The queue is full or the wait was too long. Both are for the client to try again later.
    pub async fn acquire(self: &Arc<Self>, event_loop: usize) -> Result<Ticket, AcquireError> {
        let granted = {
            let mut state = self.state();
            if let Some(worker) = state.idle.pop() {
                state.note_idle();
                return Ok(Ticket { pool: Arc::clone(self), worker, event_loop });
            }
            if state.waiting.iter().map(VecDeque::len).sum::<usize>() >= MAX_WAITING {
                return Err(AcquireError::QueueFull);
            }
            let (grant, granted) = oneshot::channel();
            state.waiting[event_loop].push_back(Waiter { since: Instant::now(), grant });
            granted
        };
        match tokio::time::timeout(MAX_WAIT, granted).await {
            Ok(Ok(ticket)) => Ok(ticket),
            Ok(Err(_)) | Err(_) => Err(AcquireError::TimedOut),
        }
    }
}

impl State {
    fn workers(&self) -> usize {
        self.links_missing.values().filter(|&&missing| missing == 0).count()
    }

    fn note_idle(&mut self) {
        self.least_idle = self.least_idle.min(self.idle.len());
    }

    fn next_waiter(&mut self, event_loop: usize) -> Option<(usize, Waiter)> {
        let mut best: Option<(usize, Instant)> = None;
        for (i, queue) in self.waiting.iter().enumerate() {
            let Some(head) = queue.front() else { continue };
            let age = if i == event_loop { head.since.checked_sub(LOCALITY) } else { None };
            let since = age.unwrap_or(head.since);
            if best.is_none_or(|(_, oldest)| since < oldest) {
                best = Some((i, since));
            }
        }
        let (chosen, _) = best?;
        self.waiting[chosen].pop_front().map(|waiter| (chosen, waiter))
    }
}

impl Ticket {
    /// The worker it is for.
    #[must_use]
    pub fn worker(&self) -> WorkerId {
        self.worker
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        if !state.links_missing.contains_key(&self.worker) {
            return;
        }
        while let Some((event_loop, waiter)) = state.next_waiter(self.event_loop) {
            // Sending drops a refused ticket, which would lock the pool again: look first.
            if waiter.grant.is_closed() {
                continue;
            }
            drop(state);
            let ticket = Self { pool: Arc::clone(&self.pool), worker: self.worker, event_loop };
            // A waiter that went away just now returns the ticket, whose drop finds the next one.
            drop(waiter.grant.send(ticket));
            return;
        }
        state.idle.push(self.worker);
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
            (0..loops).for_each(|event_loop| pool.link_made(WorkerId(worker), event_loop));
        }
        pool
    }

    #[test]
    fn a_worker_takes_requests_once_every_loop_has_its_link() {
        let pool = Pool::new(2);
        pool.link_made(WorkerId(7), 0);
        assert_eq!(pool.workers(), 0);
        pool.link_made(WorkerId(7), 1);
        assert_eq!(pool.workers(), 1);
    }

    #[test]
    fn the_oldest_waiter_is_served_and_one_that_left_is_passed_over() {
        block_on(async {
            let pool = pool_with(1, 1);
            let ticket = pool.acquire(0).await.unwrap();
            let mut gone = Box::pin(pool.acquire(0));
            let mut first = Box::pin(pool.acquire(0));
            let mut second = Box::pin(pool.acquire(0));
            for waiter in [&mut gone, &mut first, &mut second] {
                assert!(futures_poll(waiter).await.is_none());
            }
            drop(gone);
            drop(ticket);
            let ticket = first.await.unwrap();
            assert!(futures_poll(&mut second).await.is_none());
            drop(ticket);
            assert_eq!(second.await.unwrap().worker(), WorkerId(0));
        });
    }

    #[test]
    fn the_load_is_that_since_the_last_look() {
        block_on(async {
            let pool = pool_with(3, 1);
            pool.take_load();
            let tickets = (pool.acquire(0).await.unwrap(), pool.acquire(0).await.unwrap());
            drop(tickets);
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
            let ticket = pool.acquire(0).await.unwrap();
            assert_eq!(ticket.worker(), WorkerId(2));
            assert_eq!(pool.retire(1), [WorkerId(0)]);
            assert_eq!(pool.workers(), 2);
            // One is busy, and busy ones stay.
            assert_eq!(pool.retire(5), [WorkerId(1)]);
            drop(ticket);
            assert_eq!(pool.acquire(0).await.unwrap().worker(), WorkerId(2));
        });
    }

    #[test]
    fn a_lost_worker_is_not_given_out_again() {
        block_on(async {
            let pool = pool_with(2, 1);
            let ticket = pool.acquire(0).await.unwrap();
            pool.remove(ticket.worker());
            let lost = ticket.worker();
            drop(ticket);
            let other = pool.acquire(0).await.unwrap();
            assert_ne!(other.worker(), lost);
            assert!(futures_poll(&mut Box::pin(pool.acquire(0))).await.is_none());
        });
    }

    /// Polls once.
    async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = std::future::ready(()) => None,
        }
    }
}
