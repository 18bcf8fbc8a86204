//! The I/O of one request over a connection of its own, for `sender.rs` and `parser.rs`.

use std::task::{Context, Poll};

use bytes::BytesMut;
use sendoff_delivery::segment::Segment;
use sendoff_message::response::ResponseEnd;
use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use sendoff_upstream::inbox::Event;

use super::host::Host;
use super::parser::{GatewayResponseParser, ResponseEvent};
use super::sender::RequestSender;
use super::stream::{self, Stream};

/// A request and its response on a connection that no other request uses meanwhile.
#[derive(Debug)]
pub(super) struct ExchangeIo {
    /// `None` once the exchange has ended.
    stream: Option<Stream>,
    /// The connection has served other requests.
    pub(super) is_kept: bool,
    sender: RequestSender,
    parser: GatewayResponseParser,
    received: BytesMut,
    /// A byte of the response has arrived.
    pub(super) was_heard: bool,
}

impl ExchangeIo {
    pub(super) fn new(
        stream: Stream,
        is_kept: bool,
        sender: RequestSender,
        parser: GatewayResponseParser,
    ) -> Self {
        let received = BytesMut::new();
        Self { stream: Some(stream), is_kept, sender, parser, received, was_heard: false }
    }

    /// True if the sender waits for the client.
    pub(super) fn is_starved(&self) -> bool {
        self.sender.is_starved()
    }

    /// The connection and the bytes received since, for a tunnel.
    pub(super) fn into_tunnel(self) -> Option<(Stream, BytesMut)> {
        self.stream.map(|stream| (stream, self.received))
    }

    /// Closes the connection after an error.
    pub(super) fn fail(&mut self, error: &UpstreamError, host: Option<&Host>) {
        self.stream = None;
        let is_early = self.is_kept && !self.was_heard && error.kind() == UpstreamErrorKind::Died;
        if let Some(host) = host.filter(|_| is_early) {
            host.note_early_end();
        }
    }

    /// The next event that can be derived from received bytes; `None`: more bytes are needed. A
    /// connection that may stay is kept by the host.
    pub(super) fn said(&mut self, host: Option<&Host>) -> Result<Option<Event>, UpstreamError> {
        loop {
            return Ok(Some(match self.parser.next(&mut self.received)? {
                ResponseEvent::Nothing => return Ok(None),
                ResponseEvent::Wants(bytes) => {
                    self.sender.wants(bytes)?;
                    continue;
                }
                ResponseEvent::Head(head) => Event::Head(head),
                ResponseEvent::Switch(head) => Event::Switch(head),
                ResponseEvent::Bytes(bytes) => Event::Segment(Segment::Bytes(bytes)),
                ResponseEvent::Trailers(trailers) => Event::Trailers(trailers),
                ResponseEvent::End { may_stay } => {
                    let is_clean = self.received.is_empty() && self.sender.is_done();
                    let stream = self.stream.take();
                    stream::give_back(std::mem::take(&mut self.received));
                    let stream = stream.filter(|_| may_stay && is_clean);
                    if let (Some(stream), Some(host)) = (stream, host) {
                        host.keep(stream);
                    }
                    Event::End(ResponseEnd::Complete)
                }
            }));
        }
    }

    /// Moves bytes, until there is an event. `None`: bytes have moved, but no part is complete yet.
    pub(super) fn poll(
        &mut self,
        host: Option<&Host>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Event>, UpstreamError>> {
        let was_starved = self.sender.is_starved();
        loop {
            if let Some(said) = self.said(host)? {
                return Poll::Ready(Ok(Some(said)));
            }
            let Some(stream) = &mut self.stream else {
                return Poll::Ready(Err(out_of_place()));
            };
            let has_sent = self.sender.poll(stream, cx)?;
            match stream.poll_read(cx, &mut self.received) {
                Poll::Ready(Ok(1..)) => self.was_heard = true,
                Poll::Ready(Ok(0)) => {
                    if !self.parser.closed()? {
                        return Poll::Ready(Err(self.died(self.was_closed_before())));
                    }
                    self.stream = None;
                    return Poll::Ready(Ok(Some(Event::End(ResponseEnd::Closed))));
                }
                Poll::Ready(Err(_)) => return Poll::Ready(Err(self.died(false))),
                // Another timeout applies while the client delays the exchange.
                Poll::Pending if has_sent || self.sender.is_starved() != was_starved => {
                    return Poll::Ready(Ok(None));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// True if the application closed its sending direction of a kept connection before the request
    /// arrived.
    fn was_closed_before(&self) -> bool {
        let is_silent = !self.was_heard && self.is_kept;
        let written = self.sender.written();
        is_silent && self.stream.as_ref().is_some_and(|stream| stream.is_unreceived(written))
    }

    /// The error for a connection that was closed too early. `is_unread`: the application cannot
    /// have read any byte of the request.
    fn died(&self, is_unread: bool) -> UpstreamError {
        let retry =
            if self.sender.written() == 0 || is_unread { Retry::Safe } else { Retry::Unsafe };
        let why = match self.was_heard {
            true => "it closed the connection before the end of its response",
            false => "it closed the connection without a response",
        };
        UpstreamError::new(UpstreamErrorKind::Died, retry, why)
    }
}

fn out_of_place() -> UpstreamError {
    UpstreamError::new(UpstreamErrorKind::Server, Retry::Unsafe, "its exchange has ended already")
}
