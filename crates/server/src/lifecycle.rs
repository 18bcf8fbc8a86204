//! How long connections live: when they must end because the front stops, and which of them go when descriptors run short.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::{future::poll_fn, mem};

use tokio::sync::{Notify, watch};

/// What the connections of one event loop share.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    stop: watch::Receiver<Stage>,
    connections: Cell<usize>,
    /// Told when the last connection ends, and whenever one ends while others wait to be accepted.
    closed: Notify,
    idle: RefCell<Idle>,
}

/// How far the end of the front has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Stage {
    /// Requests are taken.
    #[default]
    Serving,
    /// Responses are finished, no further requests are taken.
    Draining,
    /// What is not finished is cut.
    Cutting,
}

/// Connections without a request, oldest first.
#[derive(Debug, Default)]
struct Idle {
    next: u64,
    waiting: BTreeMap<u64, Option<Waker>>,
}

impl Lifecycle {
    pub(crate) fn new(stop: watch::Receiver<Stage>) -> Self {
        Self { stop, connections: Cell::new(0), closed: Notify::new(), idle: RefCell::default() }
    }

    /// Whether no further requests are taken.
    pub(crate) fn is_stopping(&self) -> bool {
        *self.stop.borrow() >= Stage::Draining
    }

    /// Ends when the front has come to `stage`.
    pub(crate) fn reached(&self, stage: Stage) -> impl Future<Output = ()> + use<> {
        let mut stop = self.stop.clone();
        async move {
            // An error means that nothing is left that could say so.
            let _ = stop.wait_for(|&now| now >= stage).await;
        }
    }

    /// Connections at present.
    pub(crate) fn connections(&self) -> usize {
        self.connections.get()
    }

    /// Ends when a connection has ended since the last call.
    pub(crate) async fn connection_closed(&self) {
        self.closed.notified().await;
    }

    /// Closes the connection that has been without a request for longest; `false` if there is none.
    pub(crate) fn evict_idle(&self) -> bool {
        let Some((_, waker)) = self.idle.borrow_mut().waiting.pop_first() else { return false };
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Ends when this connection, which is without a request, should close to make room for another.
    pub(crate) async fn evicted(self: &Rc<Self>) {
        let place = Place::new(self);
        poll_fn(|cx| {
            match place.lifecycle.idle.borrow_mut().waiting.get_mut(&place.number) {
                None => return Poll::Ready(()),
                Some(Some(known)) if known.will_wake(cx.waker()) => {}
                Some(known) => *known = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
        .await;
    }
}

/// A place among the idle connections, given back when it is dropped.
struct Place {
    lifecycle: Rc<Lifecycle>,
    number: u64,
}

impl Place {
    fn new(lifecycle: &Rc<Lifecycle>) -> Self {
        let mut idle = lifecycle.idle.borrow_mut();
        idle.next += 1;
        let number = idle.next;
        idle.waiting.insert(number, None);
        drop(idle);
        Self { lifecycle: Rc::clone(lifecycle), number }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let waker = self.lifecycle.idle.borrow_mut().waiting.remove(&self.number);
        // Its drop may run code of its own, so not under the borrow.
        drop(mem::take(&mut waker.flatten()));
    }
}

/// A connection that is counted, however its task ends.
#[derive(Debug)]
pub(crate) struct Counted(Rc<Lifecycle>);

impl Counted {
    pub(crate) fn new(lifecycle: &Rc<Lifecycle>) -> Self {
        lifecycle.connections.set(lifecycle.connections.get() + 1);
        Self(Rc::clone(lifecycle))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.set(self.0.connections.get() - 1);
        self.0.closed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifecycle() -> (watch::Sender<Stage>, Rc<Lifecycle>) {
        let (stop, stopping) = watch::channel(Stage::Serving);
        (stop, Rc::new(Lifecycle::new(stopping)))
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_connection_that_was_idle_longest_goes_first() {
        let (_stop, lifecycle) = lifecycle();
        assert!(!lifecycle.evict_idle());
        let mut first = Box::pin(lifecycle.evicted());
        let mut second = Box::pin(lifecycle.evicted());
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
