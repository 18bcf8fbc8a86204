//! A stream on which the host speaks another protocol (RFC 8441 §5): bytes in both directions.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;

use crate::stream::{Http2Stream, Response};

/// A stream whose request was answered with a change of the protocol. Dropping it before both ends
/// resets the stream.
#[derive(Debug)]
pub struct Http2Tunnel(Http2Stream);

impl Http2Stream {
    /// The stream after a change of the protocol; `None` if it has ended.
    #[must_use]
    pub fn into_tunnel(self) -> Option<Http2Tunnel> {
        matches!(self.response, Response::Body(_)).then_some(Http2Tunnel(self))
    }
}

impl Http2Tunnel {
    /// Reads received bytes; 0 at the end of the host's direction.
    ///
    /// # Errors
    /// The stream was reset, or the connection has ended.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        let Self(stream) = self;
        while let Response::Body(body) = &mut stream.response {
            match ready!(body.poll_data(cx)) {
                Some(Ok(data)) => {
                    // It fails if the stream has ended meanwhile.
                    let _ended = body.flow_control().release_capacity(data.len());
                    if !data.is_empty() {
                        buffer.extend_from_slice(&data);
                        return Poll::Ready(Ok(data.len()));
                    }
                }
                Some(Err(error)) => {
                    stream.response = Response::Over;
                    return Poll::Ready(Err(io::Error::other(error)));
                }
                None => stream.response = Response::Over,
            }
        }
        Poll::Ready(Ok(0))
    }

    /// Sends as many of the bytes as the host's windows allow.
    ///
    /// # Errors
    /// The stream was reset, or the connection has ended.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.upload.poll_write(cx, bytes)
    }

    /// Ends the direction to the host.
    pub fn finish(&mut self) {
        self.0.upload.end();
    }
}
