//! A stream that goes on in another protocol: a WebSocket (RFC 8441, RFC 9220). Its bytes are the
//! contents of both directions of the stream.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use sendoff_delivery::SendQueue;
use sendoff_delivery::segment::Segment;
use sendoff_exchange::service::Service;
use sendoff_exchange::tunnel::{Tunnel, TunnelEnd, TunnelLine};
use sendoff_transport::pipe::Pipe;

use crate::STREAM_BUFFER;
use crate::directions::{RequestBody, ResponseSender, StreamGone};
use crate::response_stream::ResponseStream;
use crate::streams::StreamGuard;

/// A tunnel, from the end of the request that has opened it.
pub(super) struct StreamTunnel<S: Service, B, R: ResponseSender> {
    pub(super) tunnel: Box<dyn Tunnel>,
    pub(super) client: StreamClient<S, B, R>,
}

impl<S: Service, B: RequestBody, R: ResponseSender> StreamTunnel<S, B, R> {
    /// Carries bytes until the tunnel ends.
    pub(super) async fn run(mut self: Box<Self>) {
        let ended = poll_fn(|cx| {
            let Self { tunnel, client } = &mut *self;
            tunnel.poll(cx, client)
        });
        if let Err(cut) = ended.await {
            self.client.line.note_cut(&cut);
            self.client.open.note_given_up();
        }
    }
}

/// The client. The fields are dropped in this order: the line is written, and the client learns
/// that the response has ended before it learns that no more bytes are wanted.
pub(super) struct StreamClient<S: Service, B, R: ResponseSender> {
    pub(super) line: TunnelLine<S>,
    pub(super) stream: ResponseStream<R>,
    pub(super) input: B,
    pub(super) open: StreamGuard<S>,
}

impl<S: Service, B: RequestBody, R: ResponseSender> StreamClient<S, B, R> {
    /// Passes bytes to the protocol.
    fn give(&mut self, bytes: &[u8]) -> io::Result<()> {
        let segment = Segment::Bytes(Bytes::copy_from_slice(bytes));
        self.line.body.note(segment.medium(), segment.len());
        let mut queue = SendQueue::default();
        queue.push(segment)?;
        let piece = queue.take(bytes.len())?;
        self.stream.give(piece, false).map_err(|_gone| has_gone())?;
        self.line.sent += bytes.len() as u64;
        self.open.streams().note_useful(bytes.len());
        Ok(())
    }
}

impl<S: Service, B: RequestBody, R: ResponseSender> TunnelEnd for StreamClient<S, B, R> {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        loop {
            let Poll::Ready(data) = self.input.poll_data(cx) else {
                return self.open.poll_input_end(cx).map(|()| Err(has_gone()));
            };
            let Some(data) = data.map_err(|StreamGone| has_gone())? else {
                return Poll::Ready(Ok(0));
            };
            if !data.is_empty() {
                self.open.streams().note_useful(data.len());
                self.input.release(data.len());
                buffer.extend_from_slice(&data);
                return Poll::Ready(Ok(data.len()));
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.stream.poll_reset(cx).is_ready() {
            return Poll::Ready(Err(has_gone()));
        }
        let owed = bytes.len().min(STREAM_BUFFER);
        let room = loop {
            let Some(client) = self.stream.sending() else { return Poll::Ready(Err(has_gone())) };
            match client.room(owed) {
                0 => ready!(client.poll_room(cx)).map_err(|_gone| has_gone())?,
                room => break room,
            }
        };
        self.give(&bytes[..room])?;
        Poll::Ready(Ok(room))
    }

    fn is_clear(&self) -> bool {
        false
    }

    fn poll_fill(&mut self, _: &mut Context<'_>, _: &mut Pipe) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }

    fn poll_drain(&mut self, _: &mut Context<'_>, _: &mut Pipe) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(client) = self.stream.sending() else { return Poll::Ready(Err(has_gone())) };
        client.poll_flush(cx).map_err(|_gone| has_gone())
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.end();
        if let Ok(nothing) = SendQueue::default().take(0) {
            let _gone = self.stream.give(nothing, true);
        }
        Poll::Ready(Ok(()))
    }
}

fn has_gone() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}
