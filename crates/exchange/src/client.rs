//! The client of a response, as handlers see it: whether it is still there, what may be lent to it or taken over from it, and what
//! is noted about its request.

use std::io;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};

use bytes::BytesMut;
use http::StatusCode;
use sendoff_fastcgi::direct::Sent;
use sendoff_message::Cut;
use sendoff_message::response::ResponseHead;
use sendoff_report::explain::Report;
use sendoff_report::log_line::Notes;
use sendoff_transport::pipe::Pipe;

/// The client of one response. Only a protocol implements it, and what takes a client's place ([`NoClient`], `sendoff explain`);
/// filters do not.
pub trait Client {
    /// Ready when the client has gone: it has closed the connection, or its sending direction (nginx, too, takes that for the
    /// end).
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// What the access log will say about the request.
    fn notes(&mut self) -> &mut Notes;

    /// The report that collects remarks, if the response is explained.
    fn report(&mut self) -> Option<&mut Report> {
        None
    }

    /// Notes that the application had to wait for the client.
    fn note_slow(&mut self) {}

    /// True if the client took the response as fast as the application made it.
    fn kept_up(&self) -> bool {
        false
    }

    /// Closes the connection after this response, for example because another process may still write to its socket.
    fn close_after(&mut self) {}

    /// Forbids to lend the socket for this response: a filter changes what a borrower would write past it.
    fn withhold_socket(&mut self) {}

    /// The client's socket, to be lent to the application; `None` if the protocol does not allow it.
    fn lender(&mut self) -> Option<&mut dyn Lender> {
        None
    }

    /// The client's connection, to be used for another protocol; `None` if the client's protocol knows no such change.
    fn tunnel(&mut self) -> Option<&mut dyn Tunnel> {
        None
    }
}

/// In place of a client, for a response that no client waits for: a page that is fetched for the cache, or a subrequest.
#[derive(Debug, Default)]
pub struct NoClient {
    notes: Notes,
}

impl Client for NoClient {
    fn poll_gone(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }
}

/// A client's connection that is used for another protocol (RFC 9110 §7.8).
pub trait Tunnel {
    /// Queues the head of the response, whose status is 101. Called once and first, in place of [`Sink::begin`](crate::sink::Sink::begin).
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
    /// Whether nothing is owed to the client, and the client took its previous response as fast as it was made.
    fn may_lend(&self) -> bool;

    /// Lends the socket; `None` if that is impossible. From here until [`resume`](Self::resume) or [`Sink::begin`](crate::sink::Sink::begin) only the
    /// borrower writes to it.
    fn lend(&mut self) -> Option<Terms>;

    /// The socket itself while it is lent.
    fn socket(&mut self) -> Option<BorrowedFd<'_>>;

    /// Whether no borrower has written to the client.
    fn is_untouched(&self) -> bool;

    /// Takes the socket back and continues the borrower's response: segments that are pushed next follow its bytes.
    ///
    /// # Errors
    /// What the borrower says contradicts the kernel's count of written bytes.
    fn resume(&mut self, status: StatusCode, sent: &Sent) -> io::Result<()>;
}
