//! A request body that is passed on while the response is made.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use http::StatusCode;
use sendoff_http1::{BodyDecoder, Decoded};
use tokio::time::{Sleep, sleep};

use crate::request::BodyWriter;
use crate::transport::Transport;

/// The size of one read, in bytes.
const READ: usize = 16 * 1024;

/// Pieces that are moved in one go; then other connections have their turn.
const MOST_AT_ONCE: usize = 16;

/// The rest of a request body.
pub(super) struct Incoming {
    decoder: BodyDecoder,
    writer: BodyWriter,
    /// Runs while the client is waited for.
    timer: Option<Pin<Box<Sleep>>>,
}

/// How a body has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// It is complete, and the buffer begins with what follows it.
    Complete,
    /// It is too large or wrong, or the client has sent nothing for too long.
    Refused(StatusCode),
    /// The client has closed the connection, or its sending direction.
    Gone,
}

impl Incoming {
    pub(super) fn new(decoder: BodyDecoder, writer: BodyWriter) -> Self {
        Self { decoder, writer, timer: None }
    }

    /// The upstream is told.
    pub(super) fn finish(self, ended: Ended) {
        match ended {
            Ended::Complete => self.writer.end(),
            Ended::Refused(status) => self.writer.fail(status),
            Ended::Gone => self.writer.fail(StatusCode::BAD_REQUEST),
        }
    }

    /// Moves what has come, as far as there is room; ready at the end of the body. The client may send nothing for `limit`.
    pub(super) fn poll(
        &mut self,
        transport: &mut impl Transport,
        buffer: &mut BytesMut,
        limit: Duration,
        cx: &mut Context<'_>,
    ) -> Poll<Ended> {
        for _ in 0..MOST_AT_ONCE {
            if self.writer.poll_room(cx).is_pending() {
                // It is the application that takes its time.
                self.timer = None;
                return Poll::Pending;
            }
            match self.decoder.decode(buffer) {
                Ok(Decoded::Data(data)) => self.writer.push(data),
                Ok(Decoded::End) => return Poll::Ready(Ended::Complete),
                Ok(Decoded::NeedMore) => match read(transport, buffer, cx) {
                    Poll::Ready(true) => {}
                    Poll::Ready(false) => return Poll::Ready(Ended::Gone),
                    Poll::Pending => {
                        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
                        ready!(timer.as_mut().poll(cx));
                        return Poll::Ready(Ended::Refused(StatusCode::REQUEST_TIMEOUT));
                    }
                },
                Err(error) => return Poll::Ready(Ended::Refused(error.status())),
            }
            self.timer = None;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Reads more; false: the client has closed its end.
fn read(transport: &mut impl Transport, buffer: &mut BytesMut, cx: &mut Context<'_>) -> Poll<bool> {
    if ready!(transport.poll_readable(cx)).is_err() {
        return Poll::Ready(false);
    }
    buffer.reserve(READ);
    Poll::Ready(matches!(ready!(transport.poll_read(cx, buffer)), Ok(1..)))
}
