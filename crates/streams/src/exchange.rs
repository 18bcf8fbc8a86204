//! One response on a stream: the sink that handlers answer to.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::{Method, StatusCode, Version};
use sendoff_delivery::segment::Segment;
use sendoff_delivery::{Progress, SendQueue, SendTimer, send_pace};
use sendoff_exchange::client::Client;
use sendoff_exchange::service::Service;
use sendoff_exchange::sink::{Fit, Room, Sink};
use sendoff_exchange::tunnel::TunnelLine;
use sendoff_message::Cut;
use sendoff_message::request::{Request, named, protocol};
use sendoff_message::response::{Framing, ResponseEnd, ResponseHead, Trailers};
use sendoff_report::log_line::{BodyBytes, CLIENT_LEFT, LogLine, Notes};
use sendoff_transport::pace::SlowestPace;
use tokio::time::Instant;

use crate::STREAM_BUFFER;
use crate::directions::ResponseSender;
use crate::response_stream::ResponseStream;
use crate::streams::{StreamGuard, Streams};

/// The parts of a request that the log needs.
pub(super) struct RequestFacts {
    pub(super) method: Method,
    /// The path and the query as sent.
    pub(super) path: Bytes,
    /// The version of the protocol.
    pub(super) version: Version,
    /// The time at which its task began.
    pub(super) began: Instant,
}

impl fmt::Display for RequestFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = String::from_utf8_lossy(&self.path);
        [self.method.as_str(), " ", &path, " ", protocol(self.version)]
            .into_iter()
            .try_for_each(|part| f.write_str(part))
    }
}

/// The relation of a response to a tunnel behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The bytes of the client are a body.
    Ends,
    /// The bytes of the client may become a tunnel's.
    MaySwitch,
    /// A tunnel has begun, which writes the line to the access log.
    Switched,
}

/// One response. Dropping it writes its line to the access log, however it ended.
pub(super) struct Exchange<'c, S: Service, R: ResponseSender> {
    open: &'c StreamGuard<S>,
    streams: &'c Streams<S>,
    service: &'c S,
    asked: &'c RequestFacts,
    /// `None` if the request was refused before it could be understood.
    request: Option<&'c Request>,
    stream: &'c mut ResponseStream<R>,
    pub(super) fate: Fate,
    queue: SendQueue,
    kept_up: bool,
    /// Bytes of the body that were passed to the protocol.
    sent: u64,
    body: BodyBytes,
    notes: Notes,
    timer: SendTimer,
}

impl<'c, S: Service, R: ResponseSender> Exchange<'c, S, R> {
    pub(super) fn new(
        open: &'c StreamGuard<S>,
        service: &'c S,
        asked: &'c RequestFacts,
        request: Option<&'c Request>,
        stream: &'c mut ResponseStream<R>,
    ) -> Self {
        Self {
            open,
            streams: open.streams(),
            service,
            asked,
            request,
            stream,
            fate: Fate::Ends,
            queue: SendQueue::default(),
            kept_up: true,
            sent: 0,
            body: BodyBytes::default(),
            notes: Notes::default(),
            timer: SendTimer::default(),
        }
    }

    /// The head in the form of the protocol. An invalid field is left out and logged.
    fn encode(&self, head: ResponseHead) -> R::Head {
        R::encode(head, &mut |name| {
            let (request, name) = (named(self.asked, self.request), name.escape_ascii());
            tracing::warn!(
                request,
                "a response field was left out, it holds control characters: {name}"
            );
        })
    }

    /// Sends the head of the response, behind which the tunnel begins. `service` has answered the
    /// request.
    ///
    /// # Errors
    /// The client has gone.
    pub(super) fn switch(
        mut self,
        mut head: ResponseHead,
        service: &Rc<S>,
        request: &Request,
    ) -> Result<TunnelLine<S>, Cut> {
        // A tunnel may stay open for hours.
        self.open.end_turn();
        // The answer to a key that this client has not sent.
        head.take("Sec-WebSocket-Accept");
        head.status = StatusCode::OK;
        let head = self.encode(head);
        self.stream.begin(StatusCode::OK, head, Framing::Chunked);
        self.stream.send_head(false)?;
        self.fate = Fate::Switched;
        let (notes, began) = (std::mem::take(&mut self.notes), self.asked.began);
        Ok(TunnelLine::new(service, request, self.asked, began, StatusCode::OK, notes))
    }

    /// Waits until the network has taken the bytes that the protocol has, or the client has gone. A
    /// reset would drop these bytes, and the client should see the beginning of a response that is cut,
    /// as in HTTP/1.
    pub(super) async fn settle(&mut self) {
        poll_fn(|cx| {
            let is_late = self.check(cx).is_err();
            if self.stream.in_flight() == 0 || is_late || self.stream.poll_reset(cx).is_ready() {
                return Poll::Ready(());
            }
            self.stream.poll_taken(cx)
        })
        .await;
    }

    /// Fails if the client has taken no byte of the response for too long. The rate is checked for
    /// the connection only: a slow client may have many streams.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let limits = SlowestPace { rate: 0, ..send_pace(self.service.config()) };
        let taken = || self.sent - self.stream.in_flight() as u64;
        self.timer.check(cx, limits, self.queue.memory(), taken)
    }
}

impl<S: Service, R: ResponseSender> Sink for Exchange<'_, S, R> {
    fn interim(&mut self, head: ResponseHead) -> Result<(), Cut> {
        let head = self.encode(head);
        self.stream.interim(head)
    }

    fn begin(&mut self, mut head: ResponseHead) -> Result<(), Cut> {
        // The version does not matter for the framing here: the end of the connection never ends a
        // body.
        let version = Version::HTTP_11;
        let framing = if self.asked.method == Method::CONNECT && head.status.is_success() {
            // Success would mean that a tunnel begins (RFC 8441 §5). The body is dropped.
            head = ResponseHead::new(StatusCode::NOT_IMPLEMENTED, Some(0));
            Framing::NoBody
        } else {
            Framing::choose(&self.asked.method, version, head.status, head.length)
        };
        let status = head.status;
        let head = self.encode(head);
        self.stream.begin(status, head, framing);
        Ok(())
    }

    fn push(&mut self, mut segment: Segment) -> Result<Fit, Cut> {
        let fit = self.stream.fit(&mut segment);
        if !segment.is_empty() {
            self.body.note(segment.medium(), segment.len());
            self.queue.push(segment)?;
        }
        Ok(fit)
    }

    fn trailers(&mut self, trailers: Trailers) -> Result<(), Cut> {
        self.stream.trailers(trailers);
        Ok(())
    }

    fn end(&mut self, _ending: ResponseEnd) -> Result<u64, Cut> {
        Ok(self.stream.end())
    }

    fn room(&self) -> Room {
        Room::of(&self.queue)
    }

    fn send_now(&mut self) -> Result<Progress, Cut> {
        self.stream.send_head(self.queue.is_empty())?;
        let Self { stream, queue, streams, .. } = self;
        loop {
            let Some(client) = stream.sending() else { return Ok(Progress::Done) };
            let owed = queue.at_most(STREAM_BUFFER);
            let room = client.room(owed);
            if owed > 0 && room == 0 {
                return Ok(Progress::Blocked);
            }
            let piece = queue.take(room)?;
            let (len, is_last) = (piece.remaining(), queue.is_empty());
            stream.give(piece, is_last)?;
            self.sent += len as u64;
            streams.note_useful(len);
            if is_last {
                // Behind the end of a response its rest leaves by itself.
                if stream.sending().is_some_and(|client| client.has_rest()) {
                    return Ok(Progress::Blocked);
                }
                self.timer.stop();
                return Ok(Progress::Done);
            }
        }
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        self.check(cx)?;
        if self.stream.poll_reset(cx).is_ready() {
            return Poll::Ready(Err(Cut::client_gone()));
        }
        let Some(client) = self.stream.sending() else { return Poll::Ready(Ok(())) };
        match client.poll_room(cx) {
            // A window without capacity stays empty, because the client sends no more updates.
            Poll::Pending if self.open.poll_input_end(cx).is_ready() => {
                client.poll_taken(cx).map(|()| Err(Cut::client_gone()))
            }
            room => room,
        }
    }

    fn client(&mut self) -> &mut dyn Client {
        self
    }
}

/// A stream's end harms no later request on the connection, and other streams write to the same
/// socket. So nothing is closed or lent.
impl<S: Service, R: ResponseSender> Client for Exchange<'_, S, R> {
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.stream.poll_reset(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => self.open.poll_input_end(cx),
        }
    }

    fn note_slow(&mut self) {
        self.kept_up = false;
        self.queue.note_slow();
    }

    fn kept_up(&mut self) -> bool {
        self.kept_up
    }

    fn may_switch(&mut self) -> bool {
        self.asked.method == Method::CONNECT && self.fate == Fate::MaySwitch
    }

    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }
}

impl<S: Service, R: ResponseSender> Drop for Exchange<'_, S, R> {
    fn drop(&mut self) {
        if self.fate == Fate::Switched {
            return;
        }
        self.service.log(&LogLine {
            client: self.request.map_or(&self.streams.origin.peer, |request| &request.peer),
            request: self.request,
            request_line: self.asked,
            began: self.asked.began,
            status: self.stream.status().map_or(CLIENT_LEFT, |status| status.as_u16()),
            sent: self.sent,
            body: self.body,
            is_whole: self.stream.has_ended() && self.queue.is_empty(),
            notes: &self.notes,
        });
    }
}
