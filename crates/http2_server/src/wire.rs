//! The transport of a connection: reads into a buffer that connections share, and sends frames.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use sendoff_delivery::SendTimer;
use sendoff_http2::PREFACE;
use sendoff_transport::Transport;
use sendoff_transport::pace::SlowestPace;

use super::session::Session;

/// The size of one read, in bytes.
const READ: usize = 16 * 1024;

/// The most bytes of the client that are handled in one go; then other connections have their turn.
/// They may be 100,000 frames.
const TURN: usize = 256 * 1024;

/// The most bytes that are dropped at the end of a connection: the client may send them before it
/// learns of the end. More bytes are a flood.
const MOST_DRAINED: u64 = 1 << 20;

/// The most parts of frames in one call of the transport.
const SLICES: usize = 16;

/// The most such calls before other connections have their turn.
const SENDS_IN_TURN: usize = 32;

thread_local! {
    /// The buffer of the connection that last ran out of bytes to read. Connections take turns with
    /// it, because the allocator spends more on a buffer of this size than on small ones. Each
    /// event loop is a thread.
    static SPARE: Cell<BytesMut> = Cell::new(BytesMut::new());
}

/// A connection's transport.
pub(super) struct Wire<T> {
    pub(super) transport: T,
    /// Bytes of the client that have not been handled yet. No memory is allocated while the client
    /// is silent between frames.
    pub(super) received: BytesMut,
    /// Bytes received from the client.
    pub(super) total: u64,
    /// Bytes received since the connection's task began its turn.
    turn: usize,
    /// The transport's count of taken bytes at the last look.
    taken: u64,
    timer: SendTimer,
    /// The lowest speed at which the client may read.
    limits: SlowestPace,
}

impl<T: Transport> Wire<T> {
    /// `received` has the bytes that were already read from the client.
    pub(super) fn new(transport: T, received: BytesMut, limits: SlowestPace) -> Self {
        let (total, timer) = (received.len() as u64, SendTimer::default());
        Self { transport, received, total, turn: 0, taken: 0, timer, limits }
    }

    /// Reads the preface (RFC 9113 §3.4).
    pub(super) fn poll_preface(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let common = self.received.len().min(PREFACE.len());
            if self.received[..common] != PREFACE[..common] {
                return Poll::Ready(Err(io::Error::other("the preface is not valid")));
            }
            if common == PREFACE.len() {
                self.received.advance(common);
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_fill(cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Reads more bytes; 0 at the end of the client's direction.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.turn >= TURN {
            self.turn = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Poll::Ready(read) = self.poll_read(cx) else {
            self.turn = 0;
            if self.received.is_empty() && self.received.capacity() > 0 {
                let mut spare = std::mem::take(&mut self.received);
                spare.clear();
                SPARE.set(spare);
            }
            return Poll::Pending;
        };
        let read = read?;
        self.total += read as u64;
        self.turn += read;
        Poll::Ready(Ok(read))
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        ready!(self.transport.poll_readable(cx))?;
        if self.received.capacity() == 0 {
            self.received = SPARE.take();
        }
        self.received.reserve(READ);
        self.transport.poll_read(cx, &mut self.received)
    }

    /// Sends the frames of the session. Ready when the socket has taken all of them.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        session: &RefCell<Session>,
    ) -> Poll<io::Result<()>> {
        for _ in 0..SENDS_IN_TURN {
            let mut session = session.borrow_mut();
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = session.slices(&mut slices);
            if count == 0 {
                return self.poll_flush(cx);
            }
            match self.transport.try_take(&slices[..count]) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(taken) => {
                    session.take(taken);
                    self.note_progress();
                }
                Err(error) => ready!(self.poll_again(cx, error))?,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.transport.try_flush() {
                Ok(()) => {
                    self.note_progress();
                    return Poll::Ready(Ok(()));
                }
                Err(error) => ready!(self.poll_again(cx, error))?,
            }
        }
    }

    /// Stops the timer if the socket has taken bytes. Gathered bytes and a flush without bytes are
    /// no progress.
    fn note_progress(&mut self) {
        let taken = self.transport.taken();
        if taken > std::mem::replace(&mut self.taken, taken) {
            self.timer.stop();
        }
    }

    /// Ready when the transport may take more after `error`. Fails if the client has taken no byte
    /// for too long.
    fn poll_again(&mut self, cx: &mut Context<'_>, error: io::Error) -> Poll<io::Result<()>> {
        match error.kind() {
            io::ErrorKind::WouldBlock => {
                self.note_progress();
                self.timer.check(cx, self.limits, 0, || self.transport.delivered())?;
                self.transport.poll_writable(cx)
            }
            io::ErrorKind::Interrupted => Poll::Ready(Ok(())),
            _ => Poll::Ready(Err(error)),
        }
    }

    /// Reads and drops bytes in flight until the client closes the connection: unread bytes would
    /// make the kernel reset the connection, and the client might not see the last frames.
    pub(super) async fn drain(&mut self) {
        self.transport.finish();
        let most = self.total + MOST_DRAINED;
        while self.total < most {
            self.received.clear();
            let read = poll_fn(|cx| self.poll_fill(cx)).await;
            if !matches!(read, Ok(1..)) {
                return;
            }
        }
    }
}
