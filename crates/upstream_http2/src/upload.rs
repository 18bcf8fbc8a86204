//! The body of a request on its way to the host.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::SendStream;
use http::HeaderName;
use sendoff_http1::Trailers;
use sendoff_message::request::{Arrived, Body, BodyReader};
use sendoff_upstream::body::piece;
use sendoff_upstream::error::UpstreamError;

use crate::request::{Http2Request, RequestTrailers};

/// The most bytes of a body that are read at a time.
const PIECE: usize = 64 * 1024;

/// The sending direction of a stream.
#[derive(Debug)]
pub(crate) struct Upload {
    stream: SendStream<Bytes>,
    source: Source,
    /// The next bytes.
    pending: Bytes,
}

#[derive(Debug)]
enum Source {
    /// The body from this offset on, and the fields behind it.
    Stored { body: Body, at: u64, trailers: Option<Trailers> },
    /// The body, and the names that fields behind it must not have; `None`: all are dropped.
    Arriving(BodyReader, Option<Vec<HeaderName>>),
    /// No more of the body is sent, and all of it could be given back.
    Sent(BodyReader),
    /// The end of the body was sent, or the host reads no more.
    Over,
}

impl Upload {
    /// The body of a request whose head was sent. `has_none`: the head has ended the stream, or the
    /// stream is for another protocol.
    pub(crate) fn new(
        request: &Http2Request,
        stream: SendStream<Bytes>,
        has_none: bool,
    ) -> Result<Self, UpstreamError> {
        let Http2Request { body, trailers, .. } = request;
        let source = match body {
            _ if has_none => Source::Over,
            Body::Stream(body) => {
                let reader = body.replayable_reader().ok_or_else(UpstreamError::spent_body)?;
                let without = match trailers {
                    RequestTrailers::Announced { without } => Some(without.clone()),
                    RequestTrailers::None | RequestTrailers::Known(_) => None,
                };
                Source::Arriving(reader, without)
            }
            Body::Memory(_) | Body::File { .. } => {
                let trailers = match trailers {
                    RequestTrailers::Known(trailers) => Some(trailers.clone()),
                    RequestTrailers::None | RequestTrailers::Announced { .. } => None,
                };
                Source::Stored { body: body.clone(), at: 0, trailers }
            }
        };
        Ok(Self { stream, source, pending: Bytes::new() })
    }

    /// True if the next bytes must come from the client.
    pub(crate) fn is_starved(&self) -> bool {
        self.pending.is_empty() && matches!(self.source, Source::Arriving(..))
    }

    /// True if no more of the body is to be sent.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.source, Source::Sent(_) | Source::Over)
    }

    /// The request need not be sent again.
    pub(crate) fn keep_nothing(&mut self) {
        match &mut self.source {
            Source::Arriving(reader, _) => reader.keep_nothing(),
            Source::Sent(_) => self.source = Source::Over,
            Source::Stored { .. } | Source::Over => {}
        }
    }

    /// Gives a body that is still arriving back, for another stream.
    pub(crate) fn give_back(&mut self) {
        if let Source::Arriving(reader, _) | Source::Sent(reader) =
            std::mem::replace(&mut self.source, Source::Over)
        {
            reader.give_back();
        }
        self.pending = Bytes::new();
    }

    /// Sends as much as the host's windows allow. Returns true if any byte was sent.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Result<bool, UpstreamError> {
        let mut has_sent = false;
        loop {
            if self.pending.is_empty() && !self.refill(cx)? {
                return Ok(has_sent);
            }
            self.stream.reserve_capacity(self.pending.len());
            if self.stream.capacity() == 0 {
                match self.stream.poll_capacity(cx) {
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(Some(Err(_)) | None) => self.stop(),
                    Poll::Pending => return Ok(has_sent),
                }
            }
            let room = self.stream.capacity().min(self.pending.len());
            if room > 0 {
                has_sent = true;
                let piece = self.pending.split_to(room);
                if self.stream.send_data(piece, false).is_err() {
                    self.stop();
                }
            }
        }
    }

    /// Sends some of the bytes of a protocol to which the host has changed.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.reserve_capacity(bytes.len());
        while self.stream.capacity() == 0 {
            match ready!(self.stream.poll_capacity(cx)) {
                Some(room) => room.map_err(io::Error::other)?,
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            };
        }
        let room = self.stream.capacity().min(bytes.len());
        let piece = Bytes::copy_from_slice(&bytes[..room]);
        Poll::Ready(self.stream.send_data(piece, false).map(|()| room).map_err(io::Error::other))
    }

    /// Ends the stream's direction to the host, which carries no body.
    pub(crate) fn end(&mut self) {
        // It fails if the host has reset the stream.
        let _reset = self.stream.send_data(Bytes::new(), true);
        self.source = Source::Over;
    }

    /// No more of the body is sent: its end was, or the host reads no more and the response tells
    /// the reason.
    fn stop(&mut self) {
        self.source = match std::mem::replace(&mut self.source, Source::Over) {
            Source::Arriving(reader, _) if reader.is_replayable() => Source::Sent(reader),
            Source::Sent(reader) => Source::Sent(reader),
            Source::Arriving(..) | Source::Stored { .. } | Source::Over => Source::Over,
        };
        self.pending = Bytes::new();
    }

    /// Reads the next bytes, or ends the stream. False: there are none now.
    fn refill(&mut self, cx: &mut Context<'_>) -> Result<bool, UpstreamError> {
        let mut behind = None;
        match &mut self.source {
            Source::Sent(_) | Source::Over => return Ok(false),
            Source::Stored { body, at, trailers } => {
                self.pending = piece(body, *at, PIECE)
                    .map_err(|error| UpstreamError::unreadable_body(&error))?;
                *at += self.pending.len() as u64;
                behind = trailers.take_if(|_| self.pending.is_empty());
            }
            Source::Arriving(reader, without) => {
                if reader.poll_arrived(cx).is_pending() {
                    return Ok(false);
                }
                match reader.take(PIECE) {
                    Arrived::Bytes(bytes) => self.pending = bytes,
                    Arrived::Nothing => return Ok(false),
                    Arrived::End => {
                        let without = without.take();
                        behind = without.and_then(|without| reader.trailers()?.without(&without));
                    }
                    Arrived::Failed(status) => return Err(UpstreamError::of_body(status)),
                }
            }
        }
        if self.pending.is_empty() {
            // It fails if the host has reset the stream, which the response tells.
            let _reset = match behind {
                Some(trailers) => self.stream.send_trailers(trailers.into_fields()),
                None => self.stream.send_data(Bytes::new(), true),
            };
            self.stop();
            return Ok(false);
        }
        Ok(true)
    }
}
