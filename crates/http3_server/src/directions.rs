//! The two directions of a request's stream on QUIC.

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use quinn_proto::StreamId;
use sendoff_delivery::Piece;
use sendoff_http3::Code;
use sendoff_http3::frame::{self, RequestDecoder, RequestPart};
use sendoff_http3::qpack::{self, QpackError};
use sendoff_message::Cut;
use sendoff_message::response::{ResponseHead, Trailers};
use sendoff_streams::{
    RequestBody, ResponseSender, STREAM_BUFFER, StreamGone, content_length, response_lines,
    trailer_lines,
};
use tokio::time::{sleep, timeout};

use super::quic::Quic;

/// The most bytes of unknown frames on a stream, which ask for nothing.
const MOST_SKIPPED: u64 = 64 * 1024;

/// Bounds for the time between the last bytes of a response that is cut and the reset.
const RESET_DELAY: Duration = Duration::from_millis(50);
const MOST_RESET_DELAY: Duration = Duration::from_millis(500);

/// The receiving direction of a request's stream. Dropping it tells the client that the rest is not
/// needed, if there is one.
pub(crate) struct Receiver {
    quic: Rc<Quic>,
    id: StreamId,
    decoder: RequestDecoder,
    /// The most bytes of a field section.
    max_section: usize,
    buffer: BytesMut,
    /// Bytes of the body that its announced length still lacks; `None` without such a length.
    missing: Option<u64>,
    /// The fields behind the body.
    trailers: Option<Trailers>,
    /// The client has ended the stream, or has gone.
    has_ended: bool,
}

impl Receiver {
    pub(crate) fn new(quic: Rc<Quic>, id: StreamId, max_section: usize) -> Self {
        let (decoder, buffer) = (RequestDecoder::new(max_section), BytesMut::new());
        Self {
            quic,
            id,
            decoder,
            max_section,
            buffer,
            missing: None,
            trailers: None,
            has_ended: false,
        }
    }

    /// Notes the announced length of the body, from which the body must not differ (RFC 9114
    /// §4.1.2): a server behind this one would take the difference for another request.
    pub(crate) fn expect_length(&mut self, length: u64) {
        self.missing = Some(length);
    }

    /// Counts bytes of the body; fails if they are more than announced, or fewer at its end.
    fn count(&mut self, data: Option<&Bytes>) -> Result<(), StreamGone> {
        let Some(missing) = &mut self.missing else { return Ok(()) };
        let left = match data {
            Some(data) => missing.checked_sub(data.len() as u64),
            None => Some(0).filter(|_| *missing == 0),
        };
        match left {
            Some(left) => *missing = left,
            None => return Err(self.refuse_message()),
        }
        Ok(())
    }

    /// Ends the stream of a malformed request (RFC 9114 §4.1.2).
    fn refuse_message(&self) -> StreamGone {
        self.quic.stop(self.id, Code::MESSAGE_ERROR.0);
        self.quic.reset(self.id, Code::MESSAGE_ERROR.0);
        StreamGone
    }

    /// Checks and keeps trailers.
    fn note_trailers(&mut self, section: &[u8]) -> Result<(), StreamGone> {
        match qpack::trailers(section, self.max_section) {
            Ok(fields) => {
                self.trailers = Trailers::of_request(fields);
                Ok(())
            }
            Err(QpackError::Malformed(_) | QpackError::TooLarge) => Err(self.refuse_message()),
            Err(QpackError::Decompression) => {
                self.quic.close(Code::QPACK_DECOMPRESSION_FAILED.0, "trailers cannot be decoded");
                Err(StreamGone)
            }
        }
    }

    /// The next part; `None` at the end of the stream.
    pub(crate) fn poll_part(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<RequestPart>, PartError>> {
        loop {
            match self.decoder.next(&mut self.buffer) {
                Ok(RequestPart::NeedMore) => {}
                Ok(part) => return Poll::Ready(Ok(Some(part))),
                Err(error) => return Poll::Ready(Err(self.refuse(error))),
            }
            if self.decoder.skipped() > MOST_SKIPPED {
                self.quic.close(Code::EXCESSIVE_LOAD.0, "frames without a purpose");
                return Poll::Ready(Err(PartError::Gone));
            }
            if self.has_ended {
                if self.decoder.is_at_boundary() {
                    return Poll::Ready(Ok(None));
                }
                self.quic.close(Code::FRAME_ERROR.0, "a stream ends within a frame");
                return Poll::Ready(Err(PartError::Gone));
            }
            match ready!(self.quic.poll_read(self.id, cx)) {
                Ok(Some(bytes)) => self.buffer.extend_from_slice(&bytes),
                Ok(None) => self.has_ended = true,
                Err(StreamGone) => {
                    self.has_ended = true;
                    return Poll::Ready(Err(PartError::Gone));
                }
            }
        }
    }

    fn refuse(&mut self, error: frame::Error) -> PartError {
        match error {
            frame::Error::SectionTooLarge => PartError::TooLarge,
            frame::Error::Connection(code) => {
                self.quic.close(code.0, "a frame out of place");
                PartError::Gone
            }
        }
    }

    /// True if the client has ended the stream and no byte is left, as far as is known without
    /// waiting.
    pub(crate) fn knows_end(&mut self) -> bool {
        if !self.has_ended {
            let cx = Context::from_waker(Waker::noop());
            match self.quic.poll_read(self.id, &cx) {
                Poll::Ready(Ok(Some(bytes))) => self.buffer.extend_from_slice(&bytes),
                Poll::Ready(Ok(None)) => self.has_ended = true,
                Poll::Ready(Err(StreamGone)) | Poll::Pending => {}
            }
        }
        self.is_end()
    }
}

/// The reason why there is no next part.
pub(crate) enum PartError {
    /// The head is larger than the limit.
    TooLarge,
    /// The client has gone, or its connection was ended for its mistake.
    Gone,
}

impl RequestBody for Receiver {
    fn is_end(&self) -> bool {
        self.has_ended && self.buffer.is_empty()
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamGone>> {
        loop {
            match ready!(self.poll_part(cx)) {
                Ok(Some(RequestPart::Data(data))) if !data.is_empty() => {
                    return Poll::Ready(self.count(Some(&data)).map(|()| Some(data)));
                }
                Ok(Some(RequestPart::Trailers(section))) => self.note_trailers(&section)?,
                Ok(Some(_)) => {}
                Ok(None) => return Poll::Ready(self.count(None).map(|()| None)),
                Err(PartError::TooLarge | PartError::Gone) => return Poll::Ready(Err(StreamGone)),
            }
        }
    }

    fn take_trailers(&mut self) -> Option<Trailers> {
        self.trailers.take()
    }

    /// Reading from QUIC gives the credit, and only as much is read as the handler takes.
    fn release(&mut self, _bytes: usize) {}
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if !self.has_ended {
            self.quic.stop(self.id, Code::NO_ERROR.0);
        }
        self.quic.let_go(self.id);
    }
}

/// The sending direction. Bytes that QUIC has not taken wait here.
pub(crate) struct Sender {
    rest: Rest,
    send_timeout: Duration,
}

/// Bytes of a stream that QUIC has not taken yet.
struct Rest {
    quic: Rc<Quic>,
    id: StreamId,
    parts: VecDeque<Bytes>,
    /// The stream ends behind the parts.
    ends: bool,
    /// The stream has ended, or will be reset.
    is_over: bool,
}

impl Rest {
    /// Writes as much as QUIC takes. Returns true if nothing is left.
    fn flush(&mut self) -> Result<bool, StreamGone> {
        self.quic.write(self.id, &mut self.parts)?;
        let is_all = self.parts.is_empty();
        if is_all && std::mem::take(&mut self.ends) {
            self.is_over = true;
            self.quic.finish(self.id);
        }
        Ok(is_all)
    }

    fn poll_flush(&mut self, cx: &Context<'_>) -> Poll<Result<(), StreamGone>> {
        if self.flush()? {
            return Poll::Ready(Ok(()));
        }
        self.quic.wait_writable(self.id, cx);
        Poll::Pending
    }

    /// Lets the direction go, with a reset if it has not ended: a client may have 128 streams
    /// without an end.
    fn let_go(&mut self) {
        if !self.is_over {
            self.quic.reset(self.id, Code::REQUEST_CANCELLED.0);
        }
        self.quic.let_go(self.id);
    }
}

impl Sender {
    pub(crate) fn new(quic: Rc<Quic>, id: StreamId, send_timeout: Duration) -> Self {
        let rest = Rest { quic, id, parts: VecDeque::new(), ends: false, is_over: false };
        Self { rest, send_timeout }
    }

    fn send(&mut self, ends: bool) -> Result<(), Cut> {
        self.rest.ends = ends;
        self.rest.flush().map(drop).map_err(|StreamGone| Cut::client_gone())
    }
}

impl ResponseSender for Sender {
    /// The frame.
    type Head = Bytes;

    fn encode(head: ResponseHead, invalid: &mut dyn FnMut(&[u8])) -> Bytes {
        let length = content_length(&head);
        let mut section = BytesMut::with_capacity(256);
        let lines = response_lines(&head, length.as_deref(), invalid);
        qpack::encode(head.status, lines, &mut section);
        let mut frame = BytesMut::with_capacity(section.len() + 8);
        frame::headers(&section, &mut frame);
        frame.freeze()
    }

    fn interim(&mut self, head: Bytes) -> Result<(), Cut> {
        self.rest.parts.push_back(head);
        self.send(false)
    }

    fn head(&mut self, head: Bytes, ends: bool) -> Result<(), Cut> {
        self.rest.parts.push_back(head);
        self.send(ends)
    }

    fn room(&mut self, owed: usize) -> usize {
        match self.rest.flush() {
            Ok(true) => owed.min(STREAM_BUFFER),
            Ok(false) | Err(StreamGone) => 0,
        }
    }

    fn has_rest(&self) -> bool {
        !self.rest.parts.is_empty()
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        self.rest.poll_flush(cx).map_err(|StreamGone| Cut::client_gone())
    }

    fn give(&mut self, mut piece: Piece, ends: bool) -> Result<(), Cut> {
        if piece.has_remaining() {
            let mut header = BytesMut::with_capacity(9);
            frame::data_header(piece.remaining() as u64, &mut header);
            self.rest.parts.push_back(header.freeze());
            while let Some(part) = piece.take_part() {
                self.rest.parts.push_back(part);
            }
        }
        self.send(ends)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        self.rest.poll_flush(cx).map_err(|StreamGone| Cut::client_gone())
    }

    fn trailers(&mut self, trailers: Trailers) -> Result<(), Cut> {
        let (mut section, mut frame) = (BytesMut::new(), BytesMut::new());
        qpack::encode_trailers(trailer_lines(&trailers), &mut section);
        frame::headers(&section, &mut frame);
        self.rest.parts.push_back(frame.freeze());
        self.send(true)
    }

    fn in_flight(&self) -> usize {
        self.rest.parts.iter().map(Bytes::len).sum()
    }

    fn poll_taken(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.rest.poll_flush(cx).map(drop)
    }

    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.rest.quic.poll_stopped(self.rest.id, cx)
    }

    /// A reset drops what QUIC has not sent yet, and the client should see the beginning of a
    /// response that is cut. So it comes two round trips later.
    fn reset(&mut self) {
        self.rest.parts.clear();
        self.rest.is_over = true;
        let (quic, id) = (Rc::clone(&self.rest.quic), self.rest.id);
        let delay = (quic.state().rtt() * 2).clamp(RESET_DELAY, MOST_RESET_DELAY);
        tokio::task::spawn_local(async move {
            sleep(delay).await;
            quic.reset(id, Code::INTERNAL_ERROR.0);
        });
    }
}

impl Drop for Sender {
    /// The last piece of a response may still wait for the client's windows.
    fn drop(&mut self) {
        if self.rest.parts.is_empty() {
            return self.rest.let_go();
        }
        let (quic, parts) = (Rc::clone(&self.rest.quic), std::mem::take(&mut self.rest.parts));
        let mut rest = Rest { quic, parts, ..self.rest };
        let send_timeout = self.send_timeout;
        tokio::task::spawn_local(async move {
            let flushed = std::future::poll_fn(|cx| rest.poll_flush(cx));
            let _late = timeout(send_timeout, flushed).await;
            rest.let_go();
        });
    }
}
