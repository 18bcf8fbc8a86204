//! UNIX stream sockets, for proxies on the same host.
//!
//! A UNIX socket has no `TCP_INFO`, so the kernel does not report how much a borrower has written:
//! such a socket is never lent. It also has no reset: the client of a truncated response sees the
//! end of the connection. Clients recognise truncated responses of known length and chunked ones;
//! they cannot recognise a truncated body that ends with the connection.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use rustix::io::ioctl_fionread;
use rustix::net::{SendFlags, Shutdown};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::foreign::{self, ForeignSocket};
use super::{Transport, send};

/// A client's connection over a UNIX socket.
#[derive(Debug)]
pub struct Unix {
    stream: ForeignSocket<UnixStream>,
    sent: u64,
}

impl Unix {
    /// A connection that was just accepted.
    pub fn new(stream: UnixStream) -> Self {
        Self { stream: ForeignSocket::new(stream), sent: 0 }
    }
}

impl Transport for Unix {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            let read = || foreign::read(&self.stream, buffer);
            match self.stream.try_io(Interest::READABLE, read) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
        }
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_read_ready(cx)
    }

    fn has_unread(&self) -> bool {
        ioctl_fionread(&self.stream).is_ok_and(|unread| unread > 0)
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_write_ready(cx)
    }

    fn may_take(&self) -> bool {
        self.stream.try_io(Interest::WRITABLE, || Ok(())).is_ok()
    }

    /// The kernel takes a part of the pieces only if the socket is full or memory is short, and
    /// `WouldBlock` follows. There are no packets that could wait for `more`.
    fn try_send(&mut self, pieces: &[IoSlice<'_>], _more: bool) -> io::Result<usize> {
        let sent = || send(&self.stream, pieces, SendFlags::empty());
        let n = self.stream.try_io(Interest::WRITABLE, sent)?;
        self.sent += n as u64;
        Ok(n)
    }

    fn try_send_file(
        &mut self,
        file: BorrowedFd<'_>,
        mut offset: u64,
        len: usize,
    ) -> io::Result<usize> {
        let n = self.stream.try_io(Interest::WRITABLE, || {
            Ok(rustix::fs::sendfile(&self.stream, file, Some(&mut offset), len)?)
        })?;
        self.sent += n as u64;
        Ok(n)
    }

    fn sent(&self) -> u64 {
        self.sent
    }

    fn finish(&mut self) {
        // Fails only if the connection is gone.
        let _gone = rustix::net::shutdown(&self.stream, Shutdown::Write);
    }

    fn reset(&mut self) {
        // Fails only if the connection is gone.
        let _gone = rustix::net::shutdown(&self.stream, Shutdown::Both);
    }
}
