//! TCP without encryption.

use std::fmt;
use std::io::{self, IoSlice};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::BytesMut;
use rustix::io::ioctl_fionread;
use rustix::net::{SendFlags, Shutdown};
use sendoff_sys::tcp;
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::TcpStream;

use super::{Transport, send};
use crate::copied::send_copied;
use crate::lent::{self, Lent};
use crate::pipe::Pipe;

/// A client's connection over TCP.
#[derive(Debug)]
pub struct Tcp {
    stream: TcpStream,
    sent: u64,
    /// Set once the socket was lent; the borrower, or a child process that it left behind, may
    /// still have it (`lent.rs`).
    lent: Option<Box<Lent>>,
}

impl Tcp {
    /// A connection that was just accepted.
    pub fn new(stream: TcpStream) -> Self {
        Self { stream, sent: 0, lent: None }
    }

    /// Reads available bytes; 0 if the client has ended its sending direction.
    ///
    /// # Errors
    /// `WouldBlock`: no bytes have come.
    pub(super) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.stream.try_read(buffer)?;
        if 0 < n && n < buffer.len() {
            // The socket is empty. Clears tokio's readiness, so that the next read waits until the
            // kernel reports more: half of all reads under TLS found nothing.
            let empty = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
            let _empty = self.stream.try_io(Interest::READABLE, empty);
        }
        Ok(n)
    }

    /// As [`try_read`](Self::try_read), into the spare capacity of `buffer`. For readers that
    /// detect foreign or missing bytes by themselves, as TLS does.
    ///
    /// # Errors
    /// `WouldBlock`: no bytes have come.
    pub(super) fn try_read_buf(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        if self.was_lent() { self.try_receive(buffer) } else { self.stream.try_read_buf(buffer) }
    }

    /// As [`try_read_buf`](Self::try_read_buf), for a socket that was lent.
    ///
    /// # Errors
    /// `WouldBlock`: no bytes have come. `ConnectionAborted`: another process has connected the
    /// socket anew.
    fn try_receive(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        let mut receive = || tcp::try_receive(self.stream.as_fd(), buffer);
        let received = self.stream.try_io(Interest::READABLE, &mut receive);
        if !would_block(&received) || !self.has_ended(Interest::READABLE) {
            return received;
        }
        // An end that the kernel has reported stays, unless the socket was connected anew. The end
        // may have come after the first call.
        let again = receive();
        if would_block(&again) { Err(io::ErrorKind::ConnectionAborted.into()) } else { again }
    }

    /// True if the kernel has reported the end of a direction to the event loop, which keeps it.
    fn has_ended(&self, direction: Interest) -> bool {
        let ready =
            pin!(self.stream.ready(direction)).poll(&mut Context::from_waker(Waker::noop()));
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed() || ready.is_write_closed())
    }

    /// Has the event loop forget what the kernel has reported, and watch the socket anew. Tasks that
    /// wait for it are not woken.
    ///
    /// # Errors
    /// No descriptor is free.
    fn watch_anew(&mut self) -> io::Result<()> {
        let copy = std::net::TcpStream::from(self.stream.as_fd().try_clone_to_owned()?);
        // tokio asserts it.
        copy.set_nonblocking(true)?;
        self.stream = TcpStream::from_std(copy)?;
        Ok(())
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Notes that from now on another process, or a child process of it, may have the socket.
    ///
    /// # Errors
    /// The connection has ended, or the kernel does not count the bytes read.
    pub(super) fn note_lent(&mut self) -> io::Result<()> {
        if self.lent.is_none() {
            self.lent = Some(Box::new(Lent::new(&self.stream)?));
        }
        Ok(())
    }

    /// True if another process may have the socket.
    pub(super) fn was_lent(&self) -> bool {
        self.lent.is_some()
    }

    /// Has the connection reset when its last descriptor is closed.
    pub(super) fn reset_at_end(&self) {
        // Fails only if the connection is gone.
        let _gone = self.stream.set_zero_linger();
    }

    /// True if the connection no longer exists.
    pub(super) fn is_gone(&self) -> bool {
        self.stream.peer_addr().is_err()
    }
}

impl Transport for Tcp {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        if self.was_lent() {
            loop {
                ready!(self.stream.poll_read_ready(cx))?;
                let received = self.try_receive(buffer);
                match (received, &mut self.lent) {
                    (Err(error), _) if error.kind() == io::ErrorKind::WouldBlock => {}
                    (Err(error), Some(lent))
                        if error.kind() == io::ErrorKind::ConnectionAborted =>
                    {
                        let checked = lent.check(&self.stream, 0);
                        return Poll::Ready(checked.and(Err(error)));
                    }
                    (Ok(n @ 1..), Some(lent)) => {
                        let checked = lent.check(&self.stream, n);
                        return Poll::Ready(checked.map(|()| n).inspect_err(|_| {
                            buffer.truncate(buffer.len() - n);
                        }));
                    }
                    (received, _) => return Poll::Ready(received),
                }
            }
        }
        // The future is stateless, so each poll may use a new one.
        pin!(self.stream.read_buf(buffer)).poll(cx)
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_read_ready(cx)
    }

    fn has_unread(&self) -> bool {
        ioctl_fionread(&self.stream).is_ok_and(|unread| unread > 0)
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.stream.poll_write_ready(cx))?;
        if self.was_lent()
            && self.has_ended(Interest::WRITABLE)
            && !lent::may_write(self.stream.as_fd())
        {
            self.watch_anew()?;
            // The task waits for both directions again.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn may_take(&self) -> bool {
        self.stream.try_io(Interest::WRITABLE, || Ok(())).is_ok()
    }

    fn try_send(&mut self, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        let flags = if more { SendFlags::MORE } else { SendFlags::empty() };
        let n = self.stream.try_io(Interest::WRITABLE, || send(&self.stream, pieces, flags))?;
        if n < pieces.iter().map(|piece| piece.len()).sum() {
            // The socket is full. Clears tokio's readiness, so that the next send waits until the
            // kernel reports room.
            let full = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
            let _full = self.stream.try_io(Interest::WRITABLE, full);
        }
        self.sent += n as u64;
        Ok(n)
    }

    fn try_send_file(
        &mut self,
        file: BorrowedFd<'_>,
        mut offset: u64,
        len: usize,
    ) -> io::Result<usize> {
        if self.was_lent() {
            if !self.may_take() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            // `sendfile` could block.
            let send = |bytes: &[u8]| self.try_send(&[IoSlice::new(bytes)], false);
            return send_copied(file, offset, len, send);
        }
        let n = self.stream.try_io(Interest::WRITABLE, || {
            Ok(rustix::fs::sendfile(&self.stream, file, Some(&mut offset), len)?)
        })?;
        self.sent += n as u64;
        Ok(n)
    }

    fn is_clear(&self) -> bool {
        !self.was_lent()
    }

    fn try_fill(&mut self, pipe: &mut Pipe) -> io::Result<usize> {
        self.stream.try_io(Interest::READABLE, || pipe.fill(&self.stream))
    }

    fn try_drain(&mut self, pipe: &mut Pipe) -> io::Result<usize> {
        let n = self.stream.try_io(Interest::WRITABLE, || pipe.drain(&self.stream))?;
        self.sent += n as u64;
        Ok(n)
    }

    fn sent(&self) -> u64 {
        self.sent
    }

    fn delivered(&self) -> u64 {
        tcp::acknowledged(self.stream.as_fd()).unwrap_or(self.sent)
    }

    fn finish(&mut self) {
        // Fails only if the connection is gone.
        let _gone = rustix::net::shutdown(&self.stream, Shutdown::Write);
    }

    /// `SO_LINGER` of 0 resets the connection when the last descriptor is closed. If a borrower may
    /// have a descriptor, only `connect(2)` with `AF_UNSPEC` resets at once.
    fn reset(&mut self) {
        if self.was_lent() {
            // Fails only if the connection is gone.
            let _gone = rustix::net::connect_unspec(&self.stream);
        } else {
            self.reset_at_end();
        }
    }

    fn lend(&mut self) -> Option<BorrowedFd<'_>> {
        // On a kernel whose count of written bytes differs from ours nothing is lent: every
        // borrower would seem to lie.
        if !self.was_lent() && tcp::written(self.stream.as_fd()).ok() != Some(self.sent) {
            return None;
        }
        self.note_lent().ok()?;
        Some(self.stream.as_fd())
    }

    fn note_borrower(&mut self, borrower: &dyn fmt::Display) {
        if let Some(lent) = &mut self.lent {
            lent.note_borrower(borrower);
        }
    }

    fn written_elsewhere(&self) -> io::Result<RangeInclusive<u64>> {
        if !self.was_lent() {
            return Ok(0..=0);
        }
        let written = tcp::written(self.stream.as_fd())?.checked_sub(self.sent);
        let written = written.ok_or(io::ErrorKind::InvalidData)?;
        Ok(written..=written)
    }

    fn resume(&mut self, written: u64) {
        self.sent += written;
    }
}

impl Drop for Tcp {
    /// A child process that a script left behind may still have the socket; it must not keep the
    /// connection open.
    fn drop(&mut self) {
        if self.was_lent() {
            // Fails only if the connection is gone.
            let _gone = rustix::net::shutdown(&self.stream, Shutdown::Both);
            lent::keep_from_waiting(self.stream.as_fd());
        }
    }
}

fn would_block<T>(result: &io::Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::TcpListener;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use rustix::net::{connect, connect_unspec};
    use tokio::task::yield_now;
    use tokio::time::timeout;

    use super::*;

    /// Time within which an end that the kernel has reported must be seen.
    const LIMIT: Duration = Duration::from_secs(5);

    /// A connection that was lent, the borrower's copy of its socket, and the client.
    fn lent(listener: &TcpListener) -> (Tcp, OwnedFd, std::net::TcpStream) {
        let peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut tcp = Tcp::new(TcpStream::from_std(stream).unwrap());
        let copy = tcp.lend().unwrap().try_clone_to_owned().unwrap();
        (tcp, copy, peer)
    }

    /// The borrower connects the socket to an end of its own after the event loop has seen that it
    /// is not connected. Nothing comes from the new peer, but the event loop keeps what it has seen.
    #[tokio::test(flavor = "current_thread")]
    async fn a_socket_that_was_connected_anew_is_not_read_again_and_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut tcp, copy, _client) = lent(&listener);
        let end = TcpListener::bind("127.0.0.1:0").unwrap();
        connect_unspec(&copy).unwrap();
        while !tcp.has_ended(Interest::READABLE) {
            yield_now().await;
        }
        // Otherwise it returns before it is connected.
        rustix::io::ioctl_fionbio(&copy, false).unwrap();
        connect(&copy, &end.local_addr().unwrap()).unwrap();
        rustix::io::ioctl_fionbio(&copy, true).unwrap();
        let mut buffer = BytesMut::with_capacity(100);
        let read = poll_fn(|cx| tcp.poll_read(cx, &mut buffer));
        let read = timeout(LIMIT, read).await.expect("an end of the read");
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
