//! How long connections live: when they must end because the front stops, and which of them go when descriptors run short.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use sendoff_message::request::Who;
use sendoff_report::limits::Limit;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::clients::Connections;

/// A connection that is younger is not closed to make room: its first request may be on its way.
const YOUNG: Duration = Duration::from_secs(1);

/// How often idle connections are looked at, at most.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a connection stays open after its last response when the front stops: its next request may be on its way. The answer to that
/// says that the connection ends.
const KEPT_AT_STOP: Duration = Duration::from_secs(1);

/// And at least this often within the time that a connection may be idle.
const LOOKS_PER_TIMEOUT: u32 = 8;

/// What the connections of one event loop share.
#[derive(Debug)]
pub struct Lifecycle {
    stop: watch::Receiver<Stage>,
    /// Those of all event loops.
    all: Arc<Connections>,
    connections: Cell<usize>,
    /// Those of them that the kernel encrypts.
    by_kernel: Cell<usize>,
    /// Told when a connection ends or its first response begins.
    closed: Notify,
    idle: RefCell<Idle>,
}

/// How far the end of the front has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Stage {
    /// Requests are taken.
    #[default]
    Serving,
    /// Responses are finished, no further requests are taken.
    Draining,
    /// What is not finished is cut.
    Cutting,
}

/// Connections without a request, oldest first. One task ends those that have been idle for too long: a timer for each of them
/// would cost a system call per request, because the event loop is woken for a timer that is earlier than all others.
#[derive(Debug, Default)]
struct Idle {
    next: u64,
    waiting: BTreeMap<(Past, u64), Waiting>,
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
struct Waiting {
    since: Instant,
    waker: Option<Waker>,
}

impl Lifecycle {
    /// An event loop without connections. `all`: the connections of all event loops.
    pub fn new(stop: watch::Receiver<Stage>, all: Arc<Connections>) -> Self {
        let (connections, by_kernel) = (Cell::new(0), Cell::new(0));
        Self { stop, all, connections, by_kernel, closed: Notify::new(), idle: RefCell::default() }
    }

    /// Whether no further requests are taken.
    pub fn is_stopping(&self) -> bool {
        *self.stop.borrow() >= Stage::Draining
    }

    /// Ends when the front has come to `stage`.
    pub fn reached(&self, stage: Stage) -> impl Future<Output = ()> + use<> {
        let mut stop = self.stop.clone();
        async move {
            // An error means that nothing is left that could say so.
            let _ = stop.wait_for(|&now| now >= stage).await;
        }
    }

    /// The connections of all event loops.
    pub fn all(&self) -> &Connections {
        &self.all
    }

    /// Connections at present.
    pub fn connections(&self) -> usize {
        self.connections.get()
    }

    /// Those of them that the kernel encrypts.
    pub fn by_kernel(&self) -> usize {
        self.by_kernel.get()
    }

    /// Those of them that are without a request.
    pub fn idle_connections(&self) -> usize {
        self.idle.borrow().waiting.len()
    }

    /// Ends when a connection has ended, or its first response has begun, since the last call.
    pub async fn connection_closed(&self) {
        self.closed.notified().await;
    }

    /// Closes the oldest idle connection, if possible one that was kept after a request; `false` if there is none, or all are [`YOUNG`].
    pub fn evict_idle(&self) -> bool {
        let place = self.oldest_idle(Past::Requests).or_else(|| {
            self.oldest_idle(Past::Nothing).filter(|(_, since)| since.elapsed() >= YOUNG)
        });
        place.is_some_and(|(place, _)| self.evict(place))
    }

    fn evict(&self, place: (Past, u64)) -> bool {
        let evicted = self.idle.borrow_mut().waiting.remove(&place);
        let is_evicted = evicted.is_some();
        if let Some(waker) = evicted.and_then(|waiting| waiting.waker) {
            waker.wake();
        }
        is_evicted
    }

    /// Closes connections that have been without a request for `timeout`, and one where another event loop has none to close, for ever.
    pub async fn end_idle(&self, timeout: Duration) {
        loop {
            for past in [Past::Requests, Past::Nothing] {
                while let Some((place, since)) = self.oldest_idle(past)
                    && since.elapsed() >= timeout
                {
                    self.evict(place);
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
        oldest.map(|(place, waiting)| (*place, waiting.since))
    }

    /// Closes all connections that are without a request.
    pub fn evict_all(&self) {
        loop {
            let first = self.idle.borrow().waiting.keys().next().copied();
            let Some(place) = first else { return };
            self.evict(place);
        }
    }

    /// Closes the connections of a front that stops, each when it has been without a request for [`KEPT_AT_STOP`]. Never ends.
    pub async fn end_kept(&self) {
        self.end_idle(KEPT_AT_STOP).await;
    }

    /// Ends when this connection, which is without a request, should close: it has been idle for too long, or makes room for
    /// another, or the front stops.
    pub async fn evicted(self: &Rc<Self>, past: Past) {
        let place = Place::new(self, past);
        poll_fn(|cx| {
            match place.lifecycle.idle.borrow_mut().waiting.get_mut(&place.number) {
                None => return Poll::Ready(()),
                Some(Waiting { waker: Some(known), .. }) if known.will_wake(cx.waker()) => {}
                Some(waiting) => waiting.waker = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
        .await;
    }
}

/// A place among the idle connections, given back when it is dropped.
struct Place {
    lifecycle: Rc<Lifecycle>,
    number: (Past, u64),
}

impl Place {
    fn new(lifecycle: &Rc<Lifecycle>, past: Past) -> Self {
        let mut idle = lifecycle.idle.borrow_mut();
        idle.next += 1;
        let number = (past, idle.next);
        idle.waiting.insert(number, Waiting { since: Instant::now(), waker: None });
        drop(idle);
        Self { lifecycle: Rc::clone(lifecycle), number }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let waiting = self.lifecycle.idle.borrow_mut().waiting.remove(&self.number);
        // A waker's drop may run code of its own, so not under the borrow.
        drop(waiting);
    }
}

/// A connection that is counted, however its task ends.
#[derive(Debug)]
pub struct Counted {
    /// The event loop's.
    pub lifecycle: Rc<Lifecycle>,
    /// Whose it is, if it is counted for a client.
    who: Option<Who>,
    /// Taken when it begins to be served.
    pub starting: Option<Starting>,
}

/// A connection whose first response has not begun: it may need another descriptor, and is counted until this is dropped.
#[derive(Debug)]
pub struct Starting(Rc<Lifecycle>);

impl Drop for Starting {
    fn drop(&mut self) {
        self.0.all.note_started();
        self.0.closed.notify_one();
    }
}

impl Counted {
    /// Counts a connection that was accepted.
    pub fn new(lifecycle: &Rc<Lifecycle>) -> Self {
        lifecycle.connections.set(lifecycle.connections.get() + 1);
        lifecycle.all.begin();
        let starting = Some(Starting(Rc::clone(lifecycle)));
        Self { lifecycle: Rc::clone(lifecycle), who: None, starting }
    }

    /// Counts it for a client; false if that has `most` connections.
    pub fn belongs_to(&mut self, who: Who, most: u64) -> bool {
        let added = self.lifecycle.all.belongs_to(who, most);
        self.who = added.then_some(who);
        added
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let Self { lifecycle, who, .. } = self;
        lifecycle.connections.set(lifecycle.connections.get() - 1);
        lifecycle.all.end(who.take());
        lifecycle.closed.notify_one();
    }
}

/// A connection that the kernel encrypts, counted while it exists.
#[derive(Debug)]
pub struct CountedByKernel(Rc<Lifecycle>);

impl CountedByKernel {
    /// Counts a connection that the kernel encrypts.
    pub fn new(lifecycle: &Rc<Lifecycle>) -> Self {
        lifecycle.by_kernel.set(lifecycle.by_kernel.get() + 1);
        Self(Rc::clone(lifecycle))
    }
}

impl Drop for CountedByKernel {
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
        let mut first = Box::pin(lifecycle.evicted(Past::Requests));
        let mut second = Box::pin(lifecycle.evicted(Past::Requests));
        for waiting in [&mut first, &mut second] {
            assert!(futures_poll(waiting).await.is_none());
        }
        assert!(lifecycle.evict_idle());
        assert!(futures_poll(&mut second).await.is_none());
        first.await;
        drop(second);
        assert!(!lifecycle.evict_idle(), "a connection that got a request is not idle");
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_connection_without_a_request_makes_room_last_and_not_at_once() {
        let (_stop, lifecycle) = lifecycle();
        let mut young = Box::pin(lifecycle.evicted(Past::Nothing));
        let mut kept = Box::pin(lifecycle.evicted(Past::Requests));
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
            () = lifecycle.evicted(Past::Nothing) => {}
        }
        assert!((timeout..timeout + 2 * LOOK_INTERVAL).contains(&began.elapsed()));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn stages_are_reached_in_order() {
        let (stop, lifecycle) = lifecycle();
        let counted = Counted::new(&lifecycle);
        assert_eq!((lifecycle.connections(), lifecycle.is_stopping()), (1, false));
        stop.send_replace(Stage::Cutting);
        lifecycle.reached(Stage::Draining).await;
        lifecycle.reached(Stage::Cutting).await;
        assert!(lifecycle.is_stopping());
        drop(counted);
        lifecycle.connection_closed().await;
        assert_eq!(lifecycle.connections(), 0);
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
