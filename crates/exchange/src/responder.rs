//! What a handler answers to, independent of the client's protocol.
//!
//! ```text
//!  handler ── interim(ResponseHead)* ── begin(ResponseHead) ── push(Segment)* ── end() ──▶ Responder ── framing, send queue ──▶ Transport
//! ```
//!
//! A responder is one response: an HTTP/1 exchange, or the table of `sendoff explain`; one HTTP/2 stream will be another. Handlers
//! know nothing of framing, keep-alive or sockets; protocols know nothing of handlers.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::BorrowedFd;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use http::StatusCode;
use sendoff_config::Party;
use sendoff_delivery::segment::Segment;
use sendoff_delivery::{Progress, SendQueue};
use sendoff_fastcgi::direct::Sent;
use sendoff_message::Cut;
use sendoff_message::response::ResponseEnd;
use sendoff_message::response::{Framing, ResponseHead};
use sendoff_report::explain::Report;
use sendoff_report::log_line::Notes;
use sendoff_transport::pipe::Pipe;

/// Whether more of a response may be queued, and where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// More is kept in memory.
    Memory,
    /// More goes to a spool file: the client is slower than the application.
    Spool,
    /// The spool is full, too: the application waits until the client has taken something.
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

/// Whether a pushed segment fits into the announced length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// It was queued completely.
    Whole,
    /// Its end exceeds the announced length and was dropped.
    Cut,
}

impl Fit {
    /// Accounts for a segment of a body that is framed so, and leaves of it what belongs to the body: nothing where the response has
    /// none.
    pub fn of(segment: &mut Segment, framing: &mut Framing) -> Self {
        let len = segment.len();
        let fits = framing.take(len);
        if fits < len {
            segment.truncate(fits);
        }
        if fits == len || *framing == Framing::NoBody { Self::Whole } else { Self::Cut }
    }
}

/// The methods of a responder around `self.client` that are not about the response on its way through it.
#[macro_export]
macro_rules! passed_on {
    () => {
        fn ends_so(&mut self, ending: sendoff_message::response::ResponseEnd) {
            self.client.ends_so(ending);
        }

        fn poll_gone(&mut self, cx: &mut ::std::task::Context<'_>) -> ::std::task::Poll<()> {
            self.client.poll_gone(cx)
        }

        fn note_slow(&mut self) {
            self.client.note_slow();
        }

        fn close_after(&mut self) {
            self.client.close_after();
        }

        fn notes(&mut self) -> &mut sendoff_report::log_line::Notes {
            self.client.notes()
        }

        fn report(&mut self) -> Option<&mut sendoff_report::explain::Report> {
            self.client.report()
        }
    };
}

/// One response to one client. If a method fails with a [`Cut`], the client gets no more of the response: the handler returns
/// the cut, and the protocol ends the connection in a way that the client cannot take for the end of the response.
pub trait Responder {
    /// Queues the head of an interim response (RFC 9110 §15.2): a status 1xx other than 101, no body. Called before
    /// [`begin`](Self::begin), any number of times; dropped if the client's version knows no interim responses.
    fn interim(&mut self, head: ResponseHead) -> Result<(), Cut>;

    /// Queues the response head. Called once, before [`push`](Self::push).
    fn begin(&mut self, head: ResponseHead) -> Result<(), Cut>;

    /// Queues a piece of the body. Where the response has no body (HEAD, 304), the piece is dropped.
    fn push(&mut self, segment: Segment) -> Result<Fit, Cut>;

    /// Notes how the application has ended the body, before [`end`](Self::end). A client learns nothing of it.
    fn ends_so(&mut self, ending: ResponseEnd);

    /// Queues the end of the body. Returns the number of missing bytes of the announced length; if it is not 0, the
    /// response cannot be completed.
    fn end(&mut self) -> Result<u64, Cut>;

    /// Whether more may be queued.
    fn room(&self) -> Room;

    /// Sends as much as the client takes without waiting.
    fn send_now(&mut self) -> Result<Progress, Cut>;

    /// Ready when the client takes more after [`Progress::Blocked`]. Fails if the client has taken nothing for the send timeout.
    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>>;

    /// Ready when the client has gone: it has closed the connection, or its sending direction (nginx, too, takes that for the
    /// end).
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// The status that [`begin`](Self::begin) was called with.
    fn status(&self) -> Option<StatusCode>;

    /// Body bytes pushed so far as bytes, without those of files.
    fn generated(&self) -> u64;

    /// Notes that the application had to wait for the client.
    fn note_slow(&mut self);

    /// Whether the client took the response as fast as the application made it.
    fn kept_up(&self) -> bool;

    /// Closes the connection after this response, for example because another process may still write to its socket.
    fn close_after(&mut self);

    /// The client's socket, to be lent to the application; `None` if the protocol or the transport does not allow it.
    fn lender(&mut self) -> Option<&mut dyn Lender>;

    /// The client's connection, to be used for another protocol; `None` if the client's protocol knows no such change.
    fn tunnel(&mut self) -> Option<&mut dyn Tunnel>;

    /// What the access log will say about the request.
    fn notes(&mut self) -> &mut Notes;

    /// The report that collects remarks, if the response is explained.
    fn report(&mut self) -> Option<&mut Report>;
}

/// A client's connection that is used for another protocol (RFC 9110 §7.8).
pub trait Tunnel {
    /// Queues the head of the response, whose status is 101. Called once and first, in place of [`Responder::begin`].
    fn begin(&mut self, head: ResponseHead) -> Result<(), Cut>;

    /// Reads what the client sends; 0 at its end. `buffer` gets its room only when there is something.
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut BytesMut)
    -> Poll<io::Result<usize>>;

    /// Sends some of the bytes, behind the head. They may wait for [`poll_flush`](Self::poll_flush).
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Whether bytes may pass between the connection and a pipe: nothing encrypts them, and none were read before.
    fn is_clear(&self) -> bool;

    /// Moves what the client sends into an empty pipe; `Unsupported` where only a read can tell what that is. Only if the connection
    /// [is clear](Self::is_clear).
    fn poll_fill(&mut self, cx: &mut Context<'_>, pipe: &mut Pipe) -> Poll<io::Result<usize>>;

    /// Sends bytes that are in a pipe, behind the head. Only if the connection [is clear](Self::is_clear).
    fn poll_drain(&mut self, cx: &mut Context<'_>, pipe: &mut Pipe) -> Poll<io::Result<usize>>;

    /// Ready when nothing that was written waits here.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ends the sending direction.
    fn finish(&mut self);
}

/// What a process must know to which the client's socket is lent (`docs/handover.md` §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The client speaks HTTP/1.0, so chunked coding is not allowed.
    pub http_10: bool,
    /// The client may send another request afterwards.
    pub keep_alive: bool,
}

/// A client's socket that may be lent to the process which makes the response.
pub trait Lender {
    /// True if nothing is owed to the client, the client took its previous response as fast as it was made, and the borrower may keep the
    /// socket: the connection ends with the response, or all requests on it go to this `party`.
    fn may_lend(&self, party: Option<&Party>) -> bool;

    /// Lends the socket to that party; `None` if that is impossible. From here until [`resume`](Self::resume) or [`Responder::begin`] only the
    /// borrower writes to it.
    fn lend(&mut self, party: Option<&Rc<Party>>) -> Option<Terms>;

    /// The socket itself while it is lent, for this process.
    fn socket(&mut self, borrower: &dyn fmt::Display) -> Option<BorrowedFd<'_>>;

    /// Whether no borrower has written to the client.
    fn is_untouched(&self) -> bool;

    /// Takes the socket back and continues the borrower's response: segments that are pushed next follow its bytes.
    ///
    /// # Errors
    /// What the borrower says contradicts the kernel's count of written bytes.
    fn resume(&mut self, status: StatusCode, sent: &Sent) -> io::Result<()>;
}

/// Sends everything that is queued.
pub async fn flush(responder: &mut dyn Responder) -> Result<(), Cut> {
    loop {
        match responder.send_now()? {
            Progress::Done => return Ok(()),
            Progress::Blocked => poll_fn(|cx| responder.poll_writable(cx)).await?,
            Progress::Yield => tokio::task::yield_now().await,
        }
    }
}

/// Answers with a head and a body that is known completely, and sends everything.
pub async fn respond(
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

/// Waits for `what`, or until the client has gone.
///
/// # Errors
/// The client has gone.
pub async fn unless_gone<T>(
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
