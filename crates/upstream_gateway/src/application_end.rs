//! The application's end of a [tunnel](super::tunnel).

use std::io;
use std::task::{Context, Poll};

use bytes::BytesMut;
use sendoff_exchange::tunnel::TunnelEnd;
use sendoff_transport::pipe::Pipe;
use sendoff_upstream_http2::Http2Tunnel;

use super::stream::Stream;

/// Bytes of another protocol between the server and an application, after a change of the protocol.
#[derive(Debug)]
pub(super) enum ApplicationEnd {
    /// A connection of its own.
    Connection(Stream),
    /// A stream of HTTP/2.
    Http2(Box<Http2Tunnel>),
}

impl TunnelEnd for ApplicationEnd {
    fn is_clear(&self) -> bool {
        matches!(self, Self::Connection(stream) if stream.is_clear())
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>, pipe: &mut Pipe) -> Poll<io::Result<usize>> {
        match self {
            Self::Connection(stream) => stream.poll_fill(cx, pipe),
            Self::Http2(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>, pipe: &mut Pipe) -> Poll<io::Result<usize>> {
        match self {
            Self::Connection(stream) => stream.poll_drain(cx, pipe),
            Self::Http2(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Connection(stream) => stream.poll_read(cx, buffer),
            Self::Http2(stream) => stream.poll_read(cx, buffer),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Connection(stream) => stream.poll_write(cx, bytes),
            Self::Http2(stream) => stream.poll_write(cx, bytes),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Connection(stream) => stream.poll_flush(cx),
            // The task of the connection sends them.
            Self::Http2(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Connection(stream) => stream.poll_finish(cx),
            Self::Http2(stream) => {
                stream.finish();
                Poll::Ready(Ok(()))
            }
        }
    }
}
