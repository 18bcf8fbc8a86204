//! What a handler answers to, whatever protocol the client speaks.
//!
//! ```text
//!  handler ── begin(ResponseHead) ── push(Segment)* ── end() ──▶ Responder ── framing, send queue ──▶ Transport
//! ```
//!
//! A responder is one response: an HTTP/1 exchange, the table of `sendoff explain`, one HTTP/2 stream. Handlers know nothing
//! of framing, keep-alive or sockets; protocols know nothing of handlers.

use std::future::poll_fn;
use std::io;
use std::os::fd::BorrowedFd;
use std::pin::pin;
use std::task::{Context, Poll};

use http::StatusCode;
use sendoff_fastcgi::direct::Sent;

use crate::cut::Cut;
use crate::delivery::Progress;
use crate::observe::explain::Report;
use crate::response::ResponseHead;
use crate::segment::Segment;

/// How much more of a response may be queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// More is kept in memory.
    Memory,
    /// More goes to a spool file: the client is slower than the application.
    Spool,
    /// Nothing more may be queued before the client has taken something.
    None,
}

/// Whether a pushed segment belongs to the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// All of it.
    Whole,
    /// Its end lies beyond the announced length and was dropped.
    Cut,
}

/// One response to one client. A [`Cut`] of any method means that the client gets no more of it: the handler returns it,
/// and the protocol ends the response in a way that the client cannot take for complete.
pub(crate) trait Responder {
    /// Queues the response head. Called once, before [`push`](Self::push).
    fn begin(&mut self, head: ResponseHead) -> Result<(), Cut>;

    /// Queues a piece of the body. Where the response has no body (HEAD, 304), the piece is dropped.
    fn push(&mut self, segment: Segment) -> Result<Fit, Cut>;

    /// Queues the end of the body. Returns how many bytes of the announced length are missing; more than 0 means that the
    /// response cannot be completed.
    fn end(&mut self) -> Result<u64, Cut>;

    /// How much more may be queued.
    fn room(&self) -> Room;

    /// Sends what the client takes now.
    fn send_now(&mut self) -> Result<Progress, Cut>;

    /// Ready when the client takes more after [`Progress::Blocked`]. Fails when it has taken nothing for the send timeout.
    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>>;

    /// Ready when the client has gone: it has closed the connection, or its sending half as nginx understands it.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// The status that [`begin`](Self::begin) was called with.
    fn status(&self) -> Option<StatusCode>;

    /// Body bytes pushed so far that came as bytes, not as files.
    fn generated(&self) -> u64;

    /// Notes that the application had to wait for the client.
    fn note_slow(&mut self);

    /// Whether the client took the response as fast as it was made.
    fn kept_up(&self) -> bool;

    /// No further request on this connection: a process that should not write to it any more still could.
    fn close_after(&mut self);

    /// The client's socket as something to lend to the application; `None` where the protocol or the transport does not allow it.
    fn lender(&mut self) -> Option<&mut dyn Lender>;

    /// Where remarks go if the response is explained.
    fn report(&mut self) -> Option<&mut Report>;
}

/// What a process that is lent the client's socket must know (`docs/handover.md` §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The client speaks HTTP/1.0: it knows no chunked coding.
    pub(crate) http_10: bool,
    /// The client may send another request afterwards.
    pub(crate) keep_alive: bool,
}

/// A client's socket that may be lent to the process which makes the response.
pub(crate) trait Lender {
    /// Whether nothing is owed to the client, and the client took its previous response as fast as it was made.
    fn may_lend(&self) -> bool;

    /// Gets ready for another process to write the response; `None` if that cannot be. Until
    /// [`resume`](Self::resume) or [`Responder::begin`] the socket is the borrower's to write to.
    fn lend(&mut self) -> Option<Terms>;

    /// The socket itself while it is lent.
    fn socket(&mut self) -> Option<BorrowedFd<'_>>;

    /// Whether no other process has written to the client.
    fn is_untouched(&self) -> bool;

    /// Goes on where the borrower has stopped: pieces that are pushed next follow what it has written.
    ///
    /// # Errors
    /// The kernel's count of bytes written contradicts the borrower, whose fault it is.
    fn resume(&mut self, status: StatusCode, sent: &Sent) -> io::Result<()>;
}

/// Sends everything that is queued.
pub(crate) async fn flush(responder: &mut dyn Responder) -> Result<(), Cut> {
    loop {
        match responder.send_now()? {
            Progress::Done => return Ok(()),
            Progress::Blocked => poll_fn(|cx| responder.poll_writable(cx)).await?,
            Progress::Yield => tokio::task::yield_now().await,
        }
    }
}

/// Answers with a head and a body that is known as a whole, and sends everything.
pub(crate) async fn respond(
    responder: &mut dyn Responder,
    head: ResponseHead,
    body: impl IntoIterator<Item = Segment>,
) -> Result<(), Cut> {
    responder.begin(head)?;
    for segment in body {
        responder.push(segment)?;
    }
    responder.end()?;
    flush(responder).await
}

/// Waits for `what`, but no longer than the client does.
///
/// # Errors
/// The client has gone.
pub(crate) async fn unless_gone<T>(
    responder: &mut dyn Responder,
    what: impl Future<Output = T>,
) -> Result<T, Cut> {
    let mut what = pin!(what);
    poll_fn(|cx| {
        if let Poll::Ready(output) = what.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        responder.poll_gone(cx).map(|()| Err(Cut::client_gone()))
    })
    .await
}
