//! Which request gets which connection to a FastCGI application, and when a new one is made.
//!
//! Such an application gives a process (or a thread) to each connection for as long as it is open. As many connections as
//! processes, and none more, would be best: another one only waits in the listener's queue, and the process that takes it
//! must leave a connection for it, with all that both ends have prepared there.
//!
//! If the number of processes is known ([`Connections::limit`]), connections are made as requests need them up to it, and
//! none beyond. If not, requests wait here, oldest first, for a connection that is kept, and one at a time tries a new one:
//!
//! ```text
//!   new ──────────▶ untaken ─────── a process begins to read ──────▶ in use ◀──────▶ idle
//!                     │                                                ▲
//!                     └─ not within `WAKE_UP`: all are busy. The next  ┘
//!                        one that would be kept is closed, and its
//!                        process takes this one
//! ```
//! If a process took the attempt by itself, the next may follow at once; if not, none is made for a while. A process needs time
//! to wake up, far more of it on a busy machine than a small response takes. Without `WAKE_UP`, the first response on another
//! connection looked like proof that no process was free, and applications of six threads got one or two connections.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use sendoff_upstream::queue::{Number, QueueLimits, WaitQueue};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Instant;

#[cfg(test)]
mod tests;

/// Connections to one application that are kept while idle.
const MAX_IDLE: usize = 32;
/// How long a connection is kept while idle: others may use the application too.
const IDLE_TIME: Duration = Duration::from_secs(2);
/// How long a connection is used. Its process then looks whether another server has a connection for it.
const MAX_AGE: Duration = Duration::from_secs(2);

/// The pause after a new connection for which no process was free, until another one is tried; it doubles each time.
const HOLD_MIN: Duration = Duration::from_millis(50);
const HOLD_MAX: Duration = Duration::from_secs(1);

/// The time in which a process that is free takes a new connection, and one that was set free for it (or takes one of another
/// server).
const WAKE_UP: Duration = Duration::from_millis(20);

/// The connections to one application, for all event loops.
#[derive(Debug)]
pub(super) struct Connections<C> {
    /// A new connection that was not taken for this long does not keep others from being tried.
    patience: Duration,
    limits: QueueLimits,
    state: Mutex<State<C>>,
}

#[derive(Debug)]
struct State<C> {
    /// Used last at the end.
    idle: VecDeque<Idle<C>>,
    waiting: WaitQueue<ThreadId, Waiter<C>>,
    /// The connections that the application takes at a time; `None`: to be found out.
    limit: Option<NonZeroUsize>,
    /// All connections, with those that are being made.
    open: usize,
    /// Connections among them that no process is known to have.
    untaken: usize,
    /// Connections among these for which no process was set free.
    wanted: usize,
    /// When a connection was made last.
    newest: Instant,
    /// When a process was set free, or a connection made, last: since then there has been one to take it, perhaps.
    awaited: Instant,
    hold_until: Instant,
    hold: Duration,
    /// The task that tries a new connection in time.
    timekeeper: Option<AbortHandle>,
}

#[derive(Debug)]
struct Idle<C> {
    connection: C,
    made: Instant,
    since: Instant,
}

#[derive(Debug)]
struct Waiter<C> {
    repeatable: bool,
    grant: oneshot::Sender<Grant<C>>,
}

/// What a request gets.
#[derive(Debug)]
pub(super) enum Grant<C> {
    /// A kept connection.
    Kept(Place<C>, C),
    /// The right to make one.
    New(Place<C>),
    /// None: requests may share connections from now on.
    Shared,
}

/// A connection as it is counted. Dropping it says that the connection is closed.
#[derive(Debug)]
pub(super) struct Place<C> {
    of: Arc<Connections<C>>,
    made: Instant,
    stage: Stage,
}

/// ```text
///  Untaken ── a process begins to read ──▶ Taken ── keep() ──▶ Left
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Untaken,
    Taken,
    /// The connection is idle or closed, and counted as such.
    Left,
}

/// A request's place in the queue. Dropping it leaves the queue.
struct Turn<'a, C> {
    of: &'a Connections<C>,
    number: Number<ThreadId>,
}

impl<C> Drop for Turn<'_, C> {
    fn drop(&mut self) {
        // The lock is released before the sender is dropped.
        let left = self.of.state().waiting.remove(self.number);
        drop(left);
    }
}

impl<C: Send + 'static> Connections<C> {
    pub(super) fn new(patience: Duration, limits: QueueLimits) -> Arc<Self> {
        let now = Instant::now();
        let state = State {
            idle: VecDeque::new(),
            waiting: WaitQueue::default(),
            limit: None,
            open: 0,
            untaken: 0,
            wanted: 0,
            newest: now,
            awaited: now,
            hold_until: now,
            hold: HOLD_MIN,
            timekeeper: None,
        };
        Arc::new(Self { patience, limits, state: Mutex::new(state) })
    }

    /// No more connections than this from now on; `None`: as many as the application is found to take. Those that are open
    /// beyond it are closed when they would be kept.
    pub(super) fn limit(self: &Arc<Self>, limit: Option<NonZeroUsize>) {
        let mut state = self.state();
        if state.limit == limit {
            return;
        }
        state.limit = limit;
        drop(state);
        self.try_new();
    }

    /// Waits for a connection, for a request that may go over a kept one only if it is `repeatable`. A request that is
    /// dropped while it waits leaves the queue at once.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        repeatable: bool,
    ) -> Result<Grant<C>, UpstreamError> {
        let (_turn, granted) = {
            let mut state = self.state();
            let now = Instant::now();
            if let Some(Idle { connection, made, .. }) = state.take_idle(repeatable) {
                if repeatable {
                    return Ok(Grant::Kept(self.place(made, Stage::Taken), connection));
                }
                state.make_instead(now);
                drop(state);
                drop(connection);
                return Ok(Grant::New(self.place(now, Stage::Untaken)));
            }
            if state.may_try(self.patience, now) {
                state.make_another(now);
                return Ok(Grant::New(self.place(now, Stage::Untaken)));
            }
            if state.waiting.len() >= self.limits.requests {
                return Err(self.queue_full());
            }
            let (grant, granted) = oneshot::channel();
            let event_loop = thread::current().id();
            let number = state.waiting.push(event_loop, now, Waiter { repeatable, grant });
            // An event loop that ends takes its tasks with it.
            if state.timekeeper.as_ref().is_none_or(AbortHandle::is_finished) {
                let task = tokio::task::spawn_local(Arc::clone(self).keep_time());
                state.timekeeper = Some(task.abort_handle());
            }
            (Turn { of: self, number }, granted)
        };
        match tokio::time::timeout(self.limits.wait, granted).await {
            Ok(Ok(grant)) => Ok(grant),
            Ok(Err(_)) | Err(_) => Err(self.timed_out()),
        }
    }

    pub(super) fn queue_full(&self) -> UpstreamError {
        let why = format!("{} requests are waiting for it already", self.limits.requests);
        UpstreamError::new(UpstreamErrorKind::QueueFull, Retry::Safe, why)
    }

    pub(super) fn timed_out(&self) -> UpstreamError {
        let why = format!("it was busy for {} s", self.limits.wait.as_secs());
        UpstreamError::new(UpstreamErrorKind::WaitTimedOut, Retry::Safe, why)
    }

    /// The right to make a connection that requests share, if no request waits for one of its own.
    pub(super) fn another(self: &Arc<Self>) -> Option<Place<C>> {
        let mut state = self.state();
        let now = Instant::now();
        if !state.waiting.is_empty() || !state.may_try(self.patience, now) {
            return None;
        }
        state.make_another(now);
        drop(state);
        Some(self.place(now, Stage::Untaken))
    }

    /// Whether requests are queued because the application's limit of connections is reached.
    pub(super) fn are_wanted(&self) -> bool {
        let state = self.state();
        state.limit.is_some() && !state.waiting.is_empty()
    }

    /// Those that wait need no connection of their own: requests may share them.
    pub(super) fn dismiss(&self) {
        let waiting = self.state().waiting.take();
        for waiter in waiting {
            drop(waiter.grant.send(Grant::Shared));
        }
    }

    /// Tries new connections when it is time to, as long as requests wait.
    async fn keep_time(self: Arc<Self>) {
        loop {
            let at = {
                let mut state = self.state();
                if state.waiting.is_empty() {
                    state.timekeeper = None;
                    return;
                }
                state.next_look(self.patience, Instant::now())
            };
            tokio::time::sleep_until(at).await;
            self.try_new();
        }
    }

    /// How many requests wait for a connection or a process, and how many have both.
    pub(super) fn load(&self) -> (usize, usize) {
        let state = self.state();
        let waiting = state.waiting.len() + state.untaken;
        (waiting, state.open.saturating_sub(state.idle.len() + state.untaken))
    }

    /// Closes those that have been idle for too long, or are not quiet.
    pub(super) fn close_old(&self, is_quiet: impl Fn(&C) -> bool) {
        let now = Instant::now();
        let mut state = self.state();
        let before = state.idle.len();
        state.idle.retain(|idle| {
            now.duration_since(idle.since) < IDLE_TIME && is_quiet(&idle.connection)
        });
        state.open -= before - state.idle.len();
    }
}

impl<C> Connections<C> {
    fn state(&self) -> MutexGuard<'_, State<C>> {
        // A panic elsewhere cannot leave the lists half changed: nothing between lock and unlock panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(self: &Arc<Self>, made: Instant, stage: Stage) -> Place<C> {
        Place { of: Arc::clone(self), made, stage }
    }

    /// Lets those who wait make new connections, if it is time to.
    fn try_new(self: &Arc<Self>) {
        loop {
            let mut state = self.state();
            let now = Instant::now();
            if !state.may_try(self.patience, now) {
                return;
            }
            let Some(waiter) = state.next_waiter() else { return };
            state.make_another(now);
            drop(state);
            // Refused, it ends like a connection that failed.
            drop(waiter.grant.send(Grant::New(self.place(now, Stage::Untaken))));
        }
    }

    /// One connection is gone and its process free: the request that has waited longest may make another.
    fn replace(self: &Arc<Self>, mut state: MutexGuard<'_, State<C>>) {
        let Some(waiter) = state.next_waiter() else {
            state.open -= 1;
            return;
        };
        let now = Instant::now();
        state.make_instead(now);
        drop(state);
        drop(waiter.grant.send(Grant::New(self.place(now, Stage::Untaken))));
    }
}

impl<C> State<C> {
    fn take_idle(&mut self, newest: bool) -> Option<Idle<C>> {
        if newest { self.idle.pop_back() } else { self.idle.pop_front() }
    }

    /// When the next new connection may be tried, if nothing happens until then and there is no limit.
    fn next_try(&self, patience: Duration) -> Instant {
        if self.untaken == 0 {
            return self.hold_until;
        }
        self.hold_until.max(self.newest + patience)
    }

    fn may_try(&self, patience: Duration, now: Instant) -> bool {
        match self.limit {
            _ if self.open == 0 => true,
            Some(limit) => self.open < limit.get() && now >= self.hold_until,
            None => now >= self.next_try(patience),
        }
    }

    /// When to look whether a new connection may be tried.
    fn next_look(&self, patience: Duration, now: Instant) -> Instant {
        match self.limit {
            // Below the limit nothing else delays it; at the limit, whatever ends sees to the next.
            Some(_) => self.hold_until.max(now + HOLD_MIN),
            None => self.next_try(patience),
        }
    }

    /// One more connection, for which no process may be free.
    fn make_another(&mut self, now: Instant) {
        self.open += 1;
        self.wanted += 1;
        self.make_instead(now);
    }

    /// A new connection for one that is closed: the process of that one is free for it.
    fn make_instead(&mut self, now: Instant) {
        self.untaken += 1;
        (self.newest, self.awaited) = (now, now);
    }

    /// Whether a new connection has waited for a process for too long.
    fn is_overdue(&self, now: Instant) -> bool {
        self.untaken > 0 && now.duration_since(self.awaited) > WAKE_UP
    }

    fn is_over_limit(&self) -> bool {
        self.limit.is_some_and(|limit| self.open > limit.get())
    }

    fn back_off(&mut self, now: Instant) {
        self.hold_until = now + self.hold;
        self.hold = (self.hold * 2).min(HOLD_MAX);
    }

    fn next_waiter(&mut self) -> Option<Waiter<C>> {
        self.waiting.pop(thread::current().id()).map(|(_, waiter)| waiter)
    }
}

impl<C: Send + 'static> Place<C> {
    /// A process has begun to read what the connection brought.
    pub(super) fn is_taken(&mut self) {
        if self.stage != Stage::Untaken {
            return;
        }
        self.stage = Stage::Taken;
        let mut state = self.of.state();
        state.untaken -= 1;
        if state.wanted > state.untaken {
            // No process had to be set free for it.
            state.wanted = state.untaken;
            (state.hold, state.hold_until) = (HOLD_MIN, self.made);
            drop(state);
            self.of.try_new();
        }
    }

    pub(super) fn was_taken(&self) -> bool {
        self.stage != Stage::Untaken
    }

    /// The listener's queue was full.
    pub(super) fn back_off(&self) {
        self.of.state().back_off(Instant::now());
    }

    /// The connection serves the next request, unless its process is needed elsewhere.
    pub(super) fn keep(mut self, connection: C) {
        self.is_taken();
        self.stage = Stage::Left;
        let now = Instant::now();
        let mut state = self.of.state();
        let is_overdue = state.is_overdue(now);
        if is_overdue || state.is_over_limit() {
            state.wanted = state.wanted.saturating_sub(1);
            state.awaited = now;
            state.open -= 1;
            if is_overdue {
                state.back_off(now);
            }
            return;
        }
        if now.duration_since(self.made) > MAX_AGE {
            drop(connection);
            return self.of.replace(state);
        }
        let Some(waiter) = state.next_waiter() else {
            if state.idle.len() < MAX_IDLE {
                state.idle.push_back(Idle { connection, made: self.made, since: now });
            } else {
                state.open -= 1;
            }
            return;
        };
        let grant = if waiter.repeatable {
            Grant::Kept(self.of.place(self.made, Stage::Taken), connection)
        } else {
            state.make_instead(now);
            // Closed before the other is made.
            drop(connection);
            Grant::New(self.of.place(now, Stage::Untaken))
        };
        drop(state);
        drop(waiter.grant.send(grant));
    }
}

impl<C> Drop for Place<C> {
    fn drop(&mut self) {
        if self.stage == Stage::Left {
            return;
        }
        let mut state = self.of.state();
        if self.stage == Stage::Taken {
            return self.of.replace(state);
        }
        state.untaken -= 1;
        state.wanted = state.wanted.min(state.untaken);
        state.open -= 1;
        drop(state);
        self.of.try_new();
    }
}
