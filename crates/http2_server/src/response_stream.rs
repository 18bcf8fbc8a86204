//! The sending direction of a stream, from its request to the last byte of the response.

use std::task::{Context, Poll};

use bytes::Buf;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{Response, StatusCode};
use sendoff_delivery::segment::Segment;
use sendoff_exchange::sink::Fit;
use sendoff_message::Cut;
use sendoff_message::response::Framing;

use super::in_flight::Given;

/// A response on its stream. Dropping it resets a stream that has not ended, so that the client
/// does not take the beginning of the response for all of it.
///
/// ```text
///            begin()          send_head()          give() of the last byte
///  Waiting ─────────▶ Begun ─────────────▶ Sending ────────────────────────▶ Ended
///                       └── send_head(), if there is no body to send ──────────▲
/// ```
pub(super) struct ResponseStream {
    response: SendResponse<Given>,
    state: StreamState,
}

/// The framing of bytes that are still to be queued ([`Framing::Chunked`] stands for a body of
/// unknown length, and bytes for [`Framing::NoBody`] are dropped); `None` once all of the body is
/// queued.
type Rest = Option<Framing>;

enum StreamState {
    /// No head is known.
    Waiting,
    /// The head waits for the first `send_head`, because it may turn out to end the stream as well.
    Begun(Response<()>, Rest),
    /// The body is being sent.
    Sending(StatusCode, SendStream<Given>, Rest),
    /// h2 has all bytes of the response, or has refused its head.
    Ended(StatusCode),
}

impl ResponseStream {
    pub(super) fn new(response: SendResponse<Given>) -> Self {
        Self { response, state: StreamState::Waiting }
    }

    /// The status of the response, once it has begun.
    pub(super) fn status(&self) -> Option<StatusCode> {
        match &self.state {
            StreamState::Waiting => None,
            StreamState::Begun(head, _) => Some(head.status()),
            StreamState::Sending(status, ..) | StreamState::Ended(status) => Some(*status),
        }
    }

    /// Sends the head of an interim response, unless the response has begun.
    pub(super) fn interim(&mut self, head: Response<()>) -> Result<(), Cut> {
        let StreamState::Waiting = self.state else { return Ok(()) };
        self.response.send_informational(head).map_err(|error| gone(&error))
    }

    pub(super) fn begin(&mut self, head: Response<()>, framing: Framing) {
        if let StreamState::Waiting = self.state {
            self.state = StreamState::Begun(head, Some(framing));
        }
    }

    fn rest(&mut self) -> Option<&mut Rest> {
        match &mut self.state {
            StreamState::Begun(_, rest) | StreamState::Sending(_, _, rest) => Some(rest),
            StreamState::Waiting | StreamState::Ended(_) => None,
        }
    }

    /// Counts a piece of the body before it is queued, and truncates it to the bytes that belong to
    /// the body.
    pub(super) fn fit(&mut self, segment: &mut Segment) -> Fit {
        // Before the head and after the end, no byte belongs to the body.
        let mut nothing = Framing::Length(0);
        Fit::of(segment, self.rest().and_then(Option::as_mut).unwrap_or(&mut nothing))
    }

    /// Notes that all of the body is queued, unless bytes of its announced length are missing;
    /// returns their number.
    pub(super) fn end(&mut self) -> u64 {
        let Some(rest) = self.rest() else { return 0 };
        let missing = rest.map_or(0, Framing::missing);
        rest.take_if(|framing| missing == 0 && *framing != Framing::NoBody);
        missing
    }

    /// Passes the head to h2, unless h2 has it already. `is_empty`: no byte of the body is queued.
    pub(super) fn send_head(&mut self, is_empty: bool) -> Result<(), Cut> {
        let StreamState::Begun(head, rest) = &mut self.state else { return Ok(()) };
        let (head, rest) = (std::mem::take(head), *rest);
        let is_all = rest.is_none() && is_empty;
        let (status, ends) = (head.status(), is_all || rest == Some(Framing::NoBody));
        self.state = StreamState::Ended(status);
        let body = self.response.send_response(head, ends).map_err(|error| gone(&error))?;
        if !ends {
            self.state = StreamState::Sending(status, body, rest);
        }
        Ok(())
    }

    /// The stream, while its body is being sent.
    pub(super) fn sending(&mut self) -> Option<&mut SendStream<Given>> {
        if let StreamState::Sending(_, stream, _) = &mut self.state { Some(stream) } else { None }
    }

    /// Passes a piece of the body to h2. `is_last`: no further byte of the body is queued.
    pub(super) fn give(&mut self, piece: Given, is_last: bool) -> Result<(), Cut> {
        let StreamState::Sending(status, stream, rest) = &mut self.state else { return Ok(()) };
        let ends = is_last && rest.is_none();
        if ends || piece.has_remaining() {
            stream.send_data(piece, ends).map_err(|error| gone(&error))?;
        }
        if ends {
            self.state = StreamState::Ended(*status);
        }
        Ok(())
    }

    /// Ready when the client, or h2, has reset the stream.
    pub(super) fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<Result<Reason, h2::Error>> {
        match &mut self.state {
            StreamState::Waiting | StreamState::Begun(..) => self.response.poll_reset(cx),
            StreamState::Sending(_, stream, _) => stream.poll_reset(cx),
            StreamState::Ended(_) => Poll::Pending,
        }
    }
}

impl Drop for ResponseStream {
    fn drop(&mut self) {
        if !matches!(self.state, StreamState::Ended(_)) {
            self.response.send_reset(Reason::INTERNAL_ERROR);
        }
    }
}

/// The cut after an error of h2: the stream was reset, or the connection has ended.
fn gone(error: &h2::Error) -> Cut {
    let why = error.to_string();
    Cut { why, ..Cut::client_gone() }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use bytes::Bytes;
    use http::Request;
    use sendoff_delivery::SendQueue;

    use super::*;
    use crate::in_flight::InFlight;

    /// The response that a client receives: its status, whether its head ends the stream, and its
    /// body or the error.
    async fn received(
        answer: impl FnOnce(ResponseStream),
    ) -> Result<(u16, bool, Vec<u8>), Option<Reason>> {
        let (client, server) = tokio::io::duplex(4096);
        let serve = async {
            let mut connection = h2::server::Builder::new().handshake(server).await.unwrap();
            let (_request, response) = connection.accept().await.unwrap().unwrap();
            answer(ResponseStream::new(response));
            std::future::poll_fn(|cx| connection.poll_closed(cx)).await
        };
        let ask = async {
            let (mut requests, connection) = h2::client::handshake(client).await.unwrap();
            let request = Request::get("http://site/").body(()).unwrap();
            let (response, _) = requests.send_request(request, true).unwrap();
            let read = async {
                let (head, mut body) = response.await.map_err(|error| error.reason())?.into_parts();
                let (is_all, mut bytes) = (body.is_end_stream(), Vec::new());
                while let Some(data) = body.data().await {
                    bytes.extend_from_slice(&data.map_err(|error| error.reason())?);
                }
                Ok((head.status.as_u16(), is_all, bytes))
            };
            tokio::select! { read = read => read, end = connection => panic!("{end:?}") }
        };
        tokio::select! { read = ask => read, end = serve => panic!("{end:?}") }
    }

    /// A response head, which is sent with this framing.
    fn begin(stream: &mut ResponseStream, framing: Framing) {
        assert_eq!(stream.status(), None);
        stream.begin(Response::new(()), framing);
        assert_eq!(stream.status(), Some(StatusCode::OK));
    }

    fn give(stream: &mut ResponseStream, bytes: &'static [u8], is_last: bool) {
        let mut segment = Segment::Bytes(Bytes::from_static(bytes));
        assert_eq!(stream.fit(&mut segment), Fit::Whole);
        let mut queue = SendQueue::default();
        queue.push(segment).unwrap();
        let in_flight = Rc::<InFlight>::default();
        let piece = in_flight.give(queue.take(bytes.len()).unwrap(), &Rc::default());
        stream.give(piece, is_last).unwrap();
    }

    #[tokio::test]
    async fn a_head_ends_its_stream_if_no_body_follows() {
        for (framing, ends) in [(Framing::NoBody, false), (Framing::Chunked, true)] {
            let received = received(|mut stream| {
                begin(&mut stream, framing);
                if ends {
                    assert_eq!(stream.end(), 0);
                }
                stream.send_head(true).unwrap();
                assert!(stream.sending().is_none());
            });
            assert_eq!(received.await, Ok((200, true, Vec::new())));
        }
    }

    #[tokio::test]
    async fn the_last_piece_ends_its_stream_once_no_byte_is_missing() {
        let received = received(|mut stream| {
            begin(&mut stream, Framing::Length(6));
            stream.send_head(true).unwrap();
            give(&mut stream, b"one", true);
            assert_eq!(stream.end(), 3);
            assert!(stream.sending().is_some());
            let mut long = Segment::Bytes(Bytes::from_static(b"two and more"));
            assert_eq!((stream.fit(&mut long), long.len()), (Fit::Cut, 3));
            assert_eq!(stream.end(), 0);
            give(&mut stream, b"", true);
            assert!(stream.sending().is_none());
            let mut late = Segment::Bytes(Bytes::from_static(b"late"));
            assert_eq!((stream.fit(&mut late), late.len()), (Fit::Cut, 0));
        });
        assert_eq!(received.await, Ok((200, false, b"one".to_vec())));
    }

    #[tokio::test]
    async fn a_response_that_has_not_ended_is_reset() {
        let acts: [fn(&mut ResponseStream); 3] = [
            |_| (),
            |stream| begin(stream, Framing::Chunked),
            |stream| {
                begin(stream, Framing::Chunked);
                stream.send_head(true).unwrap();
            },
        ];
        for act in acts {
            let received = received(|mut stream| act(&mut stream)).await;
            assert_eq!(received, Err(Some(Reason::INTERNAL_ERROR)));
        }
    }
}
