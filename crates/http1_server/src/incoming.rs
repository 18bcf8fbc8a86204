//! A request body that is read while the response is made: passed on, or dropped.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use http::StatusCode;
use sendoff_http1::{BodyDecoder, Decoded};
use sendoff_message::request::{BodyStream, BodyWriter};
use sendoff_report::limits::Limit;
use sendoff_transport::Transport;
use sendoff_transport::pace::{Pace, SlowestPace};
use tokio::time::{Sleep, sleep_until};

/// The size of one read, in bytes.
const READ: usize = 16 * 1024;

/// Pieces that are moved in one go; then other connections have their turn.
const MOST_AT_ONCE: usize = 16;

/// The rest of a request body.
pub(super) struct Incoming {
    decoder: BodyDecoder,
    writer: BodyWriter,
    limits: SlowestPace,
    pace: Pace,
    /// The client's remaining time at the moment when the application became the one to wait for.
    left: Option<Duration>,
    /// Runs while the server waits for the client.
    timer: Option<Pin<Box<Sleep>>>,
}

/// The unread part of a request body.
pub(super) enum Unread {
    Nothing,
    /// It is passed on while it arrives.
    Incoming(Incoming),
    /// No handler uses it: it is dropped while it arrives. Another request may follow it.
    Dropped(Incoming),
    /// It will not be read.
    Rest,
}

impl Unread {
    /// The rest of a body that no handler uses.
    pub(super) fn dropped(decoder: BodyDecoder, limits: SlowestPace) -> Self {
        Self::Dropped(Incoming::new(decoder, BodyStream::dropped(), limits))
    }
}

/// The end of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyEnd {
    /// The body is complete, and the buffer begins with the bytes behind it.
    Complete,
    /// The body is too large or malformed, or the client was too slow.
    Refused(StatusCode),
    /// The client has closed the connection, or its sending direction.
    Gone,
}

impl Incoming {
    pub(super) fn new(decoder: BodyDecoder, writer: BodyWriter, limits: SlowestPace) -> Self {
        Self { decoder, writer, limits, pace: Pace::new(limits.pause), left: None, timer: None }
    }

    /// From now on the client may pause for at most this time, and send as slowly as it likes: the
    /// caller limits the time in all.
    pub(super) fn limit_pauses(&mut self, pause: Duration) {
        self.limits = SlowestPace { pause: self.limits.pause.min(pause), rate: 0 };
        self.pace = Pace::new(self.pace.left().min(pause));
        self.timer = None;
    }

    /// Tells the upstream about the end.
    pub(super) fn finish(mut self, ended: BodyEnd) {
        match ended {
            BodyEnd::Complete => self.writer.end(self.decoder.take_request_trailers()),
            BodyEnd::Refused(status) => self.writer.fail(status),
            BodyEnd::Gone => self.writer.fail(StatusCode::BAD_REQUEST),
        }
    }

    /// Moves the bytes that have come, as far as there is room; ready at the end of the body.
    pub(super) fn poll(
        &mut self,
        transport: &mut impl Transport,
        buffer: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Poll<BodyEnd> {
        for _ in 0..MOST_AT_ONCE {
            if self.writer.poll_room(cx).is_pending() {
                // The server waits for the application.
                self.left.get_or_insert_with(|| self.pace.left());
                self.timer = None;
                return Poll::Pending;
            }
            if let Some(left) = self.left.take() {
                self.pace = Pace::new(left);
            }
            match self.decoder.decode(buffer) {
                Ok(Decoded::Data(data)) => self.writer.push(data),
                Ok(Decoded::End) => return Poll::Ready(BodyEnd::Complete),
                Ok(Decoded::NeedMore) => match read(transport, buffer, cx) {
                    Poll::Ready(0) => return Poll::Ready(BodyEnd::Gone),
                    Poll::Ready(read) => {
                        self.pace.note(read as u64, self.limits);
                    }
                    Poll::Pending => {
                        let deadline = self.pace.deadline();
                        let timer =
                            self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
                        ready!(timer.as_mut().poll(cx));
                        Limit::BodyTimeout.reached();
                        return Poll::Ready(BodyEnd::Refused(StatusCode::REQUEST_TIMEOUT));
                    }
                },
                Err(error) => return Poll::Ready(BodyEnd::Refused(error.status())),
            }
            self.timer = None;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Reads more bytes. Returns their number; 0 if the client has closed its end.
fn read(
    transport: &mut impl Transport,
    buffer: &mut BytesMut,
    cx: &mut Context<'_>,
) -> Poll<usize> {
    if ready!(transport.poll_readable(cx)).is_err() {
        return Poll::Ready(0);
    }
    buffer.reserve(READ);
    transport.poll_read(cx, buffer).map(|read| read.unwrap_or(0))
}
