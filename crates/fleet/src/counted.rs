//! A socket whose bytes are counted. Answers that go on arriving are waited for, and have a greatest
//! length.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Most bytes of an answer: more than the longest records of a batch have.
pub(crate) const MAX_ANSWER: u64 = 16 << 20;

/// Bytes of the current answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Count(Arc<AtomicU64>);

impl Count {
    /// Another answer begins.
    pub(crate) fn begin(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The socket.
pub(crate) struct Counted<S> {
    pub(crate) socket: S,
    pub(crate) count: Count,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(context, buffer))?;
        let read = (buffer.filled().len() - before) as u64;
        let bytes = self.count.0.fetch_add(read, Ordering::Relaxed) + read;
        if bytes > MAX_ANSWER {
            let why = format!("its answer has more than {MAX_ANSWER} bytes");
            return Poll::Ready(Err(io::Error::other(why)));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
