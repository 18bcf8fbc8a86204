//! The end of a connection, or of a request that no handler answers: error pages, and the bytes that
//! are read and dropped so that the client sees the response.

use std::future::poll_fn;
use std::task::Poll;

use sendoff_exchange::lifecycle::Stage;
use sendoff_exchange::service::Service;
use sendoff_message::request::{Request, named};
use sendoff_transport::Transport;
use tokio::task::yield_now;
use tokio::time::{Duration, Instant, timeout, timeout_at};

use super::connection::{AfterRequest, Connection, ConnectionEnd};
use super::exchange::RequestFacts;
use super::incoming::{BodyEnd, Incoming};
use super::reading::{READ, TURN};

/// Time for reading and dropping bytes behind a response, as nginx' `lingering_time`. Unread bytes
/// would make the kernel reset the connection, and the client might not see the response.
const LINGER: Duration = Duration::from_secs(30);

/// The longest time without such bytes (nginx' `lingering_timeout`).
const LINGER_PAUSE: Duration = Duration::from_secs(5);

impl<T: Transport> Connection<T> {
    /// Reads and drops the rest of a body behind the response. Returns true if another request may
    /// follow: the body is complete.
    pub(super) async fn drop_rest(&mut self, mut rest: Incoming) -> bool {
        rest.limit_pauses(LINGER_PAUSE);
        let Self { transport, buffer, lifecycle, .. } = self;
        let dropped = poll_fn(|cx| rest.poll(transport, buffer, cx));
        tokio::select! {
            biased;
            ended = timeout(LINGER, dropped) => ended == Ok(BodyEnd::Complete),
            () = lifecycle.reached(Stage::Draining) => false,
        }
    }

    /// Ends the connection, after an error page if the request was refused.
    pub(super) async fn end_early<S: Service>(
        &mut self,
        service: &S,
        end: ConnectionEnd,
        mut asked: RequestFacts,
        request: Option<&Request>,
    ) -> AfterRequest<S> {
        let (status, why) = match end {
            ConnectionEnd::Quiet => return AfterRequest::Close,
            ConnectionEnd::Http2 => return AfterRequest::Http2,
            ConnectionEnd::Io(error) => {
                let line = named(&asked.line, request);
                tracing::info!(request = line, %error, "the client left amid its request");
                // Writes the line in the access log.
                drop(self.exchange(service, asked, request));
                return AfterRequest::Close;
            }
            ConnectionEnd::Refused { status, why } => (status, why),
        };
        let client = request.map_or(&self.origin.peer, |request| &request.peer);
        let line = named(&asked.line, request);
        tracing::info!(%client, request = line, %status, "request refused: {why}");
        asked.keep_alive = false;
        let mut exchange = self.exchange(service, asked, request);
        let answered = service.refuse(status, &mut exchange).await;
        drop(exchange);
        if answered.is_ok() {
            self.linger().await;
        }
        AfterRequest::Close
    }

    /// Closes after a complete response. Reads bytes behind the request first: unread bytes would
    /// make the kernel reset the connection and discard response bytes that the client has not
    /// received yet.
    pub(super) async fn close(&mut self) {
        let readable = poll_fn(|cx| Poll::Ready(self.transport.poll_readable(cx).is_ready()));
        if !self.buffer.is_empty() || readable.await {
            self.linger().await;
        }
    }

    pub(super) async fn linger(&mut self) {
        self.transport.finish();
        let end = Instant::now() + LINGER;
        let mut turn = 0;
        loop {
            self.buffer.clear();
            self.buffer.reserve(READ);
            let deadline = end.min(Instant::now() + LINGER_PAUSE);
            // All bytes have been sent, so a timeout is as good as the end.
            let Ok(Ok(read @ 1..)) = timeout_at(deadline, self.read()).await else { return };
            turn += read;
            if turn >= TURN {
                turn = 0;
                yield_now().await;
            }
        }
    }
}
