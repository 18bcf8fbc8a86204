//! The client's socket in a worker's hands, and back (`docs/handover.md` §4).

use std::io;
use std::os::fd::AsFd;

use http::Version;
use rustix::net::Shutdown;
use sendoff_fastcgi::direct::{Rest, Sent};
use sendoff_sys::tcp;
use tokio::net::TcpStream;

use super::client::Client;
use crate::response::Framing;
use crate::segment::Segment;

/// What is known of a socket that workers are lent.
#[derive(Debug, Default)]
pub(super) struct Lent {
    /// A worker has had it, and what the worker has left behind may still have it.
    ever: bool,
    /// Bytes to come that carry their framing already.
    framed: u64,
    /// With the last of them a chunk ends.
    open: bool,
    /// The client did not take the last response as fast as it came.
    slow: bool,
}

impl Lent {
    /// A response of the front begins.
    pub(super) fn begin(&mut self) {
        (self.framed, self.open, self.slow) = (0, false, false);
    }

    pub(super) fn framed(&self) -> u64 {
        self.framed
    }
}

impl Client {
    /// Notes that the client is slower than the application.
    pub(crate) fn is_slow(&mut self) {
        self.lent.slow = true;
    }

    /// The socket, for a worker to write to, if nothing is owed to the client and it takes what it is sent.
    pub(crate) fn lend(&mut self, version: Version) -> bool {
        let may = self.queue().is_empty() && !self.lent.slow;
        if may {
            self.lent.ever = true;
            // If the worker dies nobody knows how it has framed what it wrote.
            self.frames(if version == Version::HTTP_10 {
                Framing::Close
            } else {
                Framing::Chunked
            });
        }
        may
    }

    /// Whether nobody else has written to the client.
    pub(crate) fn is_untouched(&self) -> bool {
        !self.lent.ever || tcp::written(self.stream.as_fd()).is_ok_and(|n| n == self.queue().sent())
    }

    /// Goes on where a worker has stopped. What follows are pieces of the body as ever, except for `sent.framed` bytes.
    ///
    /// # Errors
    /// What the worker says is not true: the kernel knows what the socket was given.
    pub(crate) fn resume(&mut self, sent: &Sent) -> io::Result<()> {
        let lie = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        let before = self.queue().sent();
        let written = tcp::written(self.stream.as_fd())?;
        if before.checked_add(sent.wire) != Some(written) {
            return lie(format!(
                "it says that it wrote {} bytes to the client, it was {}",
                sent.wire,
                written.saturating_sub(before)
            ));
        }
        if sent.wire.saturating_add(sent.framed) < u64::from(sent.head) {
            return lie("the head of its response is not whole".to_owned());
        }
        let framing = match sent.rest {
            Rest::Length(left) => Framing::Length(left),
            Rest::Chunked { .. } => Framing::Chunked,
            Rest::Close => Framing::Close,
        };
        self.lent.framed = sent.framed;
        self.lent.open = sent.rest == Rest::Chunked { open: true };
        self.lent.slow = sent.framed > 0;
        self.frames(framing);
        self.was_sent(sent.wire, u64::from(sent.head));
        Ok(())
    }

    /// Queues what of a segment is framed already; returns the rest.
    pub(super) fn push_framed_already(&mut self, segment: Segment) -> io::Result<Option<Segment>> {
        if self.lent.framed == 0 {
            return Ok(Some(segment));
        }
        let Segment::Bytes(mut bytes) = segment else {
            let why = "a file in the middle of what a worker has framed";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        };
        let now = usize::try_from(self.lent.framed).map_or(bytes.len(), |n| n.min(bytes.len()));
        self.lent.framed -= now as u64;
        self.push_raw(bytes.split_to(now))?;
        if self.lent.framed == 0
            && std::mem::take(&mut self.lent.open)
            && let Some(end) = Framing::Chunked.after_piece()
        {
            self.push_raw(end)?;
        }
        Ok((!bytes.is_empty()).then_some(Segment::Bytes(bytes)))
    }

    /// Ends the connection in a way that no client can take for the end of a response, whoever else has the socket: without
    /// a reset now it would come when the last of them closes it.
    pub(super) fn reset(&self) {
        let reset = if self.lent.ever {
            rustix::net::connect_unspec(&self.stream).map_err(io::Error::from)
        } else {
            self.stream.set_zero_linger()
        };
        // It fails on a connection that is gone.
        drop(reset);
    }
}

/// What [`Client`] closes its socket with. If a child that a script has left behind still has it, that does not end the
/// connection.
pub(super) fn hang_up(stream: &TcpStream, lent: &Lent) {
    if lent.ever {
        // It fails on a connection that is gone.
        let _gone = rustix::net::shutdown(stream, Shutdown::Both);
    }
}
