//! One client's connection: reads one request after the other, and passes each to its handler,
//! which answers on an [`Exchange`].

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use http::{Method, StatusCode, Version};
use sendoff_config::Party;
use sendoff_exchange::lifecycle::{Lifecycle, Past, Stage, StartingGuard};
use sendoff_exchange::service::{Answered, Current, Plan, Service};
use sendoff_http1::{BodyDecoder, BodyFraming, Decoded, Head, HeadDecoder, Limits, RequestError};
use sendoff_message::request::{
    Body, BodyStore, BodyStream, NOT_STORED, Origin, Request, named, not_stored, received,
};
use sendoff_report::limits::Limit;
use sendoff_transport::Transport;
use sendoff_transport::pace::{Pace, SlowestPace};
use tokio::task::yield_now;
use tokio::time::{Duration, Instant, timeout, timeout_at};

use super::exchange::{Exchange, Parts, RequestFacts, RequestLine};
use super::incoming::{BodyEnd, Incoming, Unread};
use super::tunnel::ConnectionTunnel;

/// The size of one read, in bytes.
const READ: usize = 16 * 1024;

/// The most bytes of a body that are read in one go; then other connections have their turn. They
/// may be 40,000 chunks.
const TURN: usize = 256 * 1024;

/// Pipelined requests that are answered in one go; then other connections have their turn.
const MOST_AT_ONCE: u32 = 16;

/// Time for reading and dropping bytes behind a response, as nginx' `lingering_time`. Unread bytes
/// would make the kernel reset the connection, and the client might not see the response.
const LINGER: Duration = Duration::from_secs(30);

/// The longest time without such bytes (nginx' `lingering_timeout`).
const LINGER_PAUSE: Duration = Duration::from_secs(5);

/// The most bytes of a refused request line that the access log shows.
const MAX_SHOWN_LINE: usize = 1024;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The connection preface of a client that speaks HTTP/2 without an upgrade (RFC 9113 §3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection whose client speaks HTTP/2. The buffer begins with the preface.
pub struct Http2<T> {
    /// The connection.
    pub transport: T,
    /// The addresses of the connection.
    pub origin: Origin,
    /// Bytes that were read from the connection.
    pub buffer: BytesMut,
}

/// The end of the service of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// The connection has ended.
    Ended,
    /// The client speaks HTTP/2.
    Http2,
}

/// The state of the connection after a request.
enum AfterRequest<S: Service> {
    /// Another request may follow.
    Request,
    /// The connection goes on in another protocol.
    Tunnel(Box<ConnectionTunnel<S>>),
    /// The connection is closed.
    Close,
    /// The bytes were the preface of HTTP/2 instead of a request.
    Http2,
}

/// A request that a handler can answer.
struct Received<P> {
    plan: P,
    /// Another request may follow.
    keep_alive: bool,
    /// The part of the body that is read while the handler answers.
    rest: Unread,
}

/// The reason why no handler answers a request and the connection ends.
enum ConnectionEnd {
    /// The client speaks HTTP/2.
    Http2,
    /// The client closed the connection between requests, or was idle for too long.
    Quiet,
    /// The request is answered with an error page of this status.
    Refused { status: StatusCode, why: String },
    /// The connection is broken.
    Io(io::Error),
}

impl From<io::Error> for ConnectionEnd {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<RequestError> for ConnectionEnd {
    fn from(error: RequestError) -> Self {
        Self::Refused { status: error.status(), why: error.to_string() }
    }
}

fn refused(status: StatusCode, why: &str) -> ConnectionEnd {
    ConnectionEnd::Refused { status, why: why.to_owned() }
}

/// A request head that is being read. An idle connection has none, which is 130 bytes of it.
struct IncomingHead {
    decoder: HeadDecoder,
    /// The time at which the server began to read it.
    began: Instant,
}

/// A client's connection.
pub struct Connection<T> {
    transport: T,
    origin: Origin,
    lifecycle: Rc<Lifecycle>,
    /// Bytes of the client that are not parsed yet.
    buffer: BytesMut,
    /// No request has been read.
    is_new: bool,
    /// No response has begun.
    starting: Option<StartingGuard>,
    /// The client took the last response as fast as it was made.
    kept_up: bool,
    /// The party that it has been lent to, which may still have the socket and see all requests
    /// that come.
    lent_to: Option<Rc<Party>>,
}

impl<T: Transport> Connection<T> {
    /// `buffer` has the bytes that were already read from the client.
    pub fn new(
        transport: T,
        origin: Origin,
        buffer: BytesMut,
        lifecycle: Rc<Lifecycle>,
        starting: Option<StartingGuard>,
    ) -> Self {
        Self {
            transport,
            origin,
            lifecycle,
            buffer,
            is_new: true,
            starting,
            kept_up: true,
            lent_to: None,
        }
    }

    /// Serves the client until the connection ends, or the client turns out to speak HTTP/2.
    /// Borrows the connection: a future that owned it would reserve room for it twice, which is 400
    /// bytes of each idle connection.
    pub async fn serve<S: Service>(&mut self, services: &Current<S>) -> Served {
        let mut at_once = 0;
        loop {
            if self.buffer.is_empty() {
                at_once = 0;
                if !self.may_stay_open(&*services.get()) || !self.wait_for_request().await {
                    return Served::Ended;
                }
            }
            at_once += 1;
            if at_once == MOST_AT_ONCE {
                at_once = 0;
                yield_now().await;
            }
            // Not earlier, so that an idle connection holds no old configuration.
            let service = services.get();
            if !self.may_stay_open(&*service) {
                return Served::Ended;
            }
            // On the heap, because the state of an exchange takes kilobytes, which an idle
            // connection should not hold. Constructed there, too: `Box::pin` would construct it on
            // the stack and copy it, which took 7 % of the user time of a small file.
            let exchange = Box::write(Box::new_uninit(), self.serve_one(&service));
            let after = Box::into_pin(exchange).await;
            match after {
                AfterRequest::Tunnel(tunnel) => {
                    // A tunnel may stay open for hours: its own line has the service that it needs.
                    drop(service);
                    tunnel.run(&mut self.transport).await;
                    return Served::Ended;
                }
                AfterRequest::Request => self.is_new = false,
                AfterRequest::Close => return Served::Ended,
                AfterRequest::Http2 => return Served::Http2,
            }
        }
    }

    /// The connection for a client that speaks HTTP/2.
    pub fn into_http2(self) -> Http2<T> {
        let Self { transport, origin, buffer, .. } = self;
        Http2 { transport, origin, buffer }
    }

    /// False if a process that has the socket may not see the next request: a reload has brought
    /// another party to the listener.
    fn may_stay_open<S: Service>(&self, service: &S) -> bool {
        self.lent_to.is_none() || self.lent_to.as_ref() == service.party(self.origin.listener)
    }

    /// Waits without a buffer for the first byte of a request. Returns false if the connection is
    /// to be closed.
    async fn wait_for_request(&mut self) -> bool {
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

    /// Serves one request.
    async fn serve_one<S: Service>(&mut self, service: &Rc<S>) -> AfterRequest<S> {
        let shared = service;
        let service = &**shared;
        let decoder = HeadDecoder::new(Limits::default());
        let mut incoming = IncomingHead { decoder, began: Instant::now() };
        let head = match self.read_head(service, &mut incoming).await {
            Ok(head) => head,
            Err(end) => {
                let asked = self.asked_by_bad_head(&incoming);
                return self.end_early(service, end, asked, None).await;
            }
        };
        let asked = RequestFacts {
            method: head.method.clone(),
            version: head.version,
            line: RequestLine::Parsed {
                method: head.method.clone(),
                target: head.target.raw().clone(),
                version: head.version,
            },
            keep_alive: head.keep_alive,
            began: incoming.began,
        };
        let (framing, waits) = (head.framing, head.expect_continue);
        let proxies = Some(service.trusted_proxies()).filter(|all| self.origin.vouches(all));
        let ids = service.config().request_ids;
        let mut request = match received::request(head, &self.origin, proxies, ids) {
            Ok(request) => request,
            Err(bad) => {
                let end = refused(StatusCode::BAD_REQUEST, bad.0);
                return self.end_early(service, end, asked, None).await;
            }
        };
        match self.read_request(service, &mut request, framing, waits).await {
            Ok(Received { plan, keep_alive, rest }) => {
                let asked = RequestFacts { keep_alive: asked.keep_alive && keep_alive, ..asked };
                self.answer(shared, plan, &request, rest, asked).await
            }
            Err(end) => self.end_early(service, end, asked, Some(&request)).await,
        }
    }

    async fn read_head<S: Service>(
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

    async fn read(&mut self) -> io::Result<usize> {
        let Self { transport, buffer, .. } = self;
        poll_fn(|cx| transport.poll_read(cx, buffer)).await
    }

    /// Chooses the handler and reads the body; if the handler takes the body while it arrives, or
    /// does not use it, only the bytes that have already come. With `waits` the client still waits
    /// for `100 Continue`: if the body is not wanted, the connection cannot be kept.
    async fn read_request<S: Service>(
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

    async fn answer<S: Service>(
        &mut self,
        service: &Rc<S>,
        plan: S::Plan,
        request: &Request,
        rest: Unread,
        asked: RequestFacts,
    ) -> AfterRequest<S> {
        let mut exchange = self.exchange(&**service, asked, Some(request));
        exchange.receive(rest);
        match service.answer(plan, request, &mut exchange).await {
            Ok(Answered::Sent) => {}
            Ok(Answered::Switched(switch)) => {
                let line = exchange.line();
                let switched = exchange.switch(switch, service, request);
                return match switched.inspect_err(|cut| cut.log(&line)) {
                    Ok(tunnel) => AfterRequest::Tunnel(tunnel),
                    Err(_) => AfterRequest::Close,
                };
            }
            Err(cut) => {
                cut.log(&exchange.line());
                exchange.note_fault(cut.fault);
                return AfterRequest::Close;
            }
        }
        let completed = exchange.completed();
        let rest = exchange.take_rest();
        drop(exchange);
        match (completed, rest) {
            (None, _) => {}
            (Some(true), Unread::Nothing) => return AfterRequest::Request,
            (Some(false), Unread::Nothing) => self.close().await,
            (Some(true), Unread::Dropped(rest)) => {
                if self.drop_rest(rest).await {
                    return AfterRequest::Request;
                }
                self.linger().await;
            }
            (Some(_), _) => self.linger().await,
        }
        AfterRequest::Close
    }

    /// Reads and drops the rest of a body behind the response. Returns true if another request may
    /// follow: the body is complete.
    async fn drop_rest(&mut self, mut rest: Incoming) -> bool {
        rest.limit_pauses(LINGER_PAUSE);
        let Self { transport, buffer, lifecycle, .. } = self;
        let dropped = poll_fn(|cx| rest.poll(transport, buffer, cx));
        tokio::select! {
            biased;
            ended = timeout(LINGER, dropped) => ended == Ok(BodyEnd::Complete),
            () = lifecycle.reached(Stage::Draining) => false,
        }
    }

    fn exchange<'c, S: Service>(
        &'c mut self,
        service: &'c S,
        asked: RequestFacts,
        request: Option<&'c Request>,
    ) -> Exchange<'c, T, S> {
        let Self { transport, origin, lifecycle, buffer, starting, kept_up, lent_to, .. } = self;
        let parts = Parts {
            transport,
            client: &origin.peer,
            service,
            lifecycle,
            starting,
            read_ahead: buffer,
            kept_up_before: kept_up,
            lent_to,
        };
        Exchange::new(parts, asked, request)
    }

    /// Ends the connection, after an error page if the request was refused.
    async fn end_early<S: Service>(
        &mut self,
        service: &S,
        end: ConnectionEnd,
        mut asked: RequestFacts,
        request: Option<&Request>,
    ) -> AfterRequest<S> {
        let (status, why) = match end {
            ConnectionEnd::Quiet => return AfterRequest::Close,
            ConnectionEnd::Http2 => return AfterRequest::Http2,
            ConnectionEnd::Io(error) => {
                let line = named(&asked.line, request);
                tracing::info!(request = line, %error, "the client left amid its request");
                // Writes the line in the access log.
                drop(self.exchange(service, asked, request));
                return AfterRequest::Close;
            }
            ConnectionEnd::Refused { status, why } => (status, why),
        };
        let client = request.map_or(&self.origin.peer, |request| &request.peer);
        let line = named(&asked.line, request);
        tracing::info!(%client, request = line, %status, "request refused: {why}");
        asked.keep_alive = false;
        let mut exchange = self.exchange(service, asked, request);
        let answered = service.refuse(status, &mut exchange).await;
        drop(exchange);
        if answered.is_ok() {
            self.linger().await;
        }
        AfterRequest::Close
    }

    /// Method and request line of a head that cannot be parsed, as far as they are readable.
    fn asked_by_bad_head(&self, IncomingHead { decoder, began }: &IncomingHead) -> RequestFacts {
        let bytes = decoder.refused().map_or(&self.buffer[..], |head| &head[..]);
        let end = bytes.iter().position(|&b| b == b'\r' || b == b'\n').unwrap_or(bytes.len());
        let line = String::from_utf8_lossy(&bytes[..end.min(MAX_SHOWN_LINE)]).into_owned();
        let method = if decoder.is_head() { Method::HEAD } else { Method::GET };
        let line = RequestLine::Raw(line);
        let began = *began;
        RequestFacts { method, version: Version::HTTP_11, line, keep_alive: false, began }
    }

    /// Closes after a complete response. Reads bytes behind the request first: unread bytes would
    /// make the kernel reset the connection and discard response bytes that the client has not
    /// received yet.
    async fn close(&mut self) {
        let readable = poll_fn(|cx| Poll::Ready(self.transport.poll_readable(cx).is_ready()));
        if !self.buffer.is_empty() || readable.await {
            self.linger().await;
        }
    }

    async fn linger(&mut self) {
        self.transport.finish();
        let end = Instant::now() + LINGER;
        let mut turn = 0;
        loop {
            self.buffer.clear();
            self.buffer.reserve(READ);
            let deadline = end.min(Instant::now() + LINGER_PAUSE);
            // All bytes have been sent, so a timeout is as good as the end.
            let Ok(Ok(read @ 1..)) = timeout_at(deadline, self.read()).await else { return };
            turn += read;
            if turn >= TURN {
                turn = 0;
                yield_now().await;
            }
        }
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
