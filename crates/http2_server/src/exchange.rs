//! One response on a stream: the sink that handlers answer to.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::SendResponse;
use http::{Method, Response, Version};
use sendoff_delivery::segment::Segment;
use sendoff_delivery::{Progress, SendLimits, SendQueue, SendTimer};
use sendoff_exchange::client::Client;
use sendoff_exchange::service::Service;
use sendoff_exchange::sink::{Fit, Room, Sink};
use sendoff_message::Cut;
use sendoff_message::request::{Request, named, protocol};
use sendoff_message::response::{Framing, ResponseEnd, ResponseHead};
use sendoff_report::log_line::{BodyBytes, LogLine, Notes};
use tokio::time::Instant;

use super::fields;
use super::in_flight::Given;
use super::response_stream::ResponseStream;
use super::settings::STREAM_BUFFER;
use super::streams::{StreamGuard, Streams};

/// The status in the access log if the client left before a response began; nginx logs the same.
const CLIENT_LEFT: u16 = 499;

/// The parts of a request that the log needs.
pub(super) struct RequestFacts {
    pub(super) method: Method,
    /// The path and the query as sent.
    pub(super) path: Bytes,
    /// The time at which its task began.
    pub(super) began: Instant,
}

impl fmt::Display for RequestFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = String::from_utf8_lossy(&self.path);
        [self.method.as_str(), " ", &path, " ", protocol(Version::HTTP_2)]
            .into_iter()
            .try_for_each(|part| f.write_str(part))
    }
}

/// One response. Dropping it writes its line to the access log, however it ended.
pub(super) struct Exchange<'c, S: Service> {
    open: &'c StreamGuard<S>,
    streams: &'c Streams<S>,
    service: &'c S,
    asked: &'c RequestFacts,
    /// `None` if the request was refused before it could be understood.
    request: Option<&'c Request>,
    stream: ResponseStream,
    queue: SendQueue,
    kept_up: bool,
    /// Bytes of the body that were passed to h2.
    sent: u64,
    /// Bytes of `sent` that the socket has not taken yet.
    in_flight: Rc<Cell<usize>>,
    body: BodyBytes,
    notes: Notes,
    timer: SendTimer,
}

impl<'c, S: Service> Exchange<'c, S> {
    pub(super) fn new(
        open: &'c StreamGuard<S>,
        service: &'c S,
        asked: &'c RequestFacts,
        request: Option<&'c Request>,
        response: SendResponse<Given>,
    ) -> Self {
        Self {
            open,
            streams: open.streams(),
            service,
            asked,
            request,
            stream: ResponseStream::new(response),
            queue: SendQueue::default(),
            kept_up: true,
            sent: 0,
            in_flight: Rc::default(),
            body: BodyBytes::default(),
            notes: Notes::default(),
            timer: SendTimer::default(),
        }
    }

    /// The head in the form of h2. An invalid field is left out and logged.
    fn encode(&self, head: ResponseHead) -> Response<()> {
        fields::response(head, |name| {
            let (request, name) = (named(self.asked, self.request), name.escape_ascii());
            tracing::warn!(
                request,
                "a response field was left out, it holds control characters: {name}"
            );
        })
    }

    /// Waits until the socket has taken the bytes that h2 has, or the client has gone. A reset
    /// would drop these bytes, and the client should see the beginning of a response that is cut,
    /// as in HTTP/1.
    pub(super) async fn settle(&mut self) {
        poll_fn(|cx| {
            let is_late = self.check(cx).is_err();
            if self.in_flight.get() == 0 || is_late || self.stream.poll_reset(cx).is_ready() {
                return Poll::Ready(());
            }
            self.streams.in_flight.wait(cx);
            Poll::Pending
        })
        .await;
    }

    /// Fails if the client has taken no byte of the response for too long. The rate is checked for
    /// the connection only: a slow client may have many streams.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let limits = SendLimits { rate: 0, ..SendLimits::of(self.service.limits()) };
        let taken = || self.sent - self.in_flight.get() as u64;
        self.timer.check(cx, limits, self.queue.memory(), taken)
    }
}

impl<S: Service> Sink for Exchange<'_, S> {
    fn interim(&mut self, head: ResponseHead) -> Result<(), Cut> {
        let head = self.encode(head);
        self.stream.interim(head)
    }

    fn begin(&mut self, head: ResponseHead) -> Result<(), Cut> {
        // The version does not matter for the framing here: in HTTP/2 the end of the connection
        // never ends a body.
        let version = Version::HTTP_11;
        let framing = Framing::choose(&self.asked.method, version, head.status, head.length);
        let head = self.encode(head);
        self.stream.begin(head, framing);
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
            // Also if no byte is owed: reserved capacity that is not needed goes to other streams.
            client.reserve_capacity(owed);
            let room = client.capacity().min(owed);
            if owed > 0 && (room == 0 || !streams.in_flight.has_room()) {
                return Ok(Progress::Blocked);
            }
            let piece = queue.take(room.min(streams.frame))?;
            let (len, is_last) = (bytes::Buf::remaining(&piece), queue.is_empty());
            stream.give(streams.in_flight.give(piece, &self.in_flight), is_last)?;
            self.sent += len as u64;
            streams.note_useful(len);
            if is_last {
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
        if !self.streams.in_flight.has_room() {
            self.streams.in_flight.wait(cx);
            return Poll::Pending;
        }
        if client.capacity() > 0 {
            return Poll::Ready(Ok(()));
        }
        match client.poll_capacity(cx) {
            Poll::Pending if self.open.poll_input_end(cx).is_ready() => {
                // A window without capacity stays empty, because the client sends no more updates.
                if self.streams.in_flight.is_empty() {
                    return Poll::Ready(Err(Cut::client_gone()));
                }
                self.streams.in_flight.wait(cx);
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(_))) => Poll::Ready(Ok(())),
            Poll::Ready(Some(Err(_)) | None) => Poll::Ready(Err(Cut::client_gone())),
        }
    }

    fn client(&mut self) -> &mut dyn Client {
        self
    }
}

/// A stream's end harms no later request on the connection, other streams write to the same socket,
/// and no stream changes its protocol. So nothing is closed, lent or tunnelled.
impl<S: Service> Client for Exchange<'_, S> {
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.stream.poll_reset(cx) {
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => self.open.poll_input_end(cx),
        }
    }

    fn note_slow(&mut self) {
        self.kept_up = false;
        self.queue.note_slow();
    }

    fn kept_up(&self) -> bool {
        self.kept_up
    }

    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }
}

impl<S: Service> Drop for Exchange<'_, S> {
    fn drop(&mut self) {
        self.service.log(&LogLine {
            client: self.request.map_or(&self.streams.origin.peer, |request| &request.peer),
            request: self.request,
            request_line: self.asked,
            began: self.asked.began,
            status: self.stream.status().map_or(CLIENT_LEFT, |status| status.as_u16()),
            sent: self.sent,
            body: self.body,
            notes: &self.notes,
        });
    }
}
