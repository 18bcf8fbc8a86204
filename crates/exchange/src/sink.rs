//! A response on its way from a handler to the client.
//!
//! ```text
//!  handler ── interim()* ─ begin() ─ push()* ─ trailers()? ─ end() ──▶ filter ─▶ … ─▶ HTTP ─▶ Transport
//! ```
//!
//! A sink is one response: an HTTP/1 exchange, an HTTP/2 stream, the table of `sendoff explain`, or
//! a filter in front of one of these. Handlers know nothing of framing, keep-alive or sockets;
//! protocols know nothing of handlers.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};

use sendoff_delivery::segment::Segment;
use sendoff_delivery::{Progress, SendQueue};
use sendoff_message::Cut;
use sendoff_message::response::{Framing, ResponseEnd, ResponseHead, Trailers};

use crate::client::{Client, NoClient};

/// The place for further bytes of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Further bytes are kept in memory.
    Memory,
    /// Further bytes go to a spool file: the client is slower than the application.
    Spool,
    /// The spool is full as well: the application waits until the client has taken bytes.
    None,
}

impl Room {
    /// The room that a send queue has.
    pub fn of(queue: &SendQueue) -> Self {
        if !queue.is_long() {
            Self::Memory
        } else if queue.has_room() {
            Self::Spool
        } else {
            Self::None
        }
    }
}

/// The result of pushing a segment into a body of announced length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// It was queued completely.
    Whole,
    /// Its end exceeds the announced length and was dropped.
    Cut,
}

impl Fit {
    /// Counts a segment against the framing of its body, and truncates the segment to the bytes
    /// that belong to the body. A response without a body takes none, which counts as
    /// [`Whole`](Self::Whole).
    pub fn of(segment: &mut Segment, framing: &mut Framing) -> Self {
        let len = segment.len();
        let fits = framing.take(len);
        if fits < len {
            segment.truncate(fits);
        }
        if fits == len || *framing == Framing::NoBody { Self::Whole } else { Self::Cut }
    }
}

/// One response to one client. If a method fails with a [`Cut`], the client gets no more of the
/// response: the handler returns the cut, and the protocol ends the connection in a way that the
/// client cannot mistake for the end of the response.
pub trait Sink {
    /// Queues the head of an interim response (RFC 9110 §15.2): a status 1xx other than 101, no
    /// body. Called before [`begin`](Self::begin), any number of times. Dropped if the client's
    /// version has no interim responses.
    fn interim(&mut self, head: ResponseHead) -> Result<(), Cut>;

    /// Queues the response head. Called once, before [`push`](Self::push).
    fn begin(&mut self, head: ResponseHead) -> Result<(), Cut>;

    /// Queues a piece of the body. If the response has no body (HEAD, 304), the piece is dropped.
    fn push(&mut self, segment: Segment) -> Result<Fit, Cut>;

    /// Takes the fields behind the body, which leave with its end. Called at most once, directly
    /// before [`end`](Self::end). Dropped if the client's protocol, or the framing of the response,
    /// has no room for them.
    fn trailers(&mut self, trailers: Trailers) -> Result<(), Cut>;

    /// Queues the end of the body; `ending` is the end that the body's producer reported. Returns
    /// the number of missing bytes of the announced length; if it is not 0, the response cannot be
    /// completed.
    fn end(&mut self, ending: ResponseEnd) -> Result<u64, Cut>;

    /// The place to which the next piece would go.
    fn room(&self) -> Room;

    /// Sends as much as the client takes without waiting.
    fn send_now(&mut self) -> Result<Progress, Cut>;

    /// Ready when the client takes more after [`Progress::Blocked`]. Fails if the client has taken
    /// no byte for the send timeout.
    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>>;

    /// The client at the end of all filters.
    fn client(&mut self) -> &mut dyn Client;
}

/// A [`Sink`] that keeps or drops its response within this process: it takes everything at once, and
/// drops interim responses and trailers.
pub trait Collector {
    /// As [`Sink::begin`].
    fn begin(&mut self, head: ResponseHead);

    /// As [`Sink::push`].
    fn push(&mut self, segment: Segment) -> Result<Fit, Cut>;

    /// As [`Sink::end`].
    fn end(&mut self) -> u64;

    /// As [`Sink::client`].
    fn client(&mut self) -> &mut dyn Client;
}

impl<C: Collector> Sink for C {
    fn interim(&mut self, _head: ResponseHead) -> Result<(), Cut> {
        Ok(())
    }

    fn begin(&mut self, head: ResponseHead) -> Result<(), Cut> {
        Collector::begin(self, head);
        Ok(())
    }

    fn push(&mut self, segment: Segment) -> Result<Fit, Cut> {
        Collector::push(self, segment)
    }

    fn trailers(&mut self, _trailers: Trailers) -> Result<(), Cut> {
        Ok(())
    }

    fn end(&mut self, _ending: ResponseEnd) -> Result<u64, Cut> {
        Ok(Collector::end(self))
    }

    fn room(&self) -> Room {
        Room::Memory
    }

    fn send_now(&mut self) -> Result<Progress, Cut> {
        Ok(Progress::Done)
    }

    fn poll_writable(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        Poll::Ready(Ok(()))
    }

    fn client(&mut self) -> &mut dyn Client {
        Collector::client(self)
    }
}

/// Discards a response that only a filter in front of it needs, such as a page that is fetched for
/// the cache.
#[derive(Debug, Default)]
pub struct Discard {
    client: NoClient,
}

impl Collector for Discard {
    fn begin(&mut self, _head: ResponseHead) {}

    fn push(&mut self, _segment: Segment) -> Result<Fit, Cut> {
        Ok(Fit::Whole)
    }

    fn end(&mut self) -> u64 {
        0
    }

    fn client(&mut self) -> &mut dyn Client {
        &mut self.client
    }
}

/// Sends all queued bytes.
pub async fn flush(sink: &mut dyn Sink) -> Result<(), Cut> {
    loop {
        match sink.send_now()? {
            Progress::Done => return Ok(()),
            Progress::Blocked => poll_fn(|cx| sink.poll_writable(cx)).await?,
            Progress::Yield => tokio::task::yield_now().await,
        }
    }
}

/// Answers with a head and a complete body, and sends both.
pub async fn respond(
    sink: &mut dyn Sink,
    head: ResponseHead,
    body: impl IntoIterator<Item = Segment>,
) -> Result<(), Cut> {
    sink.begin(head)?;
    for segment in body {
        sink.push(segment)?;
    }
    sink.end(ResponseEnd::Complete)?;
    flush(sink).await
}

/// Waits for `what`, or until the client has gone.
///
/// # Errors
/// The client has gone.
pub async fn unless_gone<T>(sink: &mut dyn Sink, what: impl Future<Output = T>) -> Result<T, Cut> {
    let mut what = pin!(what);
    poll_fn(|cx| {
        if let Poll::Ready(output) = what.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        sink.client().poll_gone(cx).map(|()| Err(Cut::client_gone()))
    })
    .await
}
