//! A request body that is passed on while it arrives: a queue that the client's connection fills
//! and one upstream empties.
//!
//! ```text
//!  client ──▶ BodyWriter ── at most `ROOM` bytes ──▶ BodyReader ──▶ upstream
//!                 └──── end(), fail(status) ────────────▲
//! ```
//! While the queue is full, no byte is read from the client (back-pressure). Once the upstream has
//! dropped the reader, the rest of the body is read and discarded, because many clients look for a
//! response only after they have sent everything.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::StatusCode;
use sendoff_http1::Trailers;

/// Capacity of the queue in bytes; the last piece may exceed it.
const ROOM: usize = 64 * 1024;

/// A body that is still arriving. Clones share the body, and only one of them gives out the reader.
#[derive(Debug, Clone)]
pub struct BodyStream {
    len: Option<u64>,
    shared: Rc<RefCell<BodyState>>,
}

/// The end that the client's connection fills. Dropping it before the end of the body makes the
/// body fail.
#[derive(Debug)]
pub struct BodyWriter(Rc<RefCell<BodyState>>);

/// The end that an upstream empties.
#[derive(Debug)]
pub struct BodyReader {
    shared: Rc<RefCell<BodyState>>,
    replay: Replay,
}

/// The pieces that were taken, for another reader.
#[derive(Debug)]
enum Replay {
    /// They are not kept, or were too many.
    Gone,
    Kept {
        pieces: Vec<Bytes>,
        len: usize,
    },
}

/// A result of reading the queue.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrived {
    /// The next bytes.
    Bytes(Bytes),
    /// No byte has arrived since the last read.
    Nothing,
    /// The body is complete.
    End,
    /// The rest will not come. The client gets a response with this status, if it is still
    /// connected.
    Failed(StatusCode),
}

#[derive(Debug)]
struct BodyState {
    pieces: VecDeque<Bytes>,
    len: usize,
    end: Completion,
    /// The fields behind the body.
    trailers: Option<Trailers>,
    reading: Reading,
    /// The reader that waits for bytes.
    reader: Option<Waker>,
    /// The writer that waits for room.
    writer: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Completion {
    NotYet,
    Complete,
    Failed(StatusCode),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// No upstream has begun to read.
    NotYet,
    Begun,
    Over,
}

impl BodyStream {
    /// A body of `len` bytes, if the length is known. No byte has arrived yet.
    pub fn new(len: Option<u64>) -> (BodyWriter, Self) {
        let shared = Rc::new(RefCell::new(BodyState {
            pieces: VecDeque::new(),
            len: 0,
            end: Completion::NotYet,
            trailers: None,
            reading: Reading::NotYet,
            reader: None,
            writer: None,
        }));
        (BodyWriter(Rc::clone(&shared)), Self { len, shared })
    }

    /// The writer of a body that no upstream reads: its bytes are dropped.
    #[must_use]
    pub fn dropped() -> BodyWriter {
        let (writer, body) = Self::new(None);
        drop(body.reader());
        writer
    }

    /// The length in bytes, if the client has announced it.
    #[must_use]
    pub fn known_len(&self) -> Option<u64> {
        self.len
    }

    /// True once all bytes have arrived from the client.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.shared.borrow().end == Completion::Complete
    }

    /// True once an upstream has begun to read the body; no other upstream can get it then.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.shared.borrow().reading != Reading::NotYet
    }

    /// The only reader. `None`: it was already given out.
    pub fn reader(&self) -> Option<BodyReader> {
        let mut shared = self.shared.borrow_mut();
        if shared.reading != Reading::NotYet {
            return None;
        }
        shared.reading = Reading::Begun;
        Some(BodyReader { shared: Rc::clone(&self.shared), replay: Replay::Gone })
    }

    /// As [`reader`](Self::reader). The reader keeps what is taken, at most [`ROOM`] bytes, so that
    /// it can be [given back](BodyReader::give_back).
    pub fn replayable_reader(&self) -> Option<BodyReader> {
        let replay = Replay::Kept { pieces: Vec::new(), len: 0 };
        self.reader().map(|mut reader| {
            reader.replay = replay;
            reader
        })
    }
}

impl BodyWriter {
    /// Ready when the queue has room.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut shared = self.0.borrow_mut();
        if shared.len < ROOM {
            return Poll::Ready(());
        }
        shared.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Adds bytes, which must not be empty.
    pub fn push(&self, bytes: Bytes) {
        let mut shared = self.0.borrow_mut();
        if shared.reading == Reading::Over {
            return;
        }
        shared.len += bytes.len();
        shared.pieces.push_back(bytes);
        wake(shared.reader.take());
    }

    /// The body is complete, with these fields behind it.
    pub fn end(self, trailers: Option<Trailers>) {
        self.0.borrow_mut().trailers = trailers;
        self.finish(Completion::Complete);
    }

    /// The rest will not come; the client is to be answered with this status.
    pub fn fail(self, status: StatusCode) {
        self.finish(Completion::Failed(status));
    }

    fn finish(&self, end: Completion) {
        let mut shared = self.0.borrow_mut();
        if shared.end == Completion::NotYet {
            shared.end = end;
            wake(shared.reader.take());
        }
    }
}

impl Drop for BodyWriter {
    fn drop(&mut self) {
        self.finish(Completion::Failed(StatusCode::BAD_REQUEST));
    }
}

impl BodyReader {
    /// Takes the next piece of the body, at most `most` bytes.
    pub fn take(&mut self, most: usize) -> Arrived {
        let mut shared = self.shared.borrow_mut();
        // A body that cannot become complete is given up at once.
        if let Completion::Failed(status) = shared.end {
            return Arrived::Failed(status);
        }
        let Some(mut piece) = shared.pieces.pop_front() else {
            return if shared.end == Completion::Complete {
                Arrived::End
            } else {
                Arrived::Nothing
            };
        };
        if piece.len() > most {
            shared.pieces.push_front(piece.split_off(most));
        }
        shared.len -= piece.len();
        if shared.len < ROOM {
            wake(shared.writer.take());
        }
        self.replay.note(&piece);
        Arrived::Bytes(piece)
    }

    /// The fields behind the body, after [`Arrived::End`].
    pub fn trailers(&self) -> Option<Trailers> {
        self.shared.borrow().trailers.clone()
    }

    /// Ready when [`take`](Self::take) has something other than [`Arrived::Nothing`].
    pub fn poll_arrived(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut shared = self.shared.borrow_mut();
        if !shared.pieces.is_empty() || shared.end != Completion::NotYet {
            return Poll::Ready(());
        }
        shared.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Replay {
    fn note(&mut self, piece: &Bytes) {
        if let Self::Kept { pieces, len } = self {
            *len += piece.len();
            if *len <= ROOM {
                pieces.push(piece.clone());
            } else {
                *self = Self::Gone;
            }
        }
    }
}

impl BodyReader {
    /// True if all that was taken is kept.
    #[must_use]
    pub fn is_replayable(&self) -> bool {
        matches!(self.replay, Replay::Kept { .. })
    }

    /// Keeps what was taken no longer.
    pub fn keep_nothing(&mut self) {
        self.replay = Replay::Gone;
    }

    /// Puts back what was taken, so that the next reader reads the body from its beginning. The body
    /// stays spent if not all of it was kept.
    pub fn give_back(mut self) {
        if let Replay::Kept { pieces, len } = std::mem::replace(&mut self.replay, Replay::Gone) {
            let mut shared = self.shared.borrow_mut();
            pieces.into_iter().rev().for_each(|piece| shared.pieces.push_front(piece));
            shared.len += len;
            shared.reading = Reading::NotYet;
        }
    }
}

impl Drop for BodyReader {
    fn drop(&mut self) {
        let mut shared = self.shared.borrow_mut();
        if shared.reading == Reading::NotYet {
            // It was given back.
            return;
        }
        shared.reading = Reading::Over;
        shared.pieces.clear();
        shared.len = 0;
        wake(shared.writer.take());
    }
}

/// Wakes a task. Wakers only mark their task, so this may be called while `BodyState` is borrowed.
fn wake(waker: Option<Waker>) {
    waker.into_iter().for_each(Waker::wake);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_bounded_and_ends_once() {
        let cx = &mut Context::from_waker(Waker::noop());
        let (writer, body) = BodyStream::new(Some(3));
        let mut reader = body.reader().unwrap();
        assert!(body.is_spent() && body.clone().reader().is_none());
        assert!(reader.poll_arrived(cx).is_pending() && reader.take(9) == Arrived::Nothing);
        writer.push(vec![b'a'; ROOM].into());
        assert!(writer.poll_room(cx).is_pending() && reader.poll_arrived(cx).is_ready());
        assert_eq!(reader.take(1), Arrived::Bytes("a".into()));
        assert!(writer.poll_room(cx).is_ready());
        let Arrived::Bytes(rest) = reader.take(ROOM) else { panic!("nothing") };
        assert_eq!(rest.len(), ROOM - 1);
        writer.end(None);
        assert_eq!(reader.take(1), Arrived::End);
    }

    #[test]
    fn a_body_that_is_given_back_is_read_from_its_beginning() {
        let (writer, body) = BodyStream::new(None);
        let mut first = body.replayable_reader().unwrap();
        writer.push("abc".into());
        writer.push("def".into());
        assert_eq!(
            (first.take(2), first.take(9)),
            (Arrived::Bytes("ab".into()), Arrived::Bytes("c".into()))
        );
        first.give_back();
        assert!(!body.is_spent());
        writer.end(None);
        let mut second = body.replayable_reader().unwrap();
        for expected in ["ab", "c", "def"] {
            assert_eq!(second.take(9), Arrived::Bytes(expected.into()));
        }
        assert_eq!(second.take(9), Arrived::End);
        second.keep_nothing();
        second.give_back();
        assert!(body.is_spent());
        // More than the reader keeps.
        let (writer, body) = BodyStream::new(None);
        writer.push(vec![b'a'; ROOM + 1].into());
        let mut reader = body.replayable_reader().unwrap();
        let _all = reader.take(ROOM + 1);
        reader.give_back();
        assert!(body.is_spent());
    }

    #[test]
    fn each_end_learns_that_the_other_is_gone() {
        let cx = &mut Context::from_waker(Waker::noop());
        let (writer, body) = BodyStream::new(None);
        let mut reader = body.reader().unwrap();
        writer.push("ab".into());
        writer.fail(StatusCode::REQUEST_TIMEOUT);
        assert_eq!(reader.take(1), Arrived::Failed(StatusCode::REQUEST_TIMEOUT));
        let writer = BodyStream::dropped();
        (0..9).for_each(|_| writer.push(vec![0; ROOM].into()));
        assert!(writer.poll_room(cx).is_ready());
        let (writer, body) = BodyStream::new(None);
        drop(writer);
        assert_eq!(body.reader().unwrap().take(1), Arrived::Failed(StatusCode::BAD_REQUEST));
    }
}
