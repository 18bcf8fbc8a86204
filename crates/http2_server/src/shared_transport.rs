//! The transport in the form that h2 expects: `AsyncRead` and `AsyncWrite`.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use sendoff_delivery::{SendLimits, SendTimer};
use sendoff_transport::Transport;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The size of one read, in bytes.
const READ: usize = 16 * 1024;

/// The most bytes of the client that h2 gets in one go; then other connections have their turn.
/// They may be 100,000 frames.
const TURN: usize = 256 * 1024;

/// The most bytes that are dropped at the end of a connection: the client may send them before it
/// learns of the end. More bytes are a flood.
const MOST_DRAINED: u64 = 1 << 20;

thread_local! {
    /// The buffer of the connection that last ran out of bytes to read. Connections take turns with
    /// it, because the allocator spends more on a buffer of this size than on small ones. Each
    /// event loop is a thread.
    static SPARE: Cell<BytesMut> = Cell::new(BytesMut::new());
}

/// A connection's transport. h2 owns one handle; the connection's task keeps another.
pub(super) struct SharedTransport<T>(Rc<RefCell<TransportEnds<T>>>);

struct TransportEnds<T> {
    transport: T,
    /// Bytes of the client that h2 has not taken yet. No memory is allocated while the client is
    /// silent.
    received: BytesMut,
    /// Bytes received from the client.
    total: u64,
    /// Bytes received since the connection's task began its turn.
    turn: usize,
    /// The transport's count of taken bytes at the last look.
    taken: u64,
    timer: SendTimer,
    /// Bytes from h2 wait in the transport until h2 has nothing to do.
    gathers: bool,
    input: ClientInput,
    /// The transport has not taken the last bytes from h2.
    is_blocked: bool,
    /// The lowest speed at which the client may read.
    limits: SendLimits,
}

/// The client's sending direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientInput {
    /// h2 sees the end at once.
    Shown,
    /// The end will be hidden from h2.
    Held,
    /// The direction has ended, and h2 has not seen the end.
    HeldEnd,
}

impl<T: Transport> SharedTransport<T> {
    /// `received` has the bytes that were already read from the client.
    pub(super) fn new(transport: T, received: BytesMut, limits: SendLimits) -> Self {
        let (total, timer) = (received.len() as u64, SendTimer::default());
        Self(Rc::new(RefCell::new(TransportEnds {
            transport,
            received,
            total,
            turn: 0,
            taken: 0,
            timer,
            gathers: false,
            input: ClientInput::Shown,
            is_blocked: false,
            limits,
        })))
    }

    pub(super) fn handle(&self) -> Self {
        Self(Rc::clone(&self.0))
    }

    /// Bytes received from the client.
    pub(super) fn received(&self) -> u64 {
        self.0.borrow().total
    }

    /// With true, bytes from h2 wait for [`poll_send_gathered`](Self::poll_send_gathered) from now
    /// on.
    pub(super) fn gather(&self, gathers: bool) {
        self.0.borrow_mut().gathers = gathers;
    }

    /// Hides the end of the client's sending direction from h2 from now on. At the end h2 would
    /// drop all streams, even those with complete requests.
    pub(super) fn hold_end(&self) {
        self.0.borrow_mut().input = ClientInput::Held;
    }

    /// True if the client has ended its sending direction and h2 has not seen the end.
    pub(super) fn holds_end(&self) -> bool {
        self.0.borrow().input == ClientInput::HeldEnd
    }

    /// True if the transport has not taken the last bytes from h2. Otherwise, if h2 has nothing to
    /// do, h2 has written everything that the client's windows allow.
    pub(super) fn is_blocked(&self) -> bool {
        self.0.borrow().is_blocked
    }

    /// Sends the gathered bytes. To be called when h2 has nothing to do.
    pub(super) fn poll_send_gathered(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_flush(cx)
    }

    /// True if the connection should end after its open streams.
    pub(super) fn is_worn(&self) -> bool {
        self.0.borrow().transport.is_worn()
    }

    /// Reads and drops bytes in flight until the client closes the connection: unread bytes would
    /// make the kernel reset the connection, and the client might not see the last frames.
    pub(super) async fn drain(&self) {
        self.0.borrow_mut().transport.finish();
        let most = self.received() + MOST_DRAINED;
        while self.received() < most {
            self.0.borrow_mut().received.clear();
            let read = poll_fn(|cx| self.0.borrow_mut().poll_fill(cx)).await;
            if !matches!(read, Ok(1..)) {
                return;
            }
        }
    }
}

impl<T: Transport> TransportEnds<T> {
    /// Reads more bytes if none are left.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.received.is_empty() {
            if self.turn >= TURN {
                self.turn = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let Poll::Ready(read) = self.poll_read(cx) else {
                self.turn = 0;
                let mut spare = std::mem::take(&mut self.received);
                if spare.capacity() > 0 {
                    spare.clear();
                    SPARE.set(spare);
                }
                return Poll::Pending;
            };
            let read = read?;
            self.total += read as u64;
            self.turn += read;
        }
        Poll::Ready(Ok(self.received.len()))
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        ready!(self.transport.poll_readable(cx))?;
        if self.received.capacity() == 0 {
            self.received = SPARE.take();
        }
        self.received.reserve(READ);
        self.transport.poll_read(cx, &mut self.received)
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.is_blocked = true;
        loop {
            let sent = if self.gathers {
                self.transport.try_take(pieces)
            } else {
                self.transport.try_send(pieces, false)
            };
            match sent {
                Ok(n) => {
                    self.is_blocked = false;
                    self.note_progress();
                    return Poll::Ready(Ok(n));
                }
                Err(error) => ready!(self.poll_again(cx, error))?,
            }
        }
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
}

impl<T: Transport> AsyncRead for SharedTransport<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut ends = self.0.borrow_mut();
        if ends.input == ClientInput::HeldEnd {
            return Poll::Pending;
        }
        let available = ready!(ends.poll_fill(cx))?;
        if available == 0 && ends.input == ClientInput::Held {
            ends.input = ClientInput::HeldEnd;
            // The connection's task, which polls h2, checks for this state.
            return Poll::Pending;
        }
        let now = available.min(into.remaining());
        into.put_slice(&ends.received[..now]);
        ends.received.advance(now);
        Poll::Ready(Ok(()))
    }
}

impl<T: Transport> AsyncWrite for SharedTransport<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_send(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_send(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// h2 flushes after each frame with contents.
    /// [`poll_send_gathered`](SharedTransport::poll_send_gathered)
    /// sends the records of all frames of one turn together.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut ends = self.0.borrow_mut();
        if ends.gathers { Poll::Ready(Ok(())) } else { ends.poll_flush(cx) }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut ends = self.0.borrow_mut();
        ready!(ends.poll_flush(cx))?;
        ends.transport.finish();
        Poll::Ready(Ok(()))
    }
}
