//! One response of an HTTP/1 connection: the sink that handlers answer to, and its client.

use std::fmt;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode, Version};
use sendoff_config::Party;
use sendoff_delivery::segment::Segment;
use sendoff_delivery::{Progress, SendQueue, SendTimer, send_pace};
use sendoff_exchange::client::{Client, Lender};
use sendoff_exchange::lifecycle::{Lifecycle, StartingGuard};
use sendoff_exchange::service::Service;
use sendoff_exchange::sink::{Fit, Room, Sink};
use sendoff_exchange::tunnel::{Switch, TunnelLine};
use sendoff_http1::{HeadEncoder, takes_trailers};
use sendoff_message::Cut;
use sendoff_message::request::{Endpoint, Request, named, protocol};
use sendoff_message::response::{Field, Framing, ResponseEnd, ResponseHead, Trailers};
use sendoff_report::log_line::{BodyBytes, CLIENT_LEFT, LogLine, Notes};
use sendoff_transport::Transport;
use tokio::time::Instant;

use super::framed::Framed;
use super::incoming::{BodyEnd, Unread};
use super::tunnel::{ConnectionTunnel, Unsent};

/// The most bytes of further requests that are read while a response is made, in order to notice
/// that the client has gone. If a client has sent more, only the next write notices.
const READ_AHEAD: usize = 16 * 1024;

/// The size of one such read, in bytes.
const READ_MORE: usize = 1024;

/// Room for the response head beside its fields: the status line and the framing, in bytes.
const OTHER_LINES: usize = 192;

/// The parts of a request that framing and the log need.
#[derive(Debug, Clone)]
pub(super) struct RequestFacts {
    pub(super) method: Method,
    pub(super) version: Version,
    pub(super) line: RequestLine,
    /// The client allows another request on the connection.
    pub(super) keep_alive: bool,
    /// The time at which its head began to be read.
    pub(super) began: Instant,
}

/// The request line as the client sent it, for logs.
#[derive(Debug, Clone)]
pub(super) enum RequestLine {
    Parsed {
        method: Method,
        target: Bytes,
        version: Version,
    },
    /// The first bytes of a request that cannot be parsed.
    Raw(String),
}

impl fmt::Display for RequestLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parsed { method, target, version } => {
                let target = String::from_utf8_lossy(target);
                [method.as_str(), " ", &target, " ", protocol(*version)]
                    .into_iter()
                    .try_for_each(|part| f.write_str(part))
            }
            Self::Raw(line) => f.write_str(line),
        }
    }
}

/// ```text
///            begin()                      end()
///  Waiting ────────────────────▶ Begun ──────────▶ Ended
///   ▲ └── lend() ──▶ Lent ─────────▲
///   │                 │ resume(), or begin() if the borrower has declined
///   └── interim() ────┘        Waiting ── switch() ──▶ Switched
/// ```
#[derive(Debug, Clone, Copy)]
pub(super) enum State {
    /// Nothing has been sent.
    Waiting,
    /// A borrower may write to the socket. Its framing of these bytes is unknown if it dies; the
    /// value here is the framing that needs most care in this case.
    Lent(Framing),
    /// The head is sent or queued.
    Begun { status: StatusCode, framing: Framing, head_len: u64 },
    /// The connection goes on in another protocol. The tunnel writes the line in the access log.
    Switched,
    /// The end is sent or queued.
    Ended { status: StatusCode, head_len: u64, keep_alive: bool },
}

/// One response. Dropping it writes its line to the access log, however it ended.
pub(super) struct Exchange<'c, T: Transport, S: Service> {
    pub(super) transport: &'c mut T,
    /// The peer of the connection.
    client: &'c Endpoint,
    service: &'c S,
    lifecycle: &'c Lifecycle,
    pub(super) starting: &'c mut Option<StartingGuard>,
    /// Bytes that the client has sent behind this request.
    read_ahead: &'c mut BytesMut,
    /// True if the client took the previous response on this connection as fast as it was made.
    pub(super) kept_up_before: &'c mut bool,
    /// The party that the connection has been lent to.
    pub(super) lent_to: &'c mut Option<Rc<Party>>,
    pub(super) asked: RequestFacts,
    /// `None` if the request was refused before it could be understood.
    request: Option<&'c Request>,
    pub(super) queue: SendQueue,
    /// The fields to send behind a chunked body.
    trailers: Option<Trailers>,
    pub(super) state: State,
    pub(super) unread: Unread,
    pub(super) framed: Framed,
    pub(super) keep_alive: bool,
    pub(super) kept_up: bool,
    /// The socket may not be lent.
    pub(super) is_withheld: bool,
    /// Bytes of interim responses.
    interim_len: u64,
    pub(super) body: BodyBytes,
    pub(super) notes: Notes,
    /// The transport's count of sent bytes when this exchange began.
    sent_before: u64,
    /// The status, and the bytes sent by a borrower, for the access log if this process has begun
    /// no response.
    pub(super) unanswered: (u16, u64),
    timer: SendTimer,
}

/// The parts of a connection that a response borrows.
pub(super) struct Parts<'c, T, S> {
    pub(super) transport: &'c mut T,
    pub(super) client: &'c Endpoint,
    pub(super) service: &'c S,
    pub(super) lifecycle: &'c Lifecycle,
    pub(super) starting: &'c mut Option<StartingGuard>,
    pub(super) read_ahead: &'c mut BytesMut,
    pub(super) kept_up_before: &'c mut bool,
    pub(super) lent_to: &'c mut Option<Rc<Party>>,
}

impl<'c, T: Transport, S: Service> Exchange<'c, T, S> {
    pub(super) fn new(
        parts: Parts<'c, T, S>,
        asked: RequestFacts,
        request: Option<&'c Request>,
    ) -> Self {
        let Parts { transport, client, service, lifecycle, starting, .. } = parts;
        let Parts { read_ahead, kept_up_before, lent_to, .. } = parts;
        let (sent_before, keep_alive) = (transport.sent(), asked.keep_alive);
        Self {
            transport,
            client,
            service,
            lifecycle,
            starting,
            read_ahead,
            kept_up_before,
            lent_to,
            asked,
            request,
            queue: SendQueue::default(),
            trailers: None,
            state: State::Waiting,
            unread: Unread::Nothing,
            framed: Framed::default(),
            keep_alive,
            kept_up: true,
            is_withheld: false,
            interim_len: 0,
            body: BodyBytes::default(),
            notes: Notes::default(),
            sent_before,
            unanswered: (CLIENT_LEFT, 0),
            timer: SendTimer::default(),
        }
    }

    /// Sets the rest of the request body, which is read while the response is made.
    pub(super) fn receive(&mut self, rest: Unread) {
        self.unread = rest;
    }

    /// The rest of the request body that is still to be read.
    pub(super) fn take_rest(&mut self) -> Unread {
        std::mem::replace(&mut self.unread, Unread::Rest)
    }

    /// Passes on, or drops, the bytes of the request body that have come. Ready when there is no
    /// more to read; `Err` if the client has gone.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ()>> {
        let (Unread::Incoming(incoming) | Unread::Dropped(incoming)) = &mut self.unread else {
            return Poll::Ready(Ok(()));
        };
        let ended = ready!(incoming.poll(self.transport, self.read_ahead, cx));
        let unread = match ended {
            BodyEnd::Complete => Unread::Nothing,
            BodyEnd::Refused(_) | BodyEnd::Gone => Unread::Rest,
        };
        if let Unread::Incoming(incoming) = std::mem::replace(&mut self.unread, unread) {
            incoming.finish(ended);
        }
        Poll::Ready(if ended == BodyEnd::Gone { Err(()) } else { Ok(()) })
    }

    /// `None` if the response was not sent completely; otherwise true if another request may
    /// follow.
    pub(super) fn completed(&self) -> Option<bool> {
        match self.state {
            State::Ended { keep_alive, .. } if self.queue.is_empty() => Some(keep_alive),
            _ => None,
        }
    }

    /// The tunnel that follows the response. `service` has answered the request.
    ///
    /// # Errors
    /// The head cannot be queued.
    pub(super) fn switch(
        mut self,
        switch: Switch,
        service: &Rc<S>,
        request: &Request,
    ) -> Result<Box<ConnectionTunnel<S>>, Cut> {
        let mut out = BytesMut::new();
        self.encode(&switch.head, &mut out).finish();
        let sent_before = self.sent_before + self.interim_len + out.len() as u64;
        self.queue.push_bytes(out.freeze())?;
        *self.starting = None;
        self.state = State::Switched;
        let (notes, status) = (std::mem::take(&mut self.notes), StatusCode::SWITCHING_PROTOCOLS);
        let RequestFacts { line, began, .. } = &self.asked;
        // An empty buffer still has its 16 KiB.
        let read_ahead = std::mem::take(self.read_ahead);
        let unsent = Unsent {
            read_ahead: if read_ahead.is_empty() { BytesMut::new() } else { read_ahead },
            heads: Some(Box::new(std::mem::take(&mut self.queue))),
        };
        Ok(Box::new(ConnectionTunnel {
            tunnel: switch.tunnel,
            unsent,
            line: TunnelLine::new(service, request, line, *began, status, notes),
            sent_before,
        }))
    }

    /// The request, for the error log.
    pub(super) fn line(&self) -> String {
        named(&self.asked.line, self.request)
    }

    fn push_raw(&mut self, bytes: Bytes) -> io::Result<()> {
        self.body.copied += bytes.len() as u64;
        self.queue.push_bytes(bytes)
    }

    /// Writes the status line and the fields of a head. An invalid field is left out and logged.
    fn encode<'b>(&self, head: &ResponseHead, out: &'b mut BytesMut) -> HeadEncoder<'b> {
        let of_field = |field: &Field| field.name().len() + field.value().len() + 4;
        out.reserve(OTHER_LINES + head.fields.iter().map(of_field).sum::<usize>());
        let mut encoder = HeadEncoder::new(out, head.status, head.reason.as_deref());
        for field in &head.fields {
            let (name, value) = match field {
                Field::Line(line) => {
                    encoder.line(line);
                    continue;
                }
                Field::Own(name, value) => (name, value),
            };
            if encoder.field(name, value).is_err() {
                let (request, name) = (self.line(), name.escape_ascii());
                tracing::warn!(
                    request,
                    "a response field was left out, it holds control characters: {name}"
                );
            }
        }
        encoder
    }

    fn push_framed(&mut self, framing: Framing, segment: Segment) -> io::Result<()> {
        if let Some(before) = framing.before_piece(segment.len()) {
            self.queue.push_bytes(before)?;
        }
        self.queue.push(segment)?;
        if let Some(after) = framing.after_piece() {
            self.queue.push_bytes(after)?;
        }
        Ok(())
    }

    fn log(&self) {
        let sent = self.transport.sent() - self.sent_before;
        let (status, sent) = match self.state {
            State::Waiting | State::Lent(_) => self.unanswered,
            State::Switched => return,
            State::Begun { status, head_len, .. } | State::Ended { status, head_len, .. } => {
                (status.as_u16(), sent.saturating_sub(head_len + self.interim_len))
            }
        };
        self.service.log(&LogLine {
            client: self.request.map_or(self.client, |request| &request.peer),
            request: self.request,
            request_line: &self.asked.line,
            began: self.asked.began,
            status,
            sent,
            body: self.body,
            is_whole: self.completed().is_some(),
            notes: &self.notes,
        });
    }
}

impl<T: Transport, S: Service> Sink for Exchange<'_, T, S> {
    /// Clients of HTTP/1.0 would take an interim response for the final one (RFC 9110 §15.2).
    fn interim(&mut self, head: ResponseHead) -> Result<(), Cut> {
        if self.asked.version == Version::HTTP_10 {
            return Ok(());
        }
        // A borrower that sends a head to the front has declined the socket.
        self.state = State::Waiting;
        let mut out = BytesMut::new();
        self.encode(&head, &mut out).finish();
        self.interim_len += out.len() as u64;
        self.queue.push_bytes(out.freeze())?;
        Ok(())
    }

    fn begin(&mut self, head: ResponseHead) -> Result<(), Cut> {
        if matches!(self.unread, Unread::Incoming(_) | Unread::Rest) {
            self.keep_alive = false;
        }
        let (status, length) = (head.status, head.length);
        let framing = Framing::choose(&self.asked.method, self.asked.version, status, length);
        let is_last = self.lifecycle.is_stopping() || self.transport.is_worn();
        self.keep_alive &= framing != Framing::Close && !is_last;
        let mut out = BytesMut::new();
        let encoder = self.encode(&head, &mut out);
        let length = length.filter(|_| status != StatusCode::NO_CONTENT);
        encoder.finish_framed(framing, length, self.asked.version, self.keep_alive);
        *self.starting = None;
        self.state = State::Begun { status, framing, head_len: out.len() as u64 };
        self.queue.push_bytes(out.freeze())?;
        Ok(())
    }

    fn push(&mut self, segment: Segment) -> Result<Fit, Cut> {
        let (wire, segment) = self.framed.take(segment)?;
        for bytes in wire {
            self.push_raw(bytes)?;
        }
        let Some(mut segment) = segment else { return Ok(Fit::Whole) };
        let State::Begun { framing, .. } = &mut self.state else { return Ok(Fit::Whole) };
        let fit = Fit::of(&mut segment, framing);
        if !segment.is_empty() {
            let framing = *framing;
            self.body.note(segment.medium(), segment.len());
            self.push_framed(framing, segment)?;
        }
        Ok(fit)
    }

    /// Sent only to a client that says that it reads trailers: `TE: trailers` (RFC 9110 §10.1.4).
    fn trailers(&mut self, trailers: Trailers) -> Result<(), Cut> {
        if self.request.is_some_and(|request| takes_trailers(&request.headers)) {
            self.trailers = Some(trailers);
        }
        Ok(())
    }

    fn end(&mut self, _ending: ResponseEnd) -> Result<u64, Cut> {
        if self.framed.missing() > 0 {
            return Ok(self.framed.missing());
        }
        let State::Begun { status, framing, head_len } = self.state else { return Ok(0) };
        if framing.missing() > 0 {
            return Ok(framing.missing());
        }
        if let Some(end) = framing.end() {
            let trailers = self.trailers.take();
            self.queue.push_bytes(trailers.map_or(end, |trailers| trailers.last_chunk()))?;
        }
        let keep_alive = self.keep_alive && framing != Framing::Close;
        self.state = State::Ended { status, head_len, keep_alive };
        Ok(0)
    }

    fn room(&self) -> Room {
        Room::of(&self.queue)
    }

    fn send_now(&mut self) -> Result<Progress, Cut> {
        let progress = self.queue.try_send(self.transport)?;
        if progress != Progress::Blocked {
            self.timer.stop();
        }
        Ok(progress)
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        let limits = send_pace(self.service.config());
        self.timer.check(cx, limits, self.queue.memory(), || self.transport.delivered())?;
        // A client that has gone reads no more, either.
        let _ended = self.poll_body(cx);
        self.transport.poll_writable(cx).map_err(Cut::from)
    }

    fn client(&mut self) -> &mut dyn Client {
        self
    }
}

impl<T: Transport, S: Service> Client for Exchange<'_, T, S> {
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if ready!(self.poll_body(cx)).is_err() {
            return self.gone();
        }
        while matches!(self.unread, Unread::Nothing) && self.read_ahead.len() < READ_AHEAD {
            if ready!(self.transport.poll_readable(cx)).is_err() {
                return self.gone();
            }
            self.read_ahead.reserve(READ_MORE);
            match ready!(self.transport.poll_read(cx, self.read_ahead)) {
                Ok(0) | Err(_) => return self.gone(),
                Ok(_) => {}
            }
        }
        Poll::Pending
    }

    fn note_slow(&mut self) {
        self.kept_up = false;
        self.queue.note_slow();
    }

    fn kept_up(&mut self) -> bool {
        self.kept_up
    }

    fn close_after(&mut self) {
        self.keep_alive = false;
    }

    fn withhold_socket(&mut self) {
        self.is_withheld = true;
    }

    fn lender(&mut self) -> Option<&mut dyn Lender> {
        Some(self)
    }

    /// The unread rest of a body would look like bytes of the other protocol.
    fn may_switch(&mut self) -> bool {
        matches!(self.unread, Unread::Nothing)
    }

    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }
}

impl<T: Transport, S: Service> Drop for Exchange<'_, T, S> {
    /// An incomplete body must not look complete: if the end of the connection ends the body, only
    /// a reset shows the error.
    fn drop(&mut self) {
        self.log();
        *self.kept_up_before = self.kept_up;
        let ends_by_close = match self.state {
            State::Waiting | State::Switched => return,
            State::Lent(framing) | State::Begun { framing, .. } => framing == Framing::Close,
            State::Ended { .. } if self.queue.is_empty() => return,
            State::Ended { keep_alive, .. } => !keep_alive,
        };
        if ends_by_close {
            self.transport.reset();
        } else {
            self.transport.cut();
        }
    }
}
