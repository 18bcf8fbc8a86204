//! Connections that go on in another protocol, such as WebSocket (RFC 9110 §7.8): a tunnel outlives
//! the request that has opened it, and holds nothing of it but the parts that the access log needs.

use std::fmt;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use http::StatusCode;
use sendoff_message::Cut;
use sendoff_message::request::{Request, named};
use sendoff_message::response::ResponseHead;
use sendoff_report::log_line::{BodyBytes, LogLine, Notes};
use sendoff_transport::pipe::Pipe;
use tokio::time::Instant;

use crate::service::Service;

/// A change of protocol, to which the application has agreed.
pub struct Switch {
    /// The head of the response, whose status is 101.
    pub head: ResponseHead,
    /// The bytes from and to the application. The protocol of the client polls it once it has
    /// queued the head.
    pub tunnel: Box<dyn Tunnel>,
}

/// A tunnel between a client and an application. Dropping it closes the application's connection.
pub trait Tunnel {
    /// Moves bytes in both directions. Ready when both ends have finished, or one of the
    /// connections is broken.
    ///
    /// # Errors
    /// No byte has moved for too long.
    fn poll(&mut self, cx: &mut Context<'_>, client: &mut dyn TunnelEnd) -> Poll<Result<(), Cut>>;
}

/// One end of a tunnel: the connection of the client or of the application.
pub trait TunnelEnd {
    /// Reads received bytes; 0 at the end of the peer's direction. `buffer` gets its room only when
    /// there are bytes.
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut BytesMut)
    -> Poll<io::Result<usize>>;

    /// Sends some of the bytes; to a client after the head of the response. They may be buffered
    /// until [`poll_flush`](Self::poll_flush).
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// True if bytes may move between the connection and a pipe, because nothing encrypts or frames
    /// them and none are buffered.
    fn is_clear(&self) -> bool;

    /// Moves received bytes into an empty pipe. Only for a connection that [is
    /// clear](Self::is_clear). Fails with `Unsupported` if only a read can tell what was received.
    fn poll_fill(&mut self, cx: &mut Context<'_>, pipe: &mut Pipe) -> Poll<io::Result<usize>>;

    /// Sends the bytes in a pipe, as [`poll_write`](Self::poll_write) does. Only for a connection that [is
    /// clear](Self::is_clear).
    fn poll_drain(&mut self, cx: &mut Context<'_>, pipe: &mut Pipe) -> Poll<io::Result<usize>>;

    /// Ready when no written bytes are buffered here.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Closes the sending direction.
    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// The line in the access log about a tunnel, from its begin on. Dropping it writes the line.
pub struct TunnelLine<S: Service> {
    service: Rc<S>,
    request: Request,
    request_line: Box<str>,
    began: Instant,
    status: StatusCode,
    notes: Notes,
    /// Bytes sent to the client after the head.
    pub sent: u64,
    /// The same, by the way in which they came; not every protocol of clients counts them.
    pub body: BodyBytes,
}

impl<S: Service> TunnelLine<S> {
    /// The line about the request that opens the tunnel; `began`: the time at which its head began
    /// to be read.
    pub fn new(
        service: &Rc<S>,
        request: &Request,
        request_line: &dyn fmt::Display,
        began: Instant,
        status: StatusCode,
        notes: Notes,
    ) -> Self {
        Self {
            service: Rc::clone(service),
            request: service.for_log(request, &notes),
            request_line: request_line.to_string().into(),
            began,
            status,
            notes,
            sent: 0,
            body: BodyBytes::default(),
        }
    }

    /// Logs the reason why the tunnel was cut.
    pub fn note_cut(&self, cut: &Cut) {
        cut.log(&named(&self.request_line, Some(&self.request)));
    }
}

impl<S: Service> Drop for TunnelLine<S> {
    fn drop(&mut self) {
        self.service.log(&LogLine {
            client: &self.request.peer,
            request: Some(&self.request),
            request_line: &self.request_line,
            began: self.began,
            status: self.status.as_u16(),
            sent: self.sent,
            body: self.body,
            is_whole: true,
            notes: &self.notes,
        });
    }
}
