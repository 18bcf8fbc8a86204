//! What the streams of one connection have given to h2, and the socket has not taken yet.

use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::rc::Rc;
use std::task::{Context, Waker};

use bytes::Buf;
use sendoff_delivery::{Piece, in_memory};

/// Bytes in flight on a connection; the last piece may exceed it. Four streams at full speed, or as many as have little to send.
pub(super) const LIMIT: usize = 256 * 1024;

/// The limit while memory is short.
const SMALL_LIMIT: usize = 32 * 1024;

/// Entries of streams that wait. More than a connection has streams, so some are of streams that have ended, whose tasks take up memory
/// until their entries are dropped.
const MOST_WAITING: usize = 256;

/// The bytes in flight on one connection, and the streams that wait until there are fewer.
#[derive(Debug, Default)]
pub(super) struct Account {
    in_flight: Cell<usize>,
    /// In the order in which they came, which is the order in which they get their turn.
    waiting: RefCell<Vec<Waker>>,
}

impl Account {
    /// Whether a stream may give more.
    pub(super) fn has_room(&self) -> bool {
        self.in_flight.get() < limit()
    }

    /// Whether nothing is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.in_flight.get() == 0
    }

    /// Wakes the task when [`has_room`](Self::has_room) is true again, or fewer bytes are in flight.
    pub(super) fn wait(&self, cx: &Context<'_>) {
        if self.waiting.borrow().len() >= MOST_WAITING {
            self.wake();
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|known| known.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
    }

    /// The piece, counted until it has been sent or dropped, also in the count of its stream.
    pub(super) fn give(self: &Rc<Self>, piece: Piece, stream: &Rc<Cell<usize>>) -> Given {
        self.in_flight.set(self.in_flight.get() + piece.remaining());
        stream.set(stream.get() + piece.remaining());
        Given { piece, account: Rc::clone(self), stream: Rc::clone(stream) }
    }

    fn take_back(&self, bytes: usize) {
        let left = self.in_flight.get() - bytes;
        self.in_flight.set(left);
        // Not for each frame, so that a stream that is woken can give several.
        if bytes > 0 && left <= limit() / 2 {
            self.wake();
        }
    }

    fn wake(&self) {
        for waker in self.waiting.take() {
            waker.wake();
        }
    }
}

fn limit() -> usize {
    if in_memory::is_short() { SMALL_LIMIT } else { LIMIT }
}

/// A piece of a response in the hands of h2.
#[derive(Debug)]
pub(super) struct Given {
    piece: Piece,
    account: Rc<Account>,
    /// Bytes of its stream in flight.
    stream: Rc<Cell<usize>>,
}

impl Given {
    fn take_back(&self, bytes: usize) {
        self.stream.set(self.stream.get() - bytes);
        self.account.take_back(bytes);
    }
}

impl Buf for Given {
    fn remaining(&self) -> usize {
        self.piece.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.piece.chunk()
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.piece.chunks_vectored(slices)
    }

    fn advance(&mut self, n: usize) {
        self.piece.advance(n);
        self.take_back(n);
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        self.take_back(self.piece.remaining());
    }
}
