//! A socket, with or without TLS, that is polled by its owner instead of a runtime.

use crate::secure::Wire;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The socket with the traits that the h2 library needs.
pub(crate) struct Polled {
    wire: Wire,
    waiting: Waiting,
}

/// The events that the owner of a [`Polled`] waits for: the socket, and the task's waker.
#[derive(Clone)]
pub(crate) struct Waiting {
    socket: Arc<TcpStream>,
    has_unwritten: Arc<AtomicBool>,
    woken: Arc<Woken>,
}

/// Notes that a task is to be polled again.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Polled {
    /// Makes the socket beneath nonblocking.
    pub(crate) fn new(wire: Wire) -> Self {
        wire.socket().set_nonblocking(true).unwrap();
        let socket = wire.socket().try_clone().unwrap();
        let waiting = Waiting {
            socket: Arc::new(socket),
            has_unwritten: Arc::default(),
            woken: Arc::new(Woken(AtomicBool::new(false))),
        };
        Self { wire, waiting }
    }

    pub(crate) fn waiting(&self) -> Waiting {
        self.waiting.clone()
    }

    fn note(&self, is_blocked: bool) {
        let has_unwritten = is_blocked || self.wire.has_unwritten();
        self.waiting.has_unwritten.store(has_unwritten, Ordering::Relaxed);
    }
}

impl Waiting {
    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// True while the socket has not taken all written bytes.
    pub(crate) fn has_unwritten(&self) -> bool {
        self.has_unwritten.load(Ordering::Relaxed)
    }

    /// A waker for one poll; [`was_woken`](Self::was_woken) tells later whether it was used.
    pub(crate) fn watch(&self) -> Waker {
        self.woken.0.store(false, Ordering::Relaxed);
        Waker::from(Arc::clone(&self.woken))
    }

    pub(crate) fn was_woken(&self) -> bool {
        self.woken.0.load(Ordering::Relaxed)
    }

    /// Waits until the socket has bytes, or has room for the unwritten ones.
    ///
    /// # Errors
    /// `WouldBlock` if it is later than `until`.
    pub(crate) fn wait(&self, until: Instant) -> io::Result<()> {
        let mut events = PollFlags::IN;
        if self.has_unwritten() {
            events |= PollFlags::OUT;
        }
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap();
        match poll(&mut [PollFd::new(&*self.socket, events)], Some(&timeout)) {
            Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Turns `WouldBlock` of the nonblocking socket into `Pending`. It registers no waker: the owner
/// waits for the socket itself.
fn polled<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        other => Poll::Ready(other),
    }
}

impl AsyncRead for Polled {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let us = self.get_mut();
        let read = polled(us.wire.read(buffer.initialize_unfilled()));
        us.note(us.waiting.has_unwritten());
        read.map_ok(|count| buffer.advance(count))
    }
}

impl AsyncWrite for Polled {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let us = self.get_mut();
        let written = polled(us.wire.write(bytes));
        us.note(written.is_pending());
        written
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let us = self.get_mut();
        let flushed = polled(us.wire.flush());
        us.note(flushed.is_pending());
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
