//! Response bytes of one connection that h2 has and the socket has not taken yet.

use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::rc::Rc;
use std::task::{Context, Waker};

use bytes::Buf;
use sendoff_delivery::{Piece, in_memory};

/// The most bytes in flight on a connection; the last piece may exceed it. Enough for four streams
/// at full speed, or for many that send little.
pub(super) const LIMIT: usize = 256 * 1024;

/// The limit while memory is short.
const SMALL_LIMIT: usize = 32 * 1024;

/// The most entries of waiting streams. It exceeds the number of streams of a connection, so beyond
/// it some entries belong to streams that have ended, whose tasks take up memory until their
/// entries are dropped.
const MOST_WAITING: usize = 256;

/// The bytes in flight on one connection, and the streams that wait for room.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    in_flight: Cell<usize>,
    /// In order of arrival, which is the order in which they are woken.
    waiting: RefCell<Vec<Waker>>,
}

impl InFlight {
    /// True if a stream may pass more bytes to h2.
    pub(super) fn has_room(&self) -> bool {
        self.in_flight.get() < limit()
    }

    /// True if no byte is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.in_flight.get() == 0
    }

    /// Wakes the task when [`has_room`](Self::has_room) is true again, or fewer bytes are in
    /// flight.
    pub(super) fn wait(&self, cx: &Context<'_>) {
        if self.waiting.borrow().len() >= MOST_WAITING {
            self.wake();
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|known| known.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
    }

    /// The piece, counted until it has been sent or dropped, for the connection and for its stream.
    pub(super) fn give(self: &Rc<Self>, piece: Piece, stream: &Rc<Cell<usize>>) -> Given {
        self.in_flight.set(self.in_flight.get() + piece.remaining());
        stream.set(stream.get() + piece.remaining());
        Given { piece, in_flight: Rc::clone(self), stream: Rc::clone(stream) }
    }

    fn take_back(&self, bytes: usize) {
        let left = self.in_flight.get() - bytes;
        self.in_flight.set(left);
        // Not after each frame, so that a woken stream can pass on several.
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

/// A piece of a response that was passed to h2.
#[derive(Debug)]
pub(super) struct Given {
    piece: Piece,
    in_flight: Rc<InFlight>,
    /// Bytes of its stream in flight.
    stream: Rc<Cell<usize>>,
}

impl Given {
    fn take_back(&self, bytes: usize) {
        self.stream.set(self.stream.get() - bytes);
        self.in_flight.take_back(bytes);
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
