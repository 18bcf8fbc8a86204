//! How bytes travel to and from one client. A transport knows no protocol: it takes bytes and ranges of files.
//!
//! | transport | file ranges | socket may be lent |
//! |---|---|---|
//! | [`Tcp`] | `sendfile` | yes |
//! | [`Unix`] | `sendfile` | no |
//! | [`tls::Tls`], in user space | read, encrypted, sent | no |
//! | [`KernelTls`] | `sendfile` | yes |
#![forbid(unsafe_code)]

pub mod descriptors;
mod failure;
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

pub use failure::Failure;
pub use ktls::kernel_has_tls;
pub use ktls::{KernelTls, settle};
pub use tcp::Tcp;
pub use unix::Unix;

/// Bytes in and out of one client's connection.
pub trait Transport {
    /// Reads into the spare capacity of `buffer`; 0 if the client has ended its sending direction.
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut BytesMut)
    -> Poll<io::Result<usize>>;

    /// Ready when something can be read. Takes no buffer, so that an idle connection needs none.
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Whether bytes of the client have arrived that were not read yet.
    fn has_unread(&self) -> bool;

    /// Ready when the connection takes more after `WouldBlock`.
    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Whether a send may succeed: false from a send that was not taken completely until the connection is writable again.
    fn may_take(&self) -> bool;

    /// Sends bytes. `more`: further bytes follow at once, so the last packet may wait for them.
    ///
    /// # Errors
    /// `WouldBlock`: the connection takes nothing now.
    fn try_send(&mut self, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize>;

    /// As [`try_send`](Self::try_send), but what is taken may wait in the transport for [`try_flush`](Self::try_flush), so that several
    /// pieces leave in one system call.
    ///
    /// # Errors
    /// `WouldBlock`: the connection takes nothing now.
    fn try_take(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.try_send(pieces, false)
    }

    /// Sends a range of a file whose contents do not change while they are in flight. 0: the file ends before the range.
    ///
    /// # Errors
    /// `WouldBlock`: the connection takes nothing now.
    fn try_send_file(&mut self, file: BorrowedFd<'_>, offset: u64, len: usize)
    -> io::Result<usize>;

    /// Sends bytes that were taken and still wait in the transport. Nothing waits in a transport that encrypts nothing.
    ///
    /// # Errors
    /// `WouldBlock`: some still wait.
    fn try_flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Whether what is on the socket is what the peers say, so that the kernel can move it from and to pipes.
    fn is_clear(&self) -> bool {
        false
    }

    /// Moves what the client has sent into an empty pipe. Only if the transport [is clear](Self::is_clear).
    ///
    /// # Errors
    /// `WouldBlock`: nothing has come. `Unsupported`: only a read can tell what has.
    fn try_fill(&mut self, _pipe: &mut Pipe) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sends bytes that are in a pipe. Only if the transport [is clear](Self::is_clear).
    ///
    /// # Errors
    /// `WouldBlock`: the connection takes nothing now.
    fn try_drain(&mut self, _pipe: &mut Pipe) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Bytes sent since the connection was accepted, by this process and by borrowers.
    fn sent(&self) -> u64;

    /// Bytes that the socket has taken from this process. It grows while a slow client takes what has been sent.
    fn taken(&self) -> u64 {
        self.sent()
    }

    /// Bytes that the client's end has acknowledged, at least while the connection lasts. It grows while a slow client takes what the socket
    /// has. A transport that does not know it says what the socket has taken.
    fn delivered(&self) -> u64 {
        self.taken()
    }

    /// Whether the connection should end when its open responses have: its keys may not be used for much longer.
    fn is_worn(&self) -> bool {
        false
    }

    /// Ends the sending direction, so that the client sees the end while the server still reads.
    fn finish(&mut self);

    /// Ends the connection in a way that the client cannot take for the end of a response, if the transport has such a way.
    fn reset(&mut self);

    /// A response will not be completed: the connection must not end as one in good order, where a transport can tell the client the
    /// difference. What the kernel's TCP has still reaches the client.
    fn cut(&mut self) {}

    /// The socket, for another process to write to; `None` if that is impossible, which it is unless a transport says otherwise.
    fn lend(&mut self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Notes which process the socket is lent to, for the log.
    fn note_borrower(&mut self, _borrower: &dyn fmt::Display) {}

    /// Bytes that borrowers of the socket have written since it was lent or [resumed](Self::resume): the least and the most they can be by
    /// what the kernel tells. Both are 0 if no borrower has written.
    fn written_elsewhere(&self) -> io::Result<RangeInclusive<u64>> {
        Ok(0..=0)
    }

    /// Counts bytes that a borrower has written as sent.
    fn resume(&mut self, _written: u64) {}
}

/// Sends bytes on a stream socket, without SIGPIPE and without waiting, whatever another process that has the socket has done to its flags.
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
