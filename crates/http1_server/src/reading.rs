//! Reading of requests: the wait for the first byte, the head, the plan, and the body unless the
//! handler takes it while it arrives.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use http::{Method, StatusCode, Version};
use sendoff_exchange::lifecycle::Past;
use sendoff_exchange::service::{Plan, Service};
use sendoff_http1::{BodyDecoder, BodyFraming, Decoded, Head, HeadDecoder};
use sendoff_message::request::{Body, BodyStore, BodyStream, NOT_STORED, Request, not_stored};
use sendoff_report::limits::Limit;
use sendoff_transport::Transport;
use sendoff_transport::pace::{Pace, SlowestPace};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout, timeout_at};

use super::connection::{Connection, ConnectionEnd, refused};
use super::exchange::{RequestFacts, RequestLine};
use super::incoming::{Incoming, Unread};

/// The size of one read, in bytes.
pub(super) const READ: usize = 16 * 1024;

/// The most bytes of a body that are read in one go; then other connections have their turn. They
/// may be 40,000 chunks.
pub(super) const TURN: usize = 256 * 1024;

/// The most bytes of a refused request line that the access log shows.
const MAX_SHOWN_LINE: usize = 1024;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The connection preface of a client that speaks HTTP/2 without an upgrade (RFC 9113 §3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A request that a handler can answer.
pub(super) struct Received<P> {
    pub(super) plan: P,
    /// Another request may follow.
    pub(super) keep_alive: bool,
    /// The part of the body that is read while the handler answers.
    pub(super) rest: Unread,
}

/// A request head that is being read. An idle connection has none, which is 130 bytes of it.
pub(super) struct IncomingHead {
    pub(super) decoder: HeadDecoder,
    /// The time at which the server began to read it.
    pub(super) began: Instant,
}

impl<T: Transport> Connection<T> {
    /// Waits without a buffer for the first byte of a request. Returns false if the connection is
    /// to be closed.
    pub(super) async fn wait_for_request(&mut self) -> bool {
        self.buffer = BytesMut::new();
        let past = if self.is_new { Past::Nothing } else { Past::Requests };
        let evicted = self.lifecycle.evicted(past, self.lent_to.is_some());
        let came = tokio::select! {
            biased;
            read = poll_fn(|cx| poll_first(&mut self.transport, &mut self.buffer, cx)) => {
                return matches!(read, Ok(1..));
            }
            // A request that has arrived is answered, even if the event loop does not know of it yet.
            () = evicted => self.transport.has_unread(),
        };
        if came {
            self.buffer = BytesMut::with_capacity(READ);
        }
        came
    }

    pub(super) async fn read_head<S: Service>(
        &mut self,
        service: &S,
        IncomingHead { decoder, began }: &mut IncomingHead,
    ) -> Result<Head, ConnectionEnd> {
        let deadline = *began + service.config().timeouts.head;
        loop {
            if self.is_new && self.buffer.starts_with(HTTP2_PREFACE) {
                return Err(ConnectionEnd::Http2);
            }
            let may_be_http2 = self.is_new && HTTP2_PREFACE.starts_with(&self.buffer);
            if !may_be_http2 && let Some(head) = decoder.next(&mut self.buffer)? {
                return Ok(head);
            }
            self.buffer.reserve(READ / 4);
            match timeout_at(deadline, self.read()).await {
                Ok(Ok(0)) if self.buffer.is_empty() => return Err(ConnectionEnd::Quiet),
                Ok(Ok(0)) => {
                    let why = "the connection was closed inside the request head";
                    return Err(refused(StatusCode::BAD_REQUEST, why));
                }
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(error.into()),
                // The wake-up was spurious: no byte has come.
                Err(_) if self.buffer.is_empty() => return Err(ConnectionEnd::Quiet),
                Err(_) => {
                    Limit::HeadTimeout.reached();
                    let why = "the request head took too long";
                    return Err(refused(StatusCode::REQUEST_TIMEOUT, why));
                }
            }
        }
    }

    pub(super) async fn read(&mut self) -> io::Result<usize> {
        let Self { transport, buffer, .. } = self;
        poll_fn(|cx| transport.poll_read(cx, buffer)).await
    }

    /// Chooses the handler and reads the body; if the handler takes the body while it arrives, or
    /// does not use it, only the bytes that have already come. With `waits` the client still waits
    /// for `100 Continue`: if the body is not wanted, the connection cannot be kept.
    pub(super) async fn read_request<S: Service>(
        &mut self,
        service: &S,
        request: &mut Request,
        framing: BodyFraming,
        waits: bool,
    ) -> Result<Received<S::Plan>, ConnectionEnd> {
        let plan = service.plan(request).await;
        let terms = plan.body();
        let mut decoder = BodyDecoder::new(framing, terms.max)?;
        let wanted = terms.is_wanted();
        if waits && !wanted && self.buffer.is_empty() {
            let rest = Unread::dropped(decoder, body_pace(service));
            return Ok(Received { plan, keep_alive: false, rest });
        }
        let mut store = if wanted { BodyStore::keep() } else { BodyStore::discard() };
        let streams = terms.streams(framing);
        let (mut must_ask, mut pace) = (waits, None);
        let (mut rest, mut trailers) = (None, None);
        let mut turn = 0;
        loop {
            match decoder.decode(&mut self.buffer)? {
                Decoded::Data(data) => {
                    store.push(&data).map_err(|error| {
                        refused(not_stored(&error, &request.shown()), NOT_STORED)
                    })?;
                }
                Decoded::End => {
                    trailers = decoder.take_request_trailers();
                    break;
                }
                Decoded::NeedMore if !wanted => {
                    let rest = Unread::dropped(decoder, body_pace(service));
                    return Ok(Received { plan, keep_alive: true, rest });
                }
                Decoded::NeedMore => {
                    if std::mem::take(&mut must_ask) && self.buffer.is_empty() {
                        self.send_interim(service, CONTINUE).await?;
                    }
                    if streams {
                        let len = match framing {
                            BodyFraming::Length(len) => Some(len),
                            BodyFraming::Chunked | BodyFraming::None => None,
                        };
                        let (writer, body) = BodyStream::new(len);
                        rest = Some((decoder, writer, body));
                        break;
                    }
                    let pace =
                        pace.get_or_insert_with(|| Pace::new(service.config().timeouts.body));
                    turn += self.read_more_body(service, pace).await?;
                    if turn >= TURN {
                        turn = 0;
                        yield_now().await;
                    }
                }
            }
        }
        let body = store
            .finish()
            .map_err(|error| refused(not_stored(&error, &request.shown()), NOT_STORED))?;
        let Some((decoder, writer, stream)) = rest else {
            request.body = body;
            request.trailers = trailers;
            return Ok(Received { plan, keep_alive: true, rest: Unread::Nothing });
        };
        // The bytes that came with the head are in memory.
        if let Body::Memory(first) = body
            && !first.is_empty()
        {
            writer.push(first);
        }
        request.body = Body::Stream(stream);
        let rest = Unread::Incoming(Incoming::new(decoder, writer, body_pace(service)));
        Ok(Received { plan, keep_alive: true, rest })
    }

    async fn read_more_body<S: Service>(
        &mut self,
        service: &S,
        pace: &mut Pace,
    ) -> Result<usize, ConnectionEnd> {
        self.buffer.reserve(READ);
        match timeout_at(pace.deadline(), self.read()).await {
            Ok(Ok(0)) => {
                let why = "the connection was closed inside the request body";
                Err(refused(StatusCode::BAD_REQUEST, why))
            }
            Ok(Ok(read)) => {
                pace.note(read as u64, body_pace(service));
                Ok(read)
            }
            Ok(Err(error)) => Err(error.into()),
            Err(_) => {
                Limit::BodyTimeout.reached();
                Err(refused(StatusCode::REQUEST_TIMEOUT, "the request body took too long"))
            }
        }
    }

    /// Sends an interim response (1xx).
    async fn send_interim<S: Service>(
        &mut self,
        service: &S,
        mut bytes: &'static [u8],
    ) -> io::Result<()> {
        let limit = service.config().timeouts.send;
        while !bytes.is_empty() {
            match self.transport.try_send(&[io::IoSlice::new(bytes)], false) {
                Ok(n) => bytes = &bytes[n..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let writable = poll_fn(|cx| self.transport.poll_writable(cx));
                    timeout(limit, writable).await.map_err(io::Error::from)??;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Method and request line of a head that cannot be parsed, as far as they are readable.
    pub(super) fn asked_by_bad_head(
        &self,
        IncomingHead { decoder, began }: &IncomingHead,
    ) -> RequestFacts {
        let bytes = decoder.refused().map_or(&self.buffer[..], |head| &head[..]);
        let end = bytes.iter().position(|&b| b == b'\r' || b == b'\n').unwrap_or(bytes.len());
        let line = String::from_utf8_lossy(&bytes[..end.min(MAX_SHOWN_LINE)]).into_owned();
        let method = if decoder.is_head() { Method::HEAD } else { Method::GET };
        let line = RequestLine::Raw(line);
        let began = *began;
        RequestFacts { method, version: Version::HTTP_11, line, keep_alive: false, began }
    }
}

/// The lowest speed at which a client may send a body.
fn body_pace(service: &impl Service) -> SlowestPace {
    let config = service.config();
    SlowestPace { pause: config.timeouts.body, rate: config.limits.body_rate }
}

/// Reads the first bytes after a pause. The transport may report readiness without a byte, as for
/// every connection that was just accepted, so only a read of bytes counts; the buffer is allocated
/// for the read.
fn poll_first(
    transport: &mut impl Transport,
    buffer: &mut BytesMut,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    if let Err(error) = ready!(transport.poll_readable(cx)) {
        return Poll::Ready(Err(error));
    }
    *buffer = BytesMut::with_capacity(READ);
    let read = transport.poll_read(cx, buffer);
    if read.is_pending() {
        *buffer = BytesMut::new();
    }
    read
}
