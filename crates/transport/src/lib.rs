//! Bytes to and from one client. A transport knows no protocol: it sends bytes and ranges of files.
//!
//! | transport | file ranges | socket may be lent |
//! |---|---|---|
//! | [`Tcp`] | `sendfile` | yes |
//! | [`Unix`] | `sendfile` | no |
//! | [`tls::Tls`], in user space | read, encrypted, sent | no |
//! | [`KernelTls`] | `sendfile` | yes |
#![forbid(unsafe_code)]

mod copied;
pub mod descriptors;
mod failure;
pub mod foreign;
pub mod handshake;
mod ktls;
pub mod lent;
pub mod pace;
pub mod pipe;
mod tcp;
mod tls;
mod trouble;
mod unix;

use std::fmt;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};

use bytes::BytesMut;
use rustix::net::{SendAncillaryBuffer, SendFlags};

use crate::pipe::Pipe;

pub use failure::HandshakeFailure;
pub use ktls::kernel_has_tls;
pub use ktls::{KernelTls, settle};
pub use tcp::Tcp;
pub use unix::Unix;

/// A client's connection, in both directions.
pub trait Transport {
    /// Reads into the spare capacity of `buffer`; 0 if the client has ended its sending direction.
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut BytesMut)
    -> Poll<io::Result<usize>>;

    /// Ready when something can be read. Takes no buffer, so an idle connection needs none.
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// True if bytes of the client have arrived that have not been read yet.
    fn has_unread(&self) -> bool;

    /// Ready when the connection accepts bytes again after `WouldBlock`.
    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// True if a send may succeed: false from a partial send until the connection is writable
    /// again.
    fn may_take(&self) -> bool;

    /// Sends bytes. `more`: further bytes follow at once, so the last packet may wait for them.
    ///
    /// # Errors
    /// `WouldBlock`: the connection accepts no bytes now.
    fn try_send(&mut self, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize>;

    /// As [`try_send`](Self::try_send), but the bytes may wait in the transport for
    /// [`try_flush`](Self::try_flush), so that several pieces leave in one system call.
    ///
    /// # Errors
    /// `WouldBlock`: the connection accepts no bytes now.
    fn try_take(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.try_send(pieces, false)
    }

    /// Sends a range of a file whose contents do not change while they are in flight. Returns 0 if
    /// the file ends before the range.
    ///
    /// # Errors
    /// `WouldBlock`: the connection accepts no bytes now.
    fn try_send_file(&mut self, file: BorrowedFd<'_>, offset: u64, len: usize)
    -> io::Result<usize>;

    /// Sends the bytes that wait in the transport. Only transports that encrypt keep bytes.
    ///
    /// # Errors
    /// `WouldBlock`: some bytes still wait.
    fn try_flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// True if the bytes on the socket are plain text, so that the kernel can move them from and to
    /// pipes.
    fn is_clear(&self) -> bool {
        false
    }

    /// Moves bytes from the client into an empty pipe. Only if the transport [is
    /// clear](Self::is_clear).
    ///
    /// # Errors
    /// `WouldBlock`: no bytes have come. `Unsupported`: only a read can tell what has come.
    fn try_fill(&mut self, _pipe: &mut Pipe) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sends the bytes of a pipe. Only if the transport [is clear](Self::is_clear).
    ///
    /// # Errors
    /// `WouldBlock`: the connection accepts no bytes now.
    fn try_drain(&mut self, _pipe: &mut Pipe) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Bytes sent since the connection was accepted, by this process and by borrowers.
    fn sent(&self) -> u64;

    /// Bytes that the socket has accepted from this process. The number grows while a slow client
    /// takes the bytes sent before.
    fn taken(&self) -> u64 {
        self.sent()
    }

    /// Bytes that the client's kernel has acknowledged, at least while the connection lasts. The
    /// number grows while a slow client takes the bytes in the socket. A transport without this
    /// count returns [`taken`](Self::taken).
    fn delivered(&self) -> u64 {
        self.taken()
    }

    /// True if the connection should end after its open responses: its keys may not be used for
    /// much longer.
    fn is_worn(&self) -> bool {
        false
    }

    /// Ends the sending direction, so that the client sees the end while the server still reads.
    fn finish(&mut self);

    /// Ends the connection so that the client cannot mistake it for the end of a response, if the
    /// transport has such a way.
    fn reset(&mut self);

    /// Notes that a response will not be completed: a transport that can tell the client the
    /// difference must not end the connection in good order. Bytes that the kernel's TCP has
    /// accepted still reach the client.
    fn cut(&mut self) {}

    /// The socket, for another process to write to; `None` if this transport cannot lend it.
    fn lend(&mut self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Notes the process that the socket is lent to, for the log.
    fn note_borrower(&mut self, _borrower: &dyn fmt::Display) {}

    /// Bytes that borrowers have written since the socket was lent or [resumed](Self::resume): the
    /// smallest and the largest number that the kernel's counters allow. Both are 0 if no borrower
    /// has written.
    fn written_elsewhere(&self) -> io::Result<RangeInclusive<u64>> {
        Ok(0..=0)
    }

    /// Counts bytes that a borrower has written as sent.
    fn resume(&mut self, _written: u64) {}
}

/// Sends bytes on a stream socket, without SIGPIPE and without blocking, no matter how another
/// process that has the socket has set its flags.
fn send(socket: impl AsFd, pieces: &[IoSlice<'_>], flags: SendFlags) -> io::Result<usize> {
    let mut space: [MaybeUninit<u8>; 0] = [];
    let mut control = SendAncillaryBuffer::new(&mut space);
    Ok(rustix::net::sendmsg(
        socket,
        pieces,
        &mut control,
        flags | SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    )?)
}
