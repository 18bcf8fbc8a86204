//! The sending direction of a stream, from its request to the last byte of the response.

use std::task::{Context, Poll};

use bytes::Buf;
use http::StatusCode;
use sendoff_delivery::Piece;
use sendoff_delivery::segment::Segment;
use sendoff_exchange::sink::Fit;
use sendoff_message::Cut;
use sendoff_message::response::{Framing, Trailers};

use crate::directions::ResponseSender;

/// A response on its stream. Dropping it resets a stream that has not ended, so that the client
/// does not take the beginning of the response for all of it.
///
/// ```text
///            begin()          send_head()          give() of the last byte
///  Waiting ─────────▶ Begun ─────────────▶ Sending ────────────────────────▶ Ended
///                       └── send_head(), if there is no body to send ──────────▲
/// ```
pub(crate) struct ResponseStream<R: ResponseSender> {
    sender: R,
    state: StreamState<R::Head>,
    /// The fields to send behind the body.
    trailers: Option<Trailers>,
}

/// The framing of bytes that are still to be queued ([`Framing::Chunked`] stands for a body of
/// unknown length, and bytes for [`Framing::NoBody`] are dropped); `None` once all of the body is
/// queued.
type Rest = Option<Framing>;

enum StreamState<H> {
    /// No head is known.
    Waiting,
    /// The head waits for the first `send_head`, because it may turn out to end the stream as well.
    Begun(StatusCode, H, Rest),
    /// The body is being sent.
    Sending(StatusCode, Rest),
    /// The protocol has all bytes of the response, or has refused its head.
    Ended(StatusCode),
}

impl<R: ResponseSender> ResponseStream<R> {
    pub(crate) fn new(sender: R) -> Self {
        Self { sender, state: StreamState::Waiting, trailers: None }
    }

    /// The status of the response, once it has begun.
    pub(crate) fn status(&self) -> Option<StatusCode> {
        match &self.state {
            StreamState::Waiting => None,
            StreamState::Begun(status, ..)
            | StreamState::Sending(status, _)
            | StreamState::Ended(status) => Some(*status),
        }
    }

    /// True if the protocol has all bytes of the response.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, StreamState::Ended(_))
    }

    /// Sends the head of an interim response, unless the response has begun.
    pub(crate) fn interim(&mut self, head: R::Head) -> Result<(), Cut> {
        let StreamState::Waiting = self.state else { return Ok(()) };
        self.sender.interim(head)
    }

    pub(crate) fn begin(&mut self, status: StatusCode, head: R::Head, framing: Framing) {
        if let StreamState::Waiting = self.state {
            self.state = StreamState::Begun(status, head, Some(framing));
        }
    }

    fn rest(&mut self) -> Option<&mut Rest> {
        match &mut self.state {
            StreamState::Begun(_, _, rest) | StreamState::Sending(_, rest) => Some(rest),
            StreamState::Waiting | StreamState::Ended(_) => None,
        }
    }

    /// Counts a piece of the body before it is queued, and truncates it to the bytes that belong to
    /// the body.
    pub(crate) fn fit(&mut self, segment: &mut Segment) -> Fit {
        // Before the head and after the end, no byte belongs to the body.
        let mut nothing = Framing::Length(0);
        Fit::of(segment, self.rest().and_then(Option::as_mut).unwrap_or(&mut nothing))
    }

    /// Keeps the fields that end the stream behind the body.
    pub(crate) fn trailers(&mut self, trailers: Trailers) {
        self.trailers = Some(trailers);
    }

    /// Notes that all of the body is queued, unless bytes of its announced length are missing;
    /// returns their number.
    pub(crate) fn end(&mut self) -> u64 {
        let Some(rest) = self.rest() else { return 0 };
        let missing = rest.map_or(0, Framing::missing);
        rest.take_if(|framing| missing == 0 && *framing != Framing::NoBody);
        missing
    }

    /// Sends the head, unless it has been sent. `is_empty`: no byte of the body is queued.
    pub(crate) fn send_head(&mut self, is_empty: bool) -> Result<(), Cut> {
        let (status, head, rest) = match std::mem::replace(&mut self.state, StreamState::Waiting) {
            StreamState::Begun(status, head, rest) => (status, head, rest),
            other => {
                self.state = other;
                return Ok(());
            }
        };
        let is_all = rest.is_none() && is_empty;
        let ends = is_all || rest == Some(Framing::NoBody);
        self.state = StreamState::Ended(status);
        let trailers = self.trailers.take_if(|_| is_all);
        self.sender.head(head, ends && trailers.is_none())?;
        if let Some(trailers) = trailers {
            self.sender.trailers(trailers)?;
        }
        if !ends {
            self.state = StreamState::Sending(status, rest);
        }
        Ok(())
    }

    /// The stream, while its body is being sent.
    pub(crate) fn sending(&mut self) -> Option<&mut R> {
        matches!(self.state, StreamState::Sending(..)).then_some(&mut self.sender)
    }

    /// Sends a piece of the body. `is_last`: no further byte of the body is queued.
    pub(crate) fn give(&mut self, piece: Piece, is_last: bool) -> Result<(), Cut> {
        let StreamState::Sending(status, rest) = &self.state else { return Ok(()) };
        let (status, ends) = (*status, is_last && rest.is_none());
        let trailers = self.trailers.take_if(|_| ends);
        let is_last = ends && trailers.is_none();
        if is_last || piece.has_remaining() {
            self.sender.give(piece, is_last)?;
        }
        if let Some(trailers) = trailers {
            self.sender.trailers(trailers)?;
        }
        if ends {
            self.state = StreamState::Ended(status);
        }
        Ok(())
    }

    /// Bytes of the body that the network has not taken yet.
    pub(crate) fn in_flight(&self) -> usize {
        self.sender.in_flight()
    }

    /// As [`ResponseSender::poll_taken`].
    pub(crate) fn poll_taken(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.sender.poll_taken(cx)
    }

    /// Ready when the client no longer wants the response.
    pub(crate) fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &self.state {
            StreamState::Ended(_) => Poll::Pending,
            _ => self.sender.poll_reset(cx),
        }
    }
}

impl<R: ResponseSender> Drop for ResponseStream<R> {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.sender.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use bytes::Bytes;
    use sendoff_delivery::SendQueue;
    use sendoff_message::response::ResponseHead;

    use super::*;

    /// A protocol that notes what it is asked to send.
    #[derive(Default)]
    struct Noted(Rc<RefCell<Vec<String>>>);

    impl ResponseSender for Noted {
        type Head = u16;

        fn encode(head: ResponseHead, _invalid: &mut dyn FnMut(&[u8])) -> u16 {
            head.status.as_u16()
        }

        fn interim(&mut self, head: u16) -> Result<(), Cut> {
            self.0.borrow_mut().push(format!("interim {head}"));
            Ok(())
        }

        fn head(&mut self, head: u16, ends: bool) -> Result<(), Cut> {
            self.0.borrow_mut().push(format!("head {head} {ends}"));
            Ok(())
        }

        fn room(&mut self, owed: usize) -> usize {
            owed
        }

        fn has_rest(&self) -> bool {
            false
        }

        fn poll_room(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
            Poll::Ready(Ok(()))
        }

        fn give(&mut self, piece: Piece, ends: bool) -> Result<(), Cut> {
            let text = String::from_utf8_lossy(piece.chunk()).into_owned();
            self.0.borrow_mut().push(format!("{text:?} {ends}"));
            Ok(())
        }

        fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
            Poll::Ready(Ok(()))
        }

        fn in_flight(&self) -> usize {
            0
        }

        fn poll_taken(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
            Poll::Ready(())
        }

        fn trailers(&mut self, trailers: Trailers) -> Result<(), Cut> {
            self.0.borrow_mut().push(format!("trailers {:?}", trailers.fields()));
            Ok(())
        }

        fn poll_reset(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }

        fn reset(&mut self) {
            self.0.borrow_mut().push("reset".to_owned());
        }
    }

    /// The calls that `answer` makes.
    fn sent(answer: impl FnOnce(ResponseStream<Noted>)) -> Vec<String> {
        let noted = Rc::default();
        answer(ResponseStream::new(Noted(Rc::clone(&noted))));
        noted.take()
    }

    /// A response head, which is sent with this framing.
    fn begin(stream: &mut ResponseStream<Noted>, framing: Framing) {
        assert_eq!(stream.status(), None);
        stream.begin(StatusCode::OK, 200, framing);
        assert_eq!(stream.status(), Some(StatusCode::OK));
    }

    fn give(stream: &mut ResponseStream<Noted>, bytes: &'static [u8], is_last: bool) {
        let mut segment = Segment::Bytes(Bytes::from_static(bytes));
        assert_eq!(stream.fit(&mut segment), Fit::Whole);
        let mut queue = SendQueue::default();
        queue.push(segment).unwrap();
        stream.give(queue.take(bytes.len()).unwrap(), is_last).unwrap();
    }

    #[test]
    fn a_head_ends_its_stream_if_no_body_follows() {
        for (framing, ends) in [(Framing::NoBody, false), (Framing::Chunked, true)] {
            let sent = sent(|mut stream| {
                begin(&mut stream, framing);
                if ends {
                    assert_eq!(stream.end(), 0);
                }
                stream.send_head(true).unwrap();
                assert!(stream.sending().is_none());
            });
            assert_eq!(sent, ["head 200 true"]);
        }
    }

    #[test]
    fn the_last_piece_ends_its_stream_once_no_byte_is_missing() {
        let sent = sent(|mut stream| {
            stream.interim(103).unwrap();
            begin(&mut stream, Framing::Length(6));
            stream.interim(103).unwrap();
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
        assert_eq!(sent, ["interim 103", "head 200 false", "\"one\" false", "\"\" true"]);
    }

    #[test]
    fn a_response_that_has_not_ended_is_reset() {
        let acts: [fn(&mut ResponseStream<Noted>); 3] = [
            |_| (),
            |stream| begin(stream, Framing::Chunked),
            |stream| {
                begin(stream, Framing::Chunked);
                stream.send_head(true).unwrap();
            },
        ];
        for act in acts {
            let sent = sent(|mut stream| act(&mut stream));
            assert_eq!(sent.last().map(String::as_str), Some("reset"));
        }
    }
}
