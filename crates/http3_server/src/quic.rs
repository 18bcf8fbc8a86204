//! A QUIC connection, as its task and the tasks of its streams share it.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use quinn_proto::{
    Connection, ConnectionEvent, Dir, FinishError, ReadError, ReadableError, StreamId, VarInt,
    WriteError,
};
use sendoff_streams::StreamGone;

/// The most bytes of one read.
const READ: usize = 64 * 1024;

/// A connection and the tasks that wait for it.
pub(crate) struct Quic {
    connection: RefCell<Connection>,
    /// Events of received datagrams that the connection's task has not seen yet.
    inbox: RefCell<VecDeque<ConnectionEvent>>,
    /// The connection's task.
    task: RefCell<Option<Waker>>,
    waiting: RefCell<BTreeMap<StreamId, Waiting>>,
    is_lost: Cell<bool>,
}

/// The task that waits for a stream.
#[derive(Debug, Default)]
struct Waiting {
    /// The directions that tasks still have.
    directions: u8,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// The client has asked to stop the response.
    is_stopped: bool,
}

impl Quic {
    pub(crate) fn new(connection: Connection) -> Self {
        Self {
            connection: RefCell::new(connection),
            inbox: RefCell::default(),
            task: RefCell::default(),
            waiting: RefCell::default(),
            is_lost: Cell::new(false),
        }
    }

    /// The state machine. Only for the connection's task.
    pub(crate) fn state(&self) -> RefMut<'_, Connection> {
        self.connection.borrow_mut()
    }

    /// Takes an event of the endpoint.
    pub(crate) fn deliver(&self, event: ConnectionEvent) {
        self.inbox.borrow_mut().push_back(event);
        self.wake();
    }

    /// The next event that was delivered.
    pub(crate) fn delivered(&self) -> Option<ConnectionEvent> {
        self.inbox.borrow_mut().pop_front()
    }

    /// Wakes this task from now on when the connection has work.
    pub(crate) fn set_task(&self, cx: &Context<'_>) {
        let mut task = self.task.borrow_mut();
        if !task.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
    }

    /// Wakes the connection's task: there may be packets to send.
    pub(crate) fn wake(&self) {
        if let Some(task) = &*self.task.borrow() {
            task.wake_by_ref();
        }
    }

    /// Notes that the connection is lost, and wakes all streams.
    pub(crate) fn lose(&self) {
        self.is_lost.set(true);
        let waiting = self.waiting.take();
        waiting
            .into_values()
            .flat_map(|waiting| [waiting.reader, waiting.writer])
            .flatten()
            .for_each(Waker::wake);
    }

    /// Wakes the task that reads a stream.
    pub(crate) fn readable(&self, id: StreamId) {
        let reader =
            self.waiting.borrow_mut().get_mut(&id).and_then(|waiting| waiting.reader.take());
        reader.into_iter().for_each(Waker::wake);
    }

    /// Wakes the task that writes to a stream.
    pub(crate) fn writable(&self, id: StreamId) {
        let writer =
            self.waiting.borrow_mut().get_mut(&id).and_then(|waiting| waiting.writer.take());
        writer.into_iter().for_each(Waker::wake);
    }

    /// Notes that the client no longer wants the response on a stream.
    pub(crate) fn stopped(&self, id: StreamId) {
        if let Some(waiting) = self.waiting.borrow_mut().get_mut(&id) {
            waiting.is_stopped = true;
        }
        self.writable(id);
        self.readable(id);
    }

    /// Notes that tasks have this number of directions of a stream.
    pub(crate) fn begin(&self, id: StreamId, directions: u8) {
        self.waiting.borrow_mut().entry(id).or_default().directions = directions;
    }

    /// Notes that a task has let one direction go. Behind the last one, the stream is forgotten.
    pub(crate) fn let_go(&self, id: StreamId) {
        let mut all = self.waiting.borrow_mut();
        let Some(waiting) = all.get_mut(&id) else { return };
        waiting.directions -= 1;
        if waiting.directions == 0 {
            let waiting = all.remove(&id);
            // A waker's drop may run foreign code, so it happens after the borrow.
            drop(all);
            drop(waiting);
        }
    }

    fn wait(&self, id: StreamId, cx: &Context<'_>, of: fn(&mut Waiting) -> &mut Option<Waker>) {
        let mut all = self.waiting.borrow_mut();
        let waker = of(all.entry(id).or_default());
        if !waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }

    /// The next bytes of a stream; `None` at its end, after which it may not be read again.
    pub(crate) fn poll_read(
        &self,
        id: StreamId,
        cx: &Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamGone>> {
        let (read, gives_credit) = {
            let mut connection = self.connection.borrow_mut();
            let mut stream = connection.recv_stream(id);
            let mut chunks = match stream.read(true) {
                Ok(chunks) => chunks,
                Err(ReadableError::ClosedStream | ReadableError::IllegalOrderedRead) => {
                    return Poll::Ready(Err(StreamGone));
                }
            };
            let read = chunks.next(READ);
            (read, chunks.finalize().should_transmit())
        };
        if gives_credit {
            self.wake();
        }
        match read {
            Ok(chunk) => Poll::Ready(Ok(chunk.map(|chunk| chunk.bytes))),
            Err(ReadError::Reset(_)) => Poll::Ready(Err(StreamGone)),
            Err(ReadError::Blocked) if self.is_lost.get() => Poll::Ready(Err(StreamGone)),
            Err(ReadError::Blocked) => {
                self.wait(id, cx, |waiting| &mut waiting.reader);
                Poll::Pending
            }
        }
    }

    /// Writes from the front of `parts` until the windows are full; written bytes are removed.
    pub(crate) fn write(
        &self,
        id: StreamId,
        parts: &mut VecDeque<Bytes>,
    ) -> Result<(), StreamGone> {
        if self.is_lost.get() {
            return Err(StreamGone);
        }
        let mut has_written = false;
        let result = loop {
            if parts.is_empty() {
                break Ok(());
            }
            let mut connection = self.connection.borrow_mut();
            match connection.send_stream(id).write_chunks(parts.make_contiguous()) {
                Ok(written) => {
                    has_written |= written.bytes > 0;
                    parts.drain(..written.chunks);
                }
                Err(WriteError::Blocked) => break Ok(()),
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => break Err(StreamGone),
            }
        };
        if has_written {
            self.wake();
        }
        result
    }

    /// Wakes the task when the stream takes more bytes, or is stopped, or the connection is lost.
    pub(crate) fn wait_writable(&self, id: StreamId, cx: &Context<'_>) {
        self.wait(id, cx, |waiting| &mut waiting.writer);
    }

    /// Ready when the client no longer wants the bytes of a stream, or the connection is lost.
    pub(crate) fn poll_stopped(&self, id: StreamId, cx: &Context<'_>) -> Poll<()> {
        let is_stopped = |waiting: &Waiting| waiting.is_stopped;
        if self.is_lost.get() || self.waiting.borrow().get(&id).is_some_and(is_stopped) {
            return Poll::Ready(());
        }
        self.wait_writable(id, cx);
        Poll::Pending
    }

    /// Ends a stream behind the written bytes, by a reset if the client has stopped it (RFC 9000
    /// §3.5): the client may have 128 streams without an end.
    pub(crate) fn finish(&self, id: StreamId) {
        let mut connection = self.connection.borrow_mut();
        let mut stream = connection.send_stream(id);
        if let Err(FinishError::Stopped(code)) = stream.finish() {
            let _reset = stream.reset(code);
        }
        drop(connection);
        self.wake();
    }

    /// Ends a stream early.
    pub(crate) fn reset(&self, id: StreamId, code: u64) {
        // It fails if the stream has ended.
        let _ended = self.connection.borrow_mut().send_stream(id).reset(var(code));
        self.wake();
    }

    /// Tells the client that the rest of a stream is not read.
    pub(crate) fn stop(&self, id: StreamId, code: u64) {
        // It fails if the stream has ended.
        let _ended = self.connection.borrow_mut().recv_stream(id).stop(var(code));
        self.wake();
    }

    /// Opens a unidirectional stream; `None` if the client allows none.
    pub(crate) fn open(&self) -> Option<StreamId> {
        self.connection.borrow_mut().streams().open(Dir::Uni)
    }

    /// Ends the connection with an error code of HTTP/3.
    pub(crate) fn close(&self, code: u64, reason: &str) {
        let reason = Bytes::copy_from_slice(reason.as_bytes());
        self.connection.borrow_mut().close(Instant::now(), var(code), reason);
        self.lose();
        self.wake();
    }
}

fn var(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}
