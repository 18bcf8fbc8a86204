//! A connection that goes on in another protocol, such as WebSocket.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use sendoff_delivery::{Progress, SendQueue};
use sendoff_exchange::service::Service;
use sendoff_exchange::tunnel::{Tunnel, TunnelEnd, TunnelLine};
use sendoff_transport::Transport;
use sendoff_transport::pipe::Pipe;

/// The size of one read of another protocol's bytes.
const READ: usize = 16 * 1024;

/// A tunnel, from the end of the request that has opened it.
pub(super) struct ConnectionTunnel<S: Service> {
    pub(super) tunnel: Box<dyn Tunnel>,
    pub(super) unsent: Unsent,
    pub(super) line: TunnelLine<S>,
    /// The transport's count of sent bytes at the end of the head.
    pub(super) sent_before: u64,
}

/// Bytes that were there before the tunnel.
pub(super) struct Unsent {
    /// Bytes of the client behind its request.
    pub(super) read_ahead: BytesMut,
    /// The head, and interim heads before it; `None` once they have been sent.
    pub(super) heads: Option<Box<SendQueue>>,
}

impl<S: Service> ConnectionTunnel<S> {
    /// Carries bytes until the tunnel ends.
    pub(super) async fn run(mut self: Box<Self>, transport: &mut impl Transport) {
        let ended = poll_fn(|cx| {
            let Self { tunnel, unsent, line, sent_before } = &mut *self;
            let ended = tunnel.poll(cx, &mut ConnectionClient { transport, unsent });
            line.sent = transport.sent().saturating_sub(*sent_before);
            ended
        });
        if let Err(cut) = ended.await {
            self.line.note_cut(&cut);
        }
    }
}

/// The client.
struct ConnectionClient<'t, T> {
    transport: &'t mut T,
    unsent: &'t mut Unsent,
}

impl<T: Transport> ConnectionClient<'_, T> {
    /// Ready when the head of the response, and everything before it, has been sent.
    fn poll_heads(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(heads) = &mut self.unsent.heads {
            match heads.try_send(self.transport)? {
                Progress::Done => self.unsent.heads = None,
                Progress::Blocked => ready!(self.transport.poll_writable(cx))?,
                Progress::Yield => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: Transport> TunnelEnd for ConnectionClient<'_, T> {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        if !self.unsent.read_ahead.is_empty() {
            *buffer = std::mem::take(&mut self.unsent.read_ahead);
            return Poll::Ready(Ok(buffer.len()));
        }
        ready!(self.transport.poll_readable(cx))?;
        let was_empty = buffer.is_empty();
        buffer.reserve(READ);
        let read = self.transport.poll_read(cx, buffer);
        if read.is_pending() && was_empty {
            *buffer = BytesMut::new();
        }
        read
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_heads(cx))?;
        loop {
            match self.transport.try_send(&[IoSlice::new(bytes)], false) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.transport.poll_writable(cx))?;
                }
                done => return Poll::Ready(done),
            }
        }
    }

    fn is_clear(&self) -> bool {
        self.transport.is_clear() && self.unsent.read_ahead.is_empty()
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>, pipe: &mut Pipe) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.transport.poll_readable(cx))?;
            match self.transport.try_fill(pipe) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>, pipe: &mut Pipe) -> Poll<io::Result<usize>> {
        ready!(self.poll_heads(cx))?;
        loop {
            match self.transport.try_drain(pipe) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.transport.poll_writable(cx))?;
                }
                done => return Poll::Ready(done),
            }
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_heads(cx))?;
        loop {
            match self.transport.try_flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.transport.poll_writable(cx))?;
                }
                done => return Poll::Ready(done),
            }
        }
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.transport.finish();
        Poll::Ready(Ok(()))
    }
}
