//! One request on a stream, and its response.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use h2::RecvStream;
use h2::client::ResponseFuture;
use http::{HeaderMap, StatusCode};
use sendoff_delivery::segment::Segment;
use sendoff_http1::Trailers;
use sendoff_message::response::ResponseEnd;
use sendoff_upstream::error::{Retry, UpstreamError};
use sendoff_upstream::inbox::Event;

use crate::connection::Place;
use crate::request::{Http2Request, RequestTrailers, Sharing};
use crate::upload::Upload;
use crate::{error, fields};

/// A request and its response. Dropping it before the last event resets the stream; other requests
/// on the connection go on.
#[derive(Debug)]
pub struct Http2Stream {
    pub(crate) upload: Upload,
    pub(crate) response: Response,
    /// The host was asked for a WebSocket.
    asks_for_websocket: bool,
    /// The host has answered with a head.
    was_heard: bool,
    place: Place,
    /// The connection is shared with other requests.
    sharing: Sharing,
    request: Rc<Http2Request>,
}

/// ```text
///        head            all data             trailers, or none
///  Head ──────▶ Body ─────────────▶ Trailers ───────────────────▶ Complete ──▶ Over
///    └─── the stream has ended with the head ────────────────────────▲
/// ```
#[derive(Debug)]
pub(crate) enum Response {
    Head(ResponseFuture),
    Body(RecvStream),
    Trailers(RecvStream),
    /// The end is still to be told.
    Complete,
    Over,
}

impl Http2Stream {
    /// Sends the head of a request; for a WebSocket in the form of RFC 8441, if the host has said in
    /// its `SETTINGS` that it knows this form. The connection retires if it takes no request.
    pub(crate) async fn begin(
        place: Place,
        request: &Rc<Http2Request>,
    ) -> Result<Self, UpstreamError> {
        let retired = |error| {
            place.retire();
            error::of_connection(&error)
        };
        let mut requests = place.requests().ready().await.map_err(retired)?;
        let has_trailers = matches!(request.trailers, RequestTrailers::Known(_));
        let can_connect = requests.is_extended_connect_protocol_enabled();
        let websocket = request.websocket.as_ref().filter(|_| can_connect);
        let ends = websocket.is_none() && request.body.is_empty() && !has_trailers;
        let head = websocket.map_or(&request.head, |websocket| &websocket.head);
        let begun = requests.send_request(head.clone(), ends);
        let (response, stream) = begun.map_err(retired)?;
        let upload = Upload::new(request, stream, ends || websocket.is_some())?;
        Ok(Self {
            upload,
            response: Response::Head(response),
            asks_for_websocket: websocket.is_some(),
            was_heard: false,
            place,
            sharing: request.sharing(),
            request: Rc::clone(request),
        })
    }

    /// True if other requests may be on the connection, so one of them may be the cause of its end.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.sharing == Sharing::Shared
    }

    /// True once the host has answered with a head.
    #[must_use]
    pub fn was_heard(&self) -> bool {
        self.was_heard
    }

    /// True if the stream waits for the client's next bytes.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        self.upload.is_starved()
    }

    /// Lets no further request onto the connection, because the host is silent.
    pub fn distrust(&self) {
        self.place.retire();
    }

    /// Sends bytes of the body, and takes the next event. `None`: bytes were sent, or others are
    /// needed now.
    ///
    /// # Errors
    /// The host has ended the stream or the connection, or broken the protocol; or the rest of the
    /// request's body does not come.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Event>, UpstreamError>> {
        let was_starved = self.upload.is_starved();
        let has_sent = self.upload.poll(cx)?;
        match self.poll_event(cx) {
            Poll::Ready(event) => Poll::Ready(event.map(Some)),
            Poll::Pending if has_sent || self.upload.is_starved() != was_starved => {
                Poll::Ready(Ok(None))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// The next event.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, UpstreamError>> {
        loop {
            match &mut self.response {
                Response::Head(response) => {
                    let (status, fields, body) = match ready!(poll_head(response, cx)) {
                        Ok(Head::Interim(head)) => return Poll::Ready(self.heard(head)),
                        Ok(Head::Final(head)) => head,
                        Err(error) => return Poll::Ready(Err(self.failed(&error))),
                    };
                    if self.asks_for_websocket {
                        if status.is_success() {
                            self.response = Response::Body(body);
                            return Poll::Ready(self.switched(fields));
                        }
                        self.upload.end();
                    }
                    self.response = match body.is_end_stream() {
                        true => Response::Complete,
                        false => Response::Body(body),
                    };
                    return Poll::Ready(self.heard((status, fields)));
                }
                Response::Body(body) => match ready!(body.poll_data(cx)) {
                    Some(Ok(data)) => {
                        // It fails if the stream has ended meanwhile.
                        let _ended = body.flow_control().release_capacity(data.len());
                        if !data.is_empty() {
                            return Poll::Ready(Ok(Event::Segment(Segment::Bytes(data))));
                        }
                    }
                    Some(Err(error)) => return Poll::Ready(Err(self.failed(&error))),
                    None => match std::mem::replace(&mut self.response, Response::Over) {
                        Response::Body(body) => self.response = Response::Trailers(body),
                        other => self.response = other,
                    },
                },
                Response::Trailers(body) => match ready!(body.poll_trailers(cx)) {
                    Ok(trailers) => {
                        self.response = Response::Complete;
                        if let Some(trailers) = trailers.and_then(Trailers::of) {
                            return Poll::Ready(Ok(Event::Trailers(trailers)));
                        }
                    }
                    Err(error) => return Poll::Ready(Err(self.failed(&error))),
                },
                Response::Complete => {
                    self.response = Response::Over;
                    return Poll::Ready(Ok(Event::End(ResponseEnd::Complete)));
                }
                Response::Over => return Poll::Pending,
            }
        }
    }

    /// The event of a head. The body of the request need not be sent again.
    fn heard(&mut self, (status, fields): ReceivedHead) -> Result<Event, UpstreamError> {
        self.was_heard = true;
        self.upload.keep_nothing();
        fields::head(status, &fields).map(Event::Head)
    }

    /// The event of a WebSocket that the host has opened.
    fn switched(&mut self, fields: HeaderMap) -> Result<Event, UpstreamError> {
        self.was_heard = true;
        let unasked = || UpstreamError::broken("it changed the protocol unasked");
        self.request.websocket.as_ref().ok_or_else(unasked)?.accepted(fields).map(Event::Switch)
    }

    /// The error of the stream. If the request was not processed, its body is given back.
    fn failed(&mut self, error: &h2::Error) -> UpstreamError {
        self.response = Response::Over;
        if error.is_go_away() || error.is_io() {
            self.place.retire();
        }
        if error::ends_connection(error) {
            self.request.isolate();
        }
        let error = error::of_stream(error);
        if self.was_heard {
            // Part of the answer has reached the client.
            return UpstreamError::new(error.kind(), Retry::Unsafe, error.to_string());
        }
        if error.retry() == Retry::Safe {
            self.upload.give_back();
        }
        error
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        let is_answered = matches!(self.response, Response::Complete | Response::Over);
        if !is_answered || !self.upload.is_over() {
            self.place.note_reset();
        }
    }
}

type ReceivedHead = (StatusCode, HeaderMap);

enum Head {
    Interim(ReceivedHead),
    Final((StatusCode, HeaderMap, RecvStream)),
}

/// The next head, but for `100 Continue`: the body is sent without waiting for it.
fn poll_head(response: &mut ResponseFuture, cx: &mut Context<'_>) -> Poll<Result<Head, h2::Error>> {
    while let Poll::Ready(Some(interim)) = response.poll_informational(cx) {
        let (head, ()) = interim?.into_parts();
        if head.status != StatusCode::CONTINUE {
            return Poll::Ready(Ok(Head::Interim((head.status, head.headers))));
        }
    }
    let (head, body) = ready!(Pin::new(response).poll(cx))?.into_parts();
    Poll::Ready(Ok(Head::Final((head.status, head.headers, body))))
}
