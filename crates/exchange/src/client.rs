//! The client of a response, as handlers see it: its presence, its socket for lending, and the notes
//! about its request.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Context, Poll};

use http::StatusCode;
use sendoff_config::Party;
use sendoff_fastcgi::direct::Sent;
use sendoff_report::explain::Report;
use sendoff_report::log_line::Notes;

/// The client of one response. It is implemented by protocols, by stand-ins for a client
/// ([`NoClient`], `sendoff explain`), and by the recorder of the page cache, which goes on after its
/// client has left. Other filters pass the client of the next sink on.
pub trait Client {
    /// Ready when the client has gone: it has closed the connection or its sending direction, which
    /// nginx takes for the end as well.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// The notes about the request for the access log.
    fn notes(&mut self) -> &mut Notes;

    /// The report that collects remarks, if the response is explained.
    fn report(&mut self) -> Option<&mut Report> {
        None
    }

    /// Notes that the application had to wait for the client.
    fn note_slow(&mut self) {}

    /// True if the client took the response as fast as the application made it.
    fn kept_up(&mut self) -> bool {
        false
    }

    /// Closes the connection after this response, for example because another process may still
    /// write to its socket.
    fn close_after(&mut self) {}

    /// Forbids lending the socket for this response, because a filter changes it and a borrower
    /// would bypass the filter.
    fn withhold_socket(&mut self) {}

    /// The client's socket, to be lent to the application; `None` if the protocol does not allow
    /// it.
    fn lender(&mut self) -> Option<&mut dyn Lender> {
        None
    }

    /// True if the connection may go on in another protocol after this response
    /// ([`Switch`](crate::tunnel::Switch)).
    fn may_switch(&mut self) -> bool {
        false
    }
}

/// The stand-in for a client that does not exist: a page is fetched for the cache, or a subrequest
/// is made.
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

/// Facts for the process to which the client's socket is lent (`docs/handover.md` §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The client speaks HTTP/1.0, so chunked coding is not allowed.
    pub http_10: bool,
    /// The client may send another request afterwards.
    pub keep_alive: bool,
}

/// A client's socket that may be lent to the process that makes the response.
pub trait Lender {
    /// True if no byte is owed to the client, the client took its previous response as fast as it
    /// was made, and the borrower may keep the socket: the connection ends with the response, or
    /// all requests on it go to this `party`.
    fn may_lend(&self, party: Option<&Party>) -> bool;

    /// Lends the socket to that party; `None` if that is impossible. Until [`resume`](Self::resume)
    /// or [`Sink::begin`](crate::sink::Sink::begin), only the borrower writes to it.
    fn lend(&mut self, party: Option<&Rc<Party>>) -> Option<Terms>;

    /// The socket itself while it is lent, for this process.
    fn socket(&mut self, borrower: &dyn fmt::Display) -> Option<BorrowedFd<'_>>;

    /// True if no borrower has written to the client.
    fn is_untouched(&self) -> bool;

    /// Takes the socket back and continues the borrower's response: segments that are pushed next
    /// follow the borrower's bytes.
    ///
    /// # Errors
    /// The borrower's report contradicts the kernel's count of written bytes.
    fn resume(&mut self, status: StatusCode, sent: &Sent) -> io::Result<()>;
}
