//! The end of connections: when the front stops, after the idle timeout, and when descriptors run
//! short.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sendoff_message::request::Who;
use sendoff_report::limits::Limit;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::clients::Connections;

/// A connection that is younger is not closed to make room: its first request may be on its way.
const YOUNG: Duration = Duration::from_secs(1);

/// The longest pause between two checks of idle connections.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The time for which a connection stays open after its last response while the front stops,
/// because its next request may be on the way. The response to that request announces the end of
/// the connection.
const KEPT_AT_STOP: Duration = Duration::from_secs(1);

/// The fewest checks within the idle timeout.
const LOOKS_PER_TIMEOUT: u32 = 8;

/// The state that the connections of one event loop share.
#[derive(Debug)]
pub struct Lifecycle {
    stop: watch::Receiver<Stage>,
    /// The counts of all event loops.
    all: Arc<Connections>,
    connections: Cell<usize>,
    /// Connections that the kernel encrypts.
    by_kernel: Cell<usize>,
    /// Notified when a connection ends or its first response begins.
    closed: Notify,
    idle: RefCell<IdleConnections>,
}

/// The stages of stopping the front.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Stage {
    /// Requests are taken.
    #[default]
    Serving,
    /// Responses are finished, but no further requests are accepted.
    Draining,
    /// Unfinished responses are cut.
    Cutting,
}

/// Connections without a request, oldest first. One task ends the connections that have been idle
/// for too long: a timer for each of them would cost a system call per request, because the event
/// loop is woken for a timer that is earlier than all others.
#[derive(Debug, Default)]
struct IdleConnections {
    next: u64,
    waiting: BTreeMap<(Past, u64), IdleConnection>,
}

impl IdleConnections {
    /// Adds a connection; returns its number.
    fn add(&mut self, past: Past, was_lent: bool) -> u64 {
        self.next += 1;
        let connection = IdleConnection { since: Instant::now(), was_lent, waker: None };
        self.waiting.insert((past, self.next), connection);
        self.next
    }
}

/// The past of an idle connection. Kept connections are closed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Past {
    /// It has been kept after a request.
    Requests,
    /// No request has been read.
    Nothing,
}

#[derive(Debug)]
struct IdleConnection {
    since: Instant,
    /// Another process may have its socket.
    was_lent: bool,
    waker: Option<Waker>,
}

impl Lifecycle {
    /// An event loop without connections. `all`: the connections of all event loops.
    pub fn new(stop: watch::Receiver<Stage>, all: Arc<Connections>) -> Self {
        let (connections, by_kernel) = (Cell::new(0), Cell::new(0));
        Self { stop, all, connections, by_kernel, closed: Notify::new(), idle: RefCell::default() }
    }

    /// True if no further requests are accepted.
    pub fn is_stopping(&self) -> bool {
        *self.stop.borrow() >= Stage::Draining
    }

    /// Returns when the front has reached `stage`.
    pub fn reached(&self, stage: Stage) -> impl Future<Output = ()> + use<> {
        let mut stop = self.stop.clone();
        async move {
            // An error means that the sender is gone, so no stage can be reported any more.
            let _ = stop.wait_for(|&now| now >= stage).await;
        }
    }

    /// The counts of all event loops.
    pub fn all(&self) -> &Connections {
        &self.all
    }

    /// The current number of connections.
    pub fn connections(&self) -> usize {
        self.connections.get()
    }

    /// The number of connections that the kernel encrypts.
    pub fn by_kernel(&self) -> usize {
        self.by_kernel.get()
    }

    /// The number of connections without a request.
    pub fn idle_connections(&self) -> usize {
        self.idle.borrow().waiting.len()
    }

    /// Returns when a connection has ended, or its first response has begun, since the last call.
    pub async fn connection_closed(&self) {
        self.closed.notified().await;
    }

    /// Closes the oldest idle connection; connections that have had a request go first. Returns
    /// false if there is none, or if all are [`YOUNG`].
    pub fn evict_idle(&self) -> bool {
        let guard = self.oldest_idle(Past::Requests).or_else(|| {
            self.oldest_idle(Past::Nothing).filter(|(_, since)| since.elapsed() >= YOUNG)
        });
        guard.is_some_and(|(guard, _)| self.evict(guard))
    }

    fn evict(&self, guard: (Past, u64)) -> bool {
        let evicted = self.idle.borrow_mut().waiting.remove(&guard);
        let is_evicted = evicted.is_some();
        if let Some(waker) = evicted.and_then(|waiting| waiting.waker) {
            waker.wake();
        }
        is_evicted
    }

    /// Closes connections that have been without a request for `timeout`, and one connection if
    /// another event loop needs room and has none to close. Runs forever.
    pub async fn end_idle(&self, timeout: Duration) {
        loop {
            for past in [Past::Requests, Past::Nothing] {
                while let Some((guard, since)) = self.oldest_idle(past)
                    && since.elapsed() >= timeout
                {
                    self.evict(guard);
                }
            }
            if self.idle_connections() > 0 && self.all.take_wish() && self.evict_idle() {
                Limit::IdleConnections.reached();
            }
            tokio::time::sleep((timeout / LOOKS_PER_TIMEOUT).min(LOOK_INTERVAL)).await;
        }
    }

    fn oldest_idle(&self, past: Past) -> Option<((Past, u64), Instant)> {
        let idle = self.idle.borrow();
        let oldest = idle.waiting.range((past, 0)..=(past, u64::MAX)).next();
        oldest.map(|(guard, waiting)| (*guard, waiting.since))
    }

    /// Closes all connections without a request.
    pub fn evict_all(&self) {
        loop {
            let first = self.idle.borrow().waiting.keys().next().copied();
            let Some(guard) = first else { return };
            self.evict(guard);
        }
    }

    /// Closes the connections without a request whose sockets other processes may have.
    pub fn evict_lent(&self) {
        let mut wakers = Vec::new();
        self.idle.borrow_mut().waiting.retain(|_, waiting| {
            if waiting.was_lent {
                wakers.extend(waiting.waker.take());
            }
            !waiting.was_lent
        });
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Closes the connections of a stopping front, each after it has been without a request for
    /// [`KEPT_AT_STOP`]. Runs forever.
    pub async fn end_kept(&self) {
        self.end_idle(KEPT_AT_STOP).await;
    }

    /// Returns when this connection, which is without a request, should close: because it was idle
    /// for too long, to make room for another, because the front stops, or because another process
    /// may have its socket (`was_lent`) and may not see the next request.
    pub fn evicted(&self, past: Past, was_lent: bool) -> Evicted<'_> {
        Evicted { lifecycle: self, past, was_lent, number: None }
    }
}

/// The wait of an idle connection, in a list from its first poll until it is dropped. Not an `async
/// fn`, whose state is twice as large: each idle connection has one.
#[derive(Debug)]
#[must_use = "a future that is not polled does nothing"]
pub struct Evicted<'l> {
    lifecycle: &'l Lifecycle,
    past: Past,
    was_lent: bool,
    number: Option<u64>,
}

impl Future for Evicted<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { lifecycle, past, was_lent, number } = &mut *self;
        let mut idle = lifecycle.idle.borrow_mut();
        let number = *number.get_or_insert_with(|| idle.add(*past, *was_lent));
        match idle.waiting.get_mut(&(*past, number)) {
            None => return Poll::Ready(()),
            Some(IdleConnection { waker: Some(known), .. }) if known.will_wake(cx.waker()) => {}
            Some(waiting) => waiting.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for Evicted<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let waiting = self.lifecycle.idle.borrow_mut().waiting.remove(&(self.past, number));
        // Dropping a waker may run foreign code, so the borrow must have ended.
        drop(waiting);
    }
}

/// Counts a connection until dropped.
#[derive(Debug)]
pub struct ConnectionGuard {
    /// The lifecycle of its event loop.
    pub lifecycle: Rc<Lifecycle>,
    /// The client for which it is counted, if any.
    who: Option<Who>,
    /// Taken when it begins to be served.
    pub starting: Option<StartingGuard>,
}

/// A connection whose first response has not begun: it may need another descriptor. Counted until
/// this value is dropped.
#[derive(Debug)]
pub struct StartingGuard(Rc<Lifecycle>);

impl Drop for StartingGuard {
    fn drop(&mut self) {
        self.0.all.note_started();
        self.0.closed.notify_one();
    }
}

impl ConnectionGuard {
    /// Counts an accepted connection.
    pub fn new(lifecycle: &Rc<Lifecycle>) -> Self {
        lifecycle.connections.set(lifecycle.connections.get() + 1);
        lifecycle.all.begin();
        let starting = Some(StartingGuard(Rc::clone(lifecycle)));
        Self { lifecycle: Rc::clone(lifecycle), who: None, starting }
    }

    /// Counts the connection for a client; false if the client has reached `most`.
    pub fn count_for(&mut self, who: Who, most: u64) -> bool {
        let added = self.lifecycle.all.count_for(who, most);
        self.who = added.then_some(who);
        added
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let Self { lifecycle, who, .. } = self;
        lifecycle.connections.set(lifecycle.connections.get() - 1);
        lifecycle.all.end(who.take());
        lifecycle.closed.notify_one();
    }
}

/// Counts a connection that the kernel encrypts, until dropped.
#[derive(Debug)]
pub struct KernelTlsGuard(Rc<Lifecycle>);

impl KernelTlsGuard {
    /// Counts a connection that the kernel encrypts.
    pub fn new(lifecycle: &Rc<Lifecycle>) -> Self {
        lifecycle.by_kernel.set(lifecycle.by_kernel.get() + 1);
        Self(Rc::clone(lifecycle))
    }
}

impl Drop for KernelTlsGuard {
    fn drop(&mut self) {
        self.0.by_kernel.set(self.0.by_kernel.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifecycle() -> (watch::Sender<Stage>, Rc<Lifecycle>) {
        let (stop, stopping) = watch::channel(Stage::Serving);
        (stop, Rc::new(Lifecycle::new(stopping, Arc::new(Connections::new(1)))))
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_connection_that_was_idle_longest_goes_first() {
        let (_stop, lifecycle) = lifecycle();
        assert!(!lifecycle.evict_idle());
        let mut first = Box::pin(lifecycle.evicted(Past::Requests, false));
        let mut second = Box::pin(lifecycle.evicted(Past::Requests, false));
        for waiting in [&mut first, &mut second] {
            assert!(futures_poll(waiting).await.is_none());
        }
        assert!(lifecycle.evict_idle());
        assert!(futures_poll(&mut second).await.is_none());
        first.await;
        drop(second);
        assert!(!lifecycle.evict_idle(), "a connection that got a request is not idle");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn connections_that_were_lent_can_go_alone() {
        let (_stop, lifecycle) = lifecycle();
        let mut other = Box::pin(lifecycle.evicted(Past::Requests, false));
        let mut lent = Box::pin(lifecycle.evicted(Past::Requests, true));
        for waiting in [&mut other, &mut lent] {
            assert!(futures_poll(waiting).await.is_none());
        }
        lifecycle.evict_lent();
        lent.await;
        assert!(futures_poll(&mut other).await.is_none());
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_connection_without_a_request_makes_room_last_and_not_at_once() {
        let (_stop, lifecycle) = lifecycle();
        let mut young = Box::pin(lifecycle.evicted(Past::Nothing, false));
        let mut kept = Box::pin(lifecycle.evicted(Past::Requests, false));
        for waiting in [&mut young, &mut kept] {
            assert!(futures_poll(waiting).await.is_none());
        }
        assert!(lifecycle.evict_idle());
        assert!(futures_poll(&mut kept).await.is_some());
        assert!(!lifecycle.evict_idle());
        tokio::time::advance(YOUNG).await;
        assert!(lifecycle.evict_idle());
        assert!(futures_poll(&mut young).await.is_some());
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_connection_is_not_idle_for_longer_than_it_may() {
        let (_stop, lifecycle) = lifecycle();
        let timeout = Duration::from_secs(75);
        let began = Instant::now();
        tokio::select! {
            () = lifecycle.end_idle(timeout) => unreachable!("it goes on for ever"),
            () = lifecycle.evicted(Past::Nothing, false) => {}
        }
        assert!((timeout..timeout + 2 * LOOK_INTERVAL).contains(&began.elapsed()));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn stages_are_reached_in_order() {
        let (stop, lifecycle) = lifecycle();
        let counted = ConnectionGuard::new(&lifecycle);
        assert_eq!((lifecycle.connections(), lifecycle.is_stopping()), (1, false));
        stop.send_replace(Stage::Cutting);
        lifecycle.reached(Stage::Draining).await;
        lifecycle.reached(Stage::Cutting).await;
        assert!(lifecycle.is_stopping());
        drop(counted);
        lifecycle.connection_closed().await;
        assert_eq!(lifecycle.connections(), 0);
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
