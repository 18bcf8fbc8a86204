//! Assignment of requests to connections of a FastCGI application, and the decision to make a new
//! connection.
//!
//! Such an application occupies a process (or a thread) with each connection while the connection
//! is open. The ideal is one connection per process: a further connection sits in the backlog, and
//! the process that accepts it must first close another one, with everything that both ends have
//! prepared there.
//!
//! If the number of processes is known ([`Connections::limit`]), connections are made on demand up
//! to it. If not, requests wait here, oldest first, for a kept connection, and one request at a
//! time tries a new one:
//!
//! ```text
//!   new ──────────▶ untaken ─────── a process begins to read ──────▶ in use ◀──────▶ idle
//!                     │                                                ▲
//!                     └─ not within `WAKE_UP`: all are busy. The next  ┘
//!                        connection that would be kept is closed, and
//!                        its process takes this one
//! ```
//! If a process took the new connection by itself, the next may follow at once; if not, no
//! connection is tried for a while. A process needs time to wake up: on a busy machine far more
//! than a small response takes. Without `WAKE_UP`, the first response on another connection looked
//! like proof that no process was free, and applications of six threads got one or two connections.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use sendoff_upstream::error::UpstreamError;
use sendoff_upstream::queue::{Number, QueueLimits, WaitQueue};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Instant;

#[cfg(test)]
mod tests;

/// The most idle connections that are kept to one application.
const MAX_IDLE: usize = 32;
/// The idle timeout of a connection. It is short, because other servers may use the application
/// too.
const IDLE_TIME: Duration = Duration::from_secs(2);
/// The maximum age of a connection in use. Its process then gets the chance to accept a connection
/// of another server.
const MAX_AGE: Duration = Duration::from_secs(2);

/// The pause after a new connection for which no process was free. It doubles each time.
const HOLD_MIN: Duration = Duration::from_millis(50);
const HOLD_MAX: Duration = Duration::from_secs(1);

/// The time in which a free process accepts a new connection. A process that was set free for a
/// connection gets the same time; it may accept a connection of another server instead. The process
/// of a kept connection has the same time to begin to read a request.
pub(super) const WAKE_UP: Duration = Duration::from_millis(20);

/// The connections to one application, for all event loops.
#[derive(Debug)]
pub(super) struct Connections<C> {
    /// A new connection that was not taken for this long no longer delays further attempts.
    patience: Duration,
    limits: QueueLimits,
    state: Mutex<State<C>>,
}

#[derive(Debug)]
struct State<C> {
    /// The last one was used most recently.
    idle: VecDeque<Idle<C>>,
    waiting: WaitQueue<ThreadId, Waiter<C>>,
    /// The most connections at a time; `None`: to be found by trial.
    limit: Option<NonZeroUsize>,
    /// All connections, including those that are being made.
    open: usize,
    /// The open connections that no process is known to read.
    untaken: usize,
    /// The untaken connections for which no process was set free.
    wanted: usize,
    /// The time at which the last connection was made.
    newest: Instant,
    /// The time at which a process was last set free or a connection made. The process gets
    /// `WAKE_UP` from then on to take a connection.
    awaited: Instant,
    hold_until: Instant,
    hold: Duration,
    /// The task that tries new connections when their time has come.
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

/// The answer to a request for a connection.
#[derive(Debug)]
pub(super) enum Grant<C> {
    /// Permission to use this kept connection.
    Kept(ConnectionPermit<C>, C),
    /// Permission to make a new connection.
    New(ConnectionPermit<C>),
    /// Requests may share connections from now on.
    Shared,
}

/// The permit for one connection, which is counted. Dropping it reports the connection as closed.
#[derive(Debug)]
pub(super) struct ConnectionPermit<C> {
    of: Arc<Connections<C>>,
    made: Instant,
    stage: PermitStage,
}

/// ```text
///  Untaken ── a process begins to read ──▶ Taken ── keep() ──▶ Left
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PermitStage {
    Untaken,
    Taken,
    /// The connection is no longer counted here: it is idle or closed.
    Left,
}

/// A request's place in the queue. Dropping it removes the request from the queue.
struct QueueGuard<'a, C> {
    of: &'a Connections<C>,
    number: Number<ThreadId>,
}

impl<C> Drop for QueueGuard<'_, C> {
    fn drop(&mut self) {
        // The lock must be released before the sender is dropped.
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

    /// Sets the most connections from now on; `None`: the limit is to be found by trial. Surplus
    /// connections are closed instead of being kept.
    pub(super) fn limit(self: &Arc<Self>, limit: Option<NonZeroUsize>) {
        let mut state = self.state();
        if state.limit == limit {
            return;
        }
        state.limit = limit;
        drop(state);
        self.try_new();
    }

    /// Waits for a connection. Only a `repeatable` request gets a kept one, because the application
    /// may be closing it. A request that is dropped while it waits leaves the queue at once.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        repeatable: bool,
    ) -> Result<Grant<C>, UpstreamError> {
        let (_turn, granted) = {
            let mut state = self.state();
            let now = Instant::now();
            if let Some(Idle { connection, made, .. }) = state.take_idle(repeatable) {
                if repeatable {
                    return Ok(Grant::Kept(self.permit(made, PermitStage::Taken), connection));
                }
                state.make_instead(now);
                drop(state);
                drop(connection);
                return Ok(Grant::New(self.permit(now, PermitStage::Untaken)));
            }
            if state.may_try(self.patience, now) {
                state.make_another(now);
                return Ok(Grant::New(self.permit(now, PermitStage::Untaken)));
            }
            if state.waiting.len() >= self.limits.requests {
                return Err(self.queue_full());
            }
            let (grant, granted) = oneshot::channel();
            let event_loop = thread::current().id();
            let number = state.waiting.push(event_loop, now, Waiter { repeatable, grant });
            // The task dies with its event loop.
            if state.timekeeper.as_ref().is_none_or(AbortHandle::is_finished) {
                let task = tokio::task::spawn_local(Arc::clone(self).keep_time());
                state.timekeeper = Some(task.abort_handle());
            }
            (QueueGuard { of: self, number }, granted)
        };
        match tokio::time::timeout(self.limits.wait, granted).await {
            Ok(Ok(grant)) => Ok(grant),
            Ok(Err(_)) | Err(_) => Err(self.timed_out()),
        }
    }

    pub(super) fn queue_full(&self) -> UpstreamError {
        UpstreamError::queue_full(&self.limits)
    }

    pub(super) fn timed_out(&self) -> UpstreamError {
        UpstreamError::wait_timed_out(&self.limits)
    }

    /// Permission to make a shared connection; `None` if a request waits for an exclusive one.
    pub(super) fn another(self: &Arc<Self>) -> Option<ConnectionPermit<C>> {
        let mut state = self.state();
        let now = Instant::now();
        if !state.waiting.is_empty() || !state.may_try(self.patience, now) {
            return None;
        }
        state.make_another(now);
        drop(state);
        Some(self.permit(now, PermitStage::Untaken))
    }

    /// True if requests wait because the limit of connections is reached.
    pub(super) fn are_wanted(&self) -> bool {
        let state = self.state();
        state.limit.is_some() && !state.waiting.is_empty()
    }

    /// Dismisses all waiting requests: they may share connections from now on.
    pub(super) fn dismiss(&self) {
        let waiting = self.state().waiting.take();
        for waiter in waiting {
            drop(waiter.grant.send(Grant::Shared));
        }
    }

    /// Tries new connections when their time has come. Ends when no request waits.
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

    /// The number of requests that wait for a connection or a process, and of requests that have
    /// both.
    pub(super) fn load(&self) -> (usize, usize) {
        let state = self.state();
        let waiting = state.waiting.len() + state.untaken;
        (waiting, state.open.saturating_sub(state.idle.len() + state.untaken))
    }

    /// Closes connections that have been idle for too long, or are not quiet, and all idle ones if a
    /// new connection has waited for too long: one of their processes may be free for it.
    pub(super) fn close_old(&self, is_quiet: impl Fn(&C) -> bool) {
        let now = Instant::now();
        let mut state = self.state();
        let (before, is_overdue) = (state.idle.len(), state.is_overdue(now));
        state.idle.retain(|idle| {
            let is_old = now.duration_since(idle.since) >= IDLE_TIME;
            !is_overdue && !is_old && is_quiet(&idle.connection)
        });
        let closed = before - state.idle.len();
        state.open -= closed;
        if closed > 0 {
            state.awaited = now;
        }
    }
}

impl<C> Connections<C> {
    fn state(&self) -> MutexGuard<'_, State<C>> {
        // A panic elsewhere cannot leave the lists inconsistent: no code between lock and unlock
        // panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn permit(self: &Arc<Self>, made: Instant, stage: PermitStage) -> ConnectionPermit<C> {
        ConnectionPermit { of: Arc::clone(self), made, stage }
    }

    /// Lets waiting requests make new connections, if their time has come.
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
            // If the waiter is gone, dropping the grant counts the connection as closed.
            drop(waiter.grant.send(Grant::New(self.permit(now, PermitStage::Untaken))));
        }
    }

    /// A connection was closed and its process is free: the request that has waited longest may
    /// make a new one.
    fn replace(self: &Arc<Self>, mut state: MutexGuard<'_, State<C>>) {
        let Some(waiter) = state.next_waiter() else {
            state.open -= 1;
            return;
        };
        let now = Instant::now();
        state.make_instead(now);
        drop(state);
        drop(waiter.grant.send(Grant::New(self.permit(now, PermitStage::Untaken))));
    }
}

impl<C> State<C> {
    fn take_idle(&mut self, newest: bool) -> Option<Idle<C>> {
        if newest { self.idle.pop_back() } else { self.idle.pop_front() }
    }

    /// The time of the next attempt without a limit, unless an event allows it earlier.
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

    /// The time of the next check for a new connection.
    fn next_look(&self, patience: Duration, now: Instant) -> Instant {
        match self.limit {
            // Below the limit, only `hold_until` delays a connection; at the limit, the end of
            // another request triggers the next.
            Some(_) => self.hold_until.max(now + HOLD_MIN),
            None => self.next_try(patience),
        }
    }

    /// Counts an additional connection, for which possibly no process is free.
    fn make_another(&mut self, now: Instant) {
        self.open += 1;
        self.wanted += 1;
        self.make_instead(now);
    }

    /// Counts a new connection in place of a closed one, whose process is free for it.
    fn make_instead(&mut self, now: Instant) {
        self.untaken += 1;
        (self.newest, self.awaited) = (now, now);
    }

    /// True if a new connection has waited for a process for too long.
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

impl<C: Send + 'static> ConnectionPermit<C> {
    /// Notes that a process has begun to read the request on the connection.
    pub(super) fn note_taken(&mut self) {
        if self.stage != PermitStage::Untaken {
            return;
        }
        self.stage = PermitStage::Taken;
        let mut state = self.of.state();
        state.untaken -= 1;
        if state.wanted > state.untaken {
            // The process took it by itself: another one may be free as well.
            state.wanted = state.untaken;
            (state.hold, state.hold_until) = (HOLD_MIN, self.made);
            drop(state);
            self.of.try_new();
        }
    }

    pub(super) fn was_taken(&self) -> bool {
        self.stage != PermitStage::Untaken
    }

    /// Delays further attempts, because the listener's backlog was full.
    pub(super) fn back_off(&self) {
        self.of.state().back_off(Instant::now());
    }

    /// Keeps the connection for the next request, unless its process is needed for another
    /// connection.
    pub(super) fn keep(mut self, connection: C) {
        self.note_taken();
        self.stage = PermitStage::Left;
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
            Grant::Kept(self.of.permit(self.made, PermitStage::Taken), connection)
        } else {
            state.make_instead(now);
            // The old connection must be closed before the new one is made.
            drop(connection);
            Grant::New(self.of.permit(now, PermitStage::Untaken))
        };
        drop(state);
        drop(waiter.grant.send(grant));
    }
}

impl<C> Drop for ConnectionPermit<C> {
    fn drop(&mut self) {
        if self.stage == PermitStage::Left {
            return;
        }
        let mut state = self.of.state();
        if self.stage == PermitStage::Taken {
            return self.of.replace(state);
        }
        state.untaken -= 1;
        state.wanted = state.wanted.min(state.untaken);
        state.open -= 1;
        drop(state);
        self.of.try_new();
    }
}
