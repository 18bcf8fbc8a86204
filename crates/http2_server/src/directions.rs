//! The two directions of a stream on h2.

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::Response;
use sendoff_delivery::Piece;
use sendoff_message::Cut;
use sendoff_message::response::{ResponseHead, Trailers};
use sendoff_streams::{RequestBody, ResponseSender, StreamGone};

use super::fields;
use super::in_flight::{Given, InFlight};

/// The body of a request.
pub(super) struct Body {
    stream: RecvStream,
    trailers: Option<Trailers>,
}

impl Body {
    pub(super) fn new(stream: RecvStream) -> Self {
        Self { stream, trailers: None }
    }
}

impl RequestBody for Body {
    fn is_end(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamGone>> {
        if let Some(data) = ready!(self.stream.poll_data(cx)) {
            return Poll::Ready(data.map(Some).map_err(|_| StreamGone));
        }
        let trailers = ready!(self.stream.poll_trailers(cx)).map_err(|_| StreamGone)?;
        self.trailers = trailers.and_then(Trailers::of_request);
        Poll::Ready(Ok(None))
    }

    fn take_trailers(&mut self) -> Option<Trailers> {
        self.trailers.take()
    }

    fn release(&mut self, bytes: usize) {
        // It fails if the stream has ended meanwhile.
        let _ended = self.stream.flow_control().release_capacity(bytes);
    }
}

/// The sending direction. Bytes that h2 has count as in flight until the socket has taken them.
pub(super) struct Sender {
    response: SendResponse<Given>,
    /// `None` before the head, and if the response has no body.
    body: Option<SendStream<Given>>,
    /// The bytes in flight of the connection.
    connection: Rc<InFlight>,
    /// The bytes in flight of this stream.
    in_flight: Rc<Cell<usize>>,
    /// The most bytes that are passed to h2 at a time.
    frame: usize,
}

impl Sender {
    pub(super) fn new(
        response: SendResponse<Given>,
        connection: Rc<InFlight>,
        frame: usize,
    ) -> Self {
        Self { response, body: None, connection, in_flight: Rc::default(), frame }
    }
}

impl ResponseSender for Sender {
    type Head = Response<()>;

    fn encode(head: ResponseHead, invalid: &mut dyn FnMut(&[u8])) -> Response<()> {
        fields::response(head, invalid)
    }

    fn interim(&mut self, head: Response<()>) -> Result<(), Cut> {
        self.response.send_informational(head).map_err(|error| gone(&error))
    }

    fn head(&mut self, head: Response<()>, ends: bool) -> Result<(), Cut> {
        let body = self.response.send_response(head, ends).map_err(|error| gone(&error))?;
        self.body = (!ends).then_some(body);
        Ok(())
    }

    fn room(&mut self, owed: usize) -> usize {
        let Some(body) = &mut self.body else { return 0 };
        // Also if no byte is owed: reserved capacity that is not needed goes to other streams.
        body.reserve_capacity(owed);
        if !self.connection.has_room() {
            return 0;
        }
        body.capacity().min(owed).min(self.frame)
    }

    /// The connection's task sends them.
    fn has_rest(&self) -> bool {
        false
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        let Some(body) = &mut self.body else { return Poll::Ready(Ok(())) };
        if !self.connection.has_room() {
            self.connection.wait(cx);
            return Poll::Pending;
        }
        if body.capacity() > 0 {
            return Poll::Ready(Ok(()));
        }
        match ready!(body.poll_capacity(cx)) {
            Some(Ok(_)) => Poll::Ready(Ok(())),
            Some(Err(_)) | None => Poll::Ready(Err(Cut::client_gone())),
        }
    }

    fn give(&mut self, piece: Piece, ends: bool) -> Result<(), Cut> {
        let Some(body) = &mut self.body else { return Ok(()) };
        let given = self.connection.give(piece, &self.in_flight);
        debug_assert!(ends || given.has_remaining(), "a frame without a purpose");
        body.send_data(given, ends).map_err(|error| gone(&error))
    }

    fn trailers(&mut self, trailers: Trailers) -> Result<(), Cut> {
        let Some(body) = &mut self.body else { return Ok(()) };
        body.send_trailers(trailers.into_fields()).map_err(|error| gone(&error))
    }

    fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    /// The connection's task sends them.
    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        Poll::Ready(Ok(()))
    }

    fn poll_taken(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.connection.is_empty() {
            return Poll::Ready(());
        }
        self.connection.wait(cx);
        Poll::Pending
    }

    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.body {
            None => self.response.poll_reset(cx).map(drop),
            Some(body) => body.poll_reset(cx).map(drop),
        }
    }

    fn reset(&mut self) {
        self.response.send_reset(Reason::INTERNAL_ERROR);
    }
}

/// The cut after an error of h2: the stream was reset, or the connection has ended.
fn gone(error: &h2::Error) -> Cut {
    let why = error.to_string();
    Cut { why, ..Cut::client_gone() }
}
