//! TLS whose sending direction the kernel encrypts: `sendfile` works, and bytes are encrypted on
//! their way to the network.
//!
//! rustls does the handshake, the kernel gets the keys for sending, and the client's records are
//! decrypted here. So the bytes that a borrower of the socket writes are encrypted, too, and it
//! cannot decrypt the client's bytes. (It could ask the kernel for the keys of the sending
//! direction.)
//!
//! The kernel copies written bytes before the call returns; it reads ranges of files when it closes
//! a record. Files that may change are written, never sent by `sendfile` (`delivery/queue.rs`), so
//! the snapshot guard works as with TLS in user space.
//!
//! The keys for sending are never changed: kernels before 6.14 cannot. After a client has asked for
//! new keys (RFC 8446 §4.6.3), or a key has encrypted half of the records that it may, the
//! connection ends in good order: HTTP/1 sends one more response, HTTP/2 sends GOAWAY.

mod handshake;
mod inbound;
mod keys;
mod socket;
mod support;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::fmt;
use std::io::{self, ErrorKind, IoSlice};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, BytesMut};
use rustls::{CommonState, Error, ServerConfig};

use super::failure::HandshakeFailure;
use super::{Tcp, Transport};
use crate::lent::LentSocket;
use inbound::{Inbound, Received};
use keys::Keys;

pub use socket::settle;

use socket::KtlsSocket;
pub use support::kernel_has_tls;

/// A client's TLS connection that the kernel encrypts.
pub struct KernelTls {
    /// A borrower may write. Dropped before the line, which holds the last descriptor of the
    /// socket.
    lent: Option<Lent>,
    ktls: Rc<RefCell<KtlsSocket>>,
    /// Boxed, as rustls' own connections are.
    inbound: Box<Inbound>,
    is_http2: bool,
    /// The client has asked for new keys.
    wants_new_keys: bool,
    /// Reading is over: the client has ended its sending direction, or its records are broken.
    has_ended: bool,
}

/// A socket that has been lent.
struct Lent {
    socket: LentSocket,
    /// The number of the borrower's first record.
    first: u64,
}

impl fmt::Debug for KernelTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelTls").field("is_http2", &self.is_http2).finish_non_exhaustive()
    }
}

/// Makes a connection. `incoming`: the client's bytes, from its first one. `note` is called with
/// the connection when the handshake has ended.
///
/// `refused` gets the connection of a client that was refused and has been told the reason.
///
/// # Errors
/// There is no connection.
pub(super) async fn accept<N>(
    mut tcp: Tcp,
    incoming: BytesMut,
    config: Arc<ServerConfig>,
    note: impl FnOnce(&CommonState) -> Result<N, HandshakeFailure>,
    refused: &mut Option<Tcp>,
) -> Result<(KernelTls, N), HandshakeFailure> {
    let completed = handshake::complete(&mut tcp, incoming, config).await;
    let handshake::Handshake { connection, incoming, plain, .. } = match completed {
        Ok(handshake) => handshake,
        Err(failure) => {
            *refused = Some(tcp);
            return Err(failure);
        }
    };
    let noted = note(&connection)?;
    let is_http2 = connection.alpn_protocol() == Some(b"h2");
    let (secrets, kernel) =
        connection.dangerous_into_kernel_connection().map_err(HandshakeFailure::Tls)?;
    let (next, sending) = secrets.tx;
    let keys = Keys::new(kernel.protocol_version(), &sending, next)
        .ok_or_else(|| HandshakeFailure::Tls(Error::General("an unknown algorithm".to_owned())))?;
    let inbound =
        Box::new(Inbound::new(kernel, secrets.rx, incoming, plain).map_err(HandshakeFailure::Tls)?);
    let ktls = Rc::new(RefCell::new(KtlsSocket::new(tcp, keys)?));
    let (wants_new_keys, has_ended, lent) = (false, false, None);
    Ok((KernelTls { ktls, inbound, is_http2, wants_new_keys, has_ended, lent }, noted))
}

impl KernelTls {
    /// True if the client and the server have agreed on HTTP/2 (RFC 9113 §3.2).
    pub fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// The sending direction. Must be kept until [`settle`] has ended.
    pub fn ktls(&self) -> Rc<RefCell<KtlsSocket>> {
        Rc::clone(&self.ktls)
    }

    /// Moves decrypted bytes into `buffer`; `None` if there are none yet.
    fn take_plaintext(&mut self, buffer: &mut BytesMut) -> io::Result<Option<usize>> {
        let room = buffer.capacity() - buffer.len();
        let mut taken = 0;
        while taken < room {
            if self.inbound.plain.is_empty() {
                match self.decrypt() {
                    Ok(Received::Incomplete) => break,
                    Ok(_) => {}
                    Err(error) if taken == 0 => return Err(error),
                    // The line is cut, so the next read fails.
                    Err(_) => break,
                }
            }
            let plain = &mut self.inbound.plain;
            let n = plain.len().min(room - taken);
            buffer.put_slice(&plain[..n]);
            plain.advance(n);
            taken += n;
            if self.has_ended {
                break;
            }
        }
        if self.inbound.plain.is_empty() {
            self.inbound.plain = BytesMut::new();
        }
        Ok((taken > 0 || self.has_ended || room == 0).then_some(taken))
    }

    fn decrypt(&mut self) -> io::Result<Received> {
        let received = self.inbound.decrypt().map_err(|why| {
            let mut ktls = self.ktls.borrow_mut();
            // While a socket is lent, only the borrower writes to it.
            if self.lent.is_some() {
                ktls.cut();
            } else {
                ktls.fail(why);
            }
            self.has_ended = true;
            io::Error::new(ErrorKind::InvalidData, format!("the client's records: {why:?}"))
        })?;
        self.has_ended |= received == Received::End;
        self.wants_new_keys |= received == Received::WantsNewKeys;
        Ok(received)
    }

    /// Reads records from the socket.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut ktls = self.ktls.borrow_mut();
        ready!(ktls.tcp.poll_readable(cx))?;
        let room = self.inbound.room();
        let before = room.capacity() - room.len();
        let read = ktls.tcp.try_read_buf(room);
        let n = *read.as_ref().unwrap_or(&0);
        self.inbound.note_read(n == before);
        match read {
            // The connection ended without close_notify. A truncated request shows in its own
            // framing.
            Ok(0) => self.has_ended = true,
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Poll::Ready(Err(error)),
            _ => {}
        }
        Poll::Ready(Ok(()))
    }
}

impl Transport for KernelTls {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        loop {
            if self.has_ended && self.inbound.plain.is_empty() {
                return Poll::Ready(Ok(0));
            }
            if let Some(taken) = self.take_plaintext(buffer)? {
                return Poll::Ready(Ok(taken));
            }
            ready!(self.poll_receive(cx))?;
        }
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let inbound = &self.inbound;
        if self.has_ended || !inbound.plain.is_empty() || inbound.has_record() {
            return Poll::Ready(Ok(()));
        }
        self.ktls.borrow_mut().tcp.poll_readable(cx)
    }

    fn has_unread(&self) -> bool {
        self.inbound.has_bytes() || self.ktls.borrow().tcp.has_unread()
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.ktls.borrow_mut().tcp.poll_writable(cx)
    }

    fn may_take(&self) -> bool {
        self.ktls.borrow().tcp.may_take()
    }

    fn try_send(&mut self, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        let len = pieces.iter().map(|piece| piece.len()).sum();
        self.lent = None;
        self.ktls.borrow_mut().send(len, more, |tcp| tcp.try_send(pieces, more))
    }

    fn try_send_file(
        &mut self,
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> io::Result<usize> {
        let send = |tcp: &mut Tcp| tcp.try_send_file(file, offset, len);
        self.lent = None;
        self.ktls.borrow_mut().send(len, false, send)
    }

    fn sent(&self) -> u64 {
        self.ktls.borrow().sent()
    }

    fn delivered(&self) -> u64 {
        self.ktls.borrow().tcp.delivered()
    }

    fn is_worn(&self) -> bool {
        self.wants_new_keys || self.ktls.borrow().is_worn()
    }

    fn finish(&mut self) {
        self.ktls.borrow_mut().finish();
    }

    /// While another process also has the socket, it cannot be reset (on such sockets the kernel
    /// refuses `AF_UNSPEC`, or fails at it). The connection then ends without close_notify.
    fn reset(&mut self) {
        let mut ktls = self.ktls.borrow_mut();
        ktls.cut();
        ktls.tcp.reset_at_end();
    }

    fn cut(&mut self) {
        self.ktls.borrow_mut().cut();
    }

    fn lend(&mut self) -> Option<BorrowedFd<'_>> {
        if self.lent.is_none() && !self.is_worn() {
            let mut ktls = self.ktls.borrow_mut();
            let first = ktls.lend()?;
            self.lent = Some(Lent { socket: LentSocket::of(ktls.tcp.socket()).ok()?, first });
        }
        self.lent.as_ref().map(|lent| lent.socket.as_fd())
    }

    fn written_elsewhere(&self) -> io::Result<RangeInclusive<u64>> {
        let ktls = self.ktls.borrow();
        self.lent.as_ref().map_or(Ok(0..=0), |lent| ktls.written_since(lent.first))
    }

    fn resume(&mut self, written: u64) {
        self.lent = None;
        self.ktls.borrow_mut().resume(written);
    }
}
