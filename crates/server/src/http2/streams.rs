//! What the streams of one connection share.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::account::Account;
use super::settings::{FRAME_IN_RECORD, STREAM_BUFFER};
use crate::lifecycle::Lifecycle;
use crate::request::{Origin, Scheme};
use crate::service::Current;

/// Bytes that a client may send in excess of [`OVERHEAD`].
const OVERHEAD_ALLOWED: u64 = 1 << 20;

/// Bytes that a client may send for each byte of requests and responses; nginx allows as many. What remains are frames that ask for nothing:
/// pings, settings, priorities, window updates of a byte.
const OVERHEAD: u64 = 8;

/// Requests that a client may give up before their proportion counts.
const GIVEN_UP_ALLOWED: u32 = 100;

/// One connection's streams.
pub(super) struct Streams<S> {
    pub(super) origin: Origin,
    pub(super) services: Rc<Current<S>>,
    pub(super) lifecycle: Rc<Lifecycle>,
    pub(super) account: Rc<Account>,
    /// Bytes that are given to h2 at a time.
    pub(super) frame: usize,
    open: Cell<u32>,
    /// The tasks that wait for the end of the client's sending direction, in the places of their streams; `None`: the place is free.
    waiting: RefCell<Vec<Option<Waker>>>,
    /// The client has ended its sending direction.
    input_has_ended: Cell<bool>,
    /// The connection's task, if it waits until no stream is open.
    awaits_idle: Cell<Option<Waker>>,
    requests: Cell<u32>,
    given_up: Cell<u32>,
    useful: Cell<u64>,
}

impl<S> Streams<S> {
    pub(super) fn new(
        origin: Origin,
        services: Rc<Current<S>>,
        lifecycle: Rc<Lifecycle>,
    ) -> Rc<Self> {
        let frame = match origin.scheme {
            Scheme::Http => STREAM_BUFFER,
            Scheme::Https => FRAME_IN_RECORD,
        };
        Rc::new(Self {
            frame,
            origin,
            services,
            lifecycle,
            account: Rc::default(),
            open: Cell::new(0),
            waiting: RefCell::default(),
            input_has_ended: Cell::new(false),
            awaits_idle: Cell::new(None),
            requests: Cell::new(0),
            given_up: Cell::new(0),
            useful: Cell::new(0),
        })
    }

    /// Whether no request is being answered.
    pub(super) fn is_idle(&self) -> bool {
        self.open.get() == 0
    }

    /// Ends when no request is being answered. For the connection's task alone.
    pub(super) async fn idle(&self) {
        poll_fn(|cx| {
            if self.is_idle() {
                return Poll::Ready(());
            }
            let known = self.awaits_idle.take().filter(|known| known.will_wake(cx.waker()));
            self.awaits_idle.set(Some(known.unwrap_or_else(|| cx.waker().clone())));
            Poll::Pending
        })
        .await;
    }

    /// The client has ended its sending direction: what has not come of requests, and leave to send more, will not come.
    pub(super) fn end_input(&self) {
        if !self.input_has_ended.replace(true) {
            self.waiting.borrow().iter().flatten().for_each(Waker::wake_by_ref);
        }
    }

    /// Counts bytes of a request or a response.
    pub(super) fn note_useful(&self, bytes: usize) {
        self.useful.set(self.useful.get() + bytes as u64);
    }

    /// Counts a request that the client did not want to be answered any more.
    pub(super) fn note_given_up(&self) {
        self.given_up.set(self.given_up.get() + 1);
    }

    /// Why a client that has sent this number of bytes is a burden, if it is one.
    pub(super) fn burden(&self, received: u64) -> Option<&'static str> {
        if received / OVERHEAD > self.useful.get() + OVERHEAD_ALLOWED {
            Some("it sends frames that ask for nothing")
        } else if self.given_up.get() > GIVEN_UP_ALLOWED.max(self.requests.get() / 2) {
            // Each may have cost a worker (CVE-2023-44487). Browsers give up few.
            Some("it gives up most of its requests")
        } else {
            None
        }
    }
}

/// A stream that is open, however its task ends.
pub(super) struct Open<S> {
    streams: Rc<Streams<S>>,
    /// Its place in [`Streams::waiting`].
    place: usize,
}

impl<S> Open<S> {
    pub(super) fn new(streams: &Rc<Streams<S>>) -> Self {
        streams.open.set(streams.open.get() + 1);
        streams.requests.set(streams.requests.get().saturating_add(1));
        let mut waiting = streams.waiting.borrow_mut();
        let free = waiting.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            waiting.push(None);
            waiting.len() - 1
        });
        waiting[place] = Some(Waker::noop().clone());
        Self { streams: Rc::clone(streams), place }
    }

    pub(super) fn streams(&self) -> &Streams<S> {
        &self.streams
    }

    /// Ready when the client has ended its sending direction.
    pub(super) fn poll_input_end(&self, cx: &Context<'_>) -> Poll<()> {
        if self.streams.input_has_ended.get() {
            return Poll::Ready(());
        }
        if let Some(waker) = &mut self.streams.waiting.borrow_mut()[self.place] {
            waker.clone_from(cx.waker());
        }
        Poll::Pending
    }
}

impl<S> Drop for Open<S> {
    fn drop(&mut self) {
        let streams = &self.streams;
        // A waker's drop may run code of its own, so not under the borrow.
        let waker = streams.waiting.borrow_mut()[self.place].take();
        drop(waker);
        streams.open.set(streams.open.get() - 1);
        if streams.is_idle()
            && let Some(connection) = streams.awaits_idle.take()
        {
            connection.wake();
        }
    }
}
