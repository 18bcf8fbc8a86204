//! State that the streams of one connection share.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sendoff_exchange::lifecycle::Lifecycle;
use sendoff_exchange::service::Current;
use sendoff_message::request::Origin;
use sendoff_transport::descriptors::{self, Level};
use tokio::time::Instant;

/// The bytes that a client may send in excess of [`OVERHEAD`].
const OVERHEAD_ALLOWED: u64 = 1 << 20;

/// The bytes that a client may send for each byte of requests and responses; nginx allows as many.
/// The other bytes are frames without a purpose: pings, settings, priorities, window updates of one
/// byte.
const OVERHEAD: u64 = 8;

/// The most requests that a client may give up in a row. The count falls by one every
/// [`FORGIVEN_AFTER`] and for each request that the client does not give up: a page that sends a
/// request for each keystroke may do so for any time.
const GIVEN_UP_ALLOWED: u32 = 100;

/// Time until a request that was given up no longer counts: 20 per second. An attacker makes
/// thousands per second (CVE-2023-44487).
const FORGIVEN_AFTER: Duration = Duration::from_millis(50);

/// The most requests after the client was told to go. They are refused; beyond the limit the
/// connection ends at once.
const REFUSED_ALLOWED: u32 = 1000;

/// The consequence for a client that costs more than its requests are worth, with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Penalty {
    /// The client is told to go once its open requests have been answered.
    GoAway(&'static str),
    /// The connection ends at once.
    Close(&'static str),
}

/// One connection's streams.
pub struct Streams<S> {
    /// The connection.
    pub origin: Origin,
    /// The service for each request.
    pub services: Rc<Current<S>>,
    /// The lifecycle of the event loop.
    pub lifecycle: Rc<Lifecycle>,
    open: Cell<u32>,
    /// Streams that have had their [turn](StreamGuard::take_turn) and have not ended.
    running: Cell<u32>,
    /// The tasks of streams that wait for their turn.
    awaiting_turn: RefCell<Vec<Waker>>,
    /// The tasks that wait for the end of the client's sending direction, by the places of their
    /// streams; `None` for a free place.
    waiting: RefCell<Vec<Option<Waker>>>,
    /// The client has ended its sending direction.
    input_has_ended: Cell<bool>,
    /// The connection's task, if it waits for the end of all streams.
    awaits_idle: Cell<Option<Waker>>,
    given_up: GivenUp,
    /// Requests that were refused because the client had been told to go.
    refused: Cell<u32>,
    useful: Cell<u64>,
}

impl<S> Streams<S> {
    /// A connection without streams.
    pub fn new(origin: Origin, services: Rc<Current<S>>, lifecycle: Rc<Lifecycle>) -> Rc<Self> {
        Rc::new(Self {
            origin,
            services,
            lifecycle,
            open: Cell::new(0),
            running: Cell::new(0),
            awaiting_turn: RefCell::default(),
            waiting: RefCell::default(),
            input_has_ended: Cell::new(false),
            awaits_idle: Cell::new(None),
            given_up: GivenUp::new(),
            refused: Cell::new(0),
            useful: Cell::new(0),
        })
    }

    /// True if no request is being answered.
    pub fn is_idle(&self) -> bool {
        self.open.get() == 0
    }

    /// Completes when no request is being answered. Only for the connection's task.
    pub async fn idle(&self) {
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

    /// Notes that the client has ended its sending direction: the rest of incomplete requests and
    /// further window updates will not come.
    pub fn end_input(&self) {
        if !self.input_has_ended.replace(true) {
            self.waiting.borrow().iter().flatten().for_each(Waker::wake_by_ref);
        }
    }

    /// Counts bytes of a request or a response.
    pub fn note_useful(&self, bytes: usize) {
        self.useful.set(self.useful.get() + bytes as u64);
    }

    /// Counts a request of a client that was told to go.
    pub fn note_refused(&self) {
        self.refused.set(self.refused.get() + 1);
    }

    /// The penalty for a client that has sent this number of bytes, if it deserves one.
    pub fn penalty(&self, received: u64) -> Option<Penalty> {
        if received / OVERHEAD > self.useful.get() + OVERHEAD_ALLOWED {
            return Some(Penalty::Close("it sends frames that ask for nothing"));
        }
        if self.refused.get() > REFUSED_ALLOWED {
            return Some(Penalty::Close("it was told to go, and goes on"));
        }
        let why = Penalty::GoAway("it gives up most of its requests");
        self.given_up.are_too_many().then_some(why)
    }
}

/// The requests that a client has given up recently. Each may have cost a worker; browsers give up
/// few.
#[derive(Debug)]
struct GivenUp {
    /// The time at which all of them are forgiven: one time replaces a number and the time of its
    /// last change.
    forgiven: Cell<Instant>,
}

impl GivenUp {
    fn new() -> Self {
        Self { forgiven: Cell::new(Instant::now()) }
    }

    /// Counts a request that has ended.
    fn note(&self, was_given_up: bool) {
        let forgiven = self.forgiven.get();
        let forgiven = if was_given_up {
            forgiven.max(Instant::now()).checked_add(FORGIVEN_AFTER)
        } else {
            forgiven.checked_sub(FORGIVEN_AFTER)
        };
        forgiven.into_iter().for_each(|forgiven| self.forgiven.set(forgiven));
    }

    fn are_too_many(&self) -> bool {
        let left = self.forgiven.get().saturating_duration_since(Instant::now());
        left > GIVEN_UP_ALLOWED * FORGIVEN_AFTER
    }
}

/// An open stream. Dropping it counts the stream as ended, however its task ends.
pub struct StreamGuard<S> {
    streams: Rc<Streams<S>>,
    /// Its place in [`Streams::waiting`].
    place: usize,
    was_given_up: Cell<bool>,
    is_running: Cell<bool>,
}

impl<S> StreamGuard<S> {
    /// Counts a stream.
    pub fn new(streams: &Rc<Streams<S>>) -> Self {
        streams.open.set(streams.open.get() + 1);
        let mut waiting = streams.waiting.borrow_mut();
        let free = waiting.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            waiting.push(None);
            waiting.len() - 1
        });
        waiting[place] = Some(Waker::noop().clone());
        let (was_given_up, is_running) = (Cell::new(false), Cell::new(false));
        Self { streams: Rc::clone(streams), place, was_given_up, is_running }
    }

    /// True if the request may be answered: always, unless descriptors are scarce. Then a
    /// connection, which was admitted as one consumer of descriptors, answers one request after the
    /// other, because each may need a file.
    pub fn take_turn(&self) -> bool {
        let streams = &self.streams;
        if streams.running.get() > 0 && descriptors::level() >= Level::Scarce {
            return false;
        }
        self.is_running.set(true);
        streams.running.set(streams.running.get() + 1);
        true
    }

    /// Ready when [`take_turn`](Self::take_turn) has succeeded.
    pub fn poll_turn(&self, cx: &Context<'_>) -> Poll<()> {
        if self.take_turn() {
            return Poll::Ready(());
        }
        let mut waiting = self.streams.awaiting_turn.borrow_mut();
        if !waiting.iter().any(|known| known.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Gives the turn on: the request needs no further descriptor.
    pub fn end_turn(&self) {
        if self.is_running.replace(false) {
            self.streams.running.set(self.streams.running.get() - 1);
            let waiting = self.streams.awaiting_turn.take();
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    /// Notes that the client no longer wants the response.
    pub fn note_given_up(&self) {
        self.was_given_up.set(true);
    }

    /// All streams of the connection.
    pub fn streams(&self) -> &Streams<S> {
        &self.streams
    }

    /// Ready when the client has ended its sending direction.
    pub fn poll_input_end(&self, cx: &Context<'_>) -> Poll<()> {
        if self.streams.input_has_ended.get() {
            return Poll::Ready(());
        }
        if let Some(waker) = &mut self.streams.waiting.borrow_mut()[self.place] {
            waker.clone_from(cx.waker());
        }
        Poll::Pending
    }
}

impl<S> Drop for StreamGuard<S> {
    fn drop(&mut self) {
        self.end_turn();
        let streams = &self.streams;
        streams.given_up.note(self.was_given_up.get());
        // A waker's drop may run foreign code, so it happens after the borrow.
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

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn note(all: &GivenUp, count: u32, was_given_up: bool) {
        (0..count).for_each(|_| all.note(was_given_up));
    }

    fn run(test: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(test);
    }

    #[test]
    fn requests_that_are_given_up_count_by_their_rate() {
        run(async {
            let all = GivenUp::new();
            for _ in 0..1000 {
                note(&all, 20, true);
                advance(Duration::from_secs(1)).await;
            }
            assert!(!all.are_too_many(), "20 per second, for a quarter of an hour");
            for _ in 0..1000 {
                note(&all, 50, true);
                note(&all, 50, false);
            }
            assert!(!all.are_too_many(), "half of them, at any rate");
            note(&all, GIVEN_UP_ALLOWED, true);
            assert!(!all.are_too_many(), "a page is left");
            note(&all, 1, true);
            assert!(all.are_too_many());
            advance(FORGIVEN_AFTER).await;
            assert!(!all.are_too_many());
        });
    }

    #[test]
    fn what_was_not_given_up_is_no_credit() {
        run(async {
            let all = GivenUp::new();
            note(&all, 10_000, false);
            note(&all, GIVEN_UP_ALLOWED + 1, true);
            assert!(all.are_too_many());
        });
    }
}
