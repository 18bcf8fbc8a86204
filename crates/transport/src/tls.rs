//! TLS in user space, by rustls.
//!
//! Bytes are encrypted into records, which wait in the connection until the socket accepts them. A
//! record is final: it keeps the bytes as they were read, even if the file changes. No new bytes
//! are taken while records wait, so that at most [`AT_ONCE`] bytes per connection are outside the
//! send queue.

use std::io::{self, BufRead, ErrorKind, IoSlice, Read, Write};
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, BytesMut};
use rustls::ServerConnection;

use super::{Tcp, Transport};
use crate::copied::send_copied;

/// Bytes that are encrypted at a time: four records of the largest size, which is rustls' own
/// limit.
const AT_ONCE: usize = 64 * 1024;

/// Most bytes whose records may wait for further ones before the socket gets them. With [`AT_ONCE`]
/// bytes rustls might have no room for the last records.
const WAITS: usize = AT_ONCE / 2;

/// Pieces of up to this many bytes share a record with the following bytes: a response head with
/// the beginning of the body.
const SHARES_RECORD: usize = 4096;

/// A client's connection over TLS.
#[derive(Debug)]
pub struct Tls {
    tcp: Tcp,
    connection: Box<ServerConnection>,
    /// Bytes that were taken but not encrypted, because more follow at once.
    staged: Vec<u8>,
    /// Bytes in records that the socket has not accepted completely.
    waiting: usize,
    /// Bytes taken from the send queue.
    sent: u64,
    /// Decrypted bytes wait to be read.
    has_plaintext: bool,
    /// Sending is over: the end has been sent, or the connection must end without one, so that the
    /// client notices the cut.
    is_over: bool,
}

impl Tls {
    /// A connection whose handshake is complete.
    pub(crate) fn new(tcp: Tcp, connection: Box<ServerConnection>) -> Self {
        let mut tls = Self {
            tcp,
            connection,
            staged: Vec::new(),
            waiting: 0,
            sent: 0,
            has_plaintext: false,
            is_over: false,
        };
        tls.has_plaintext = tls.connection.reader().fill_buf().is_ok_and(|bytes| !bytes.is_empty());
        tls
    }

    /// True if the client and the server have agreed on HTTP/2 (RFC 9113 §3.2).
    pub fn is_http2(&self) -> bool {
        self.connection.alpn_protocol() == Some(b"h2")
    }

    /// Moves decrypted bytes into `buffer`; `None` if there are none yet.
    fn take_plaintext(&mut self, buffer: &mut BytesMut) -> Option<io::Result<usize>> {
        let room = buffer.capacity() - buffer.len();
        let mut reader = self.connection.reader();
        let mut taken = 0;
        while taken < room {
            match reader.fill_buf() {
                // The client has ended its sending direction in good order.
                Ok([]) => break,
                Ok(bytes) => {
                    let n = bytes.len().min(room - taken);
                    buffer.put_slice(&bytes[..n]);
                    reader.consume(n);
                    taken += n;
                }
                Err(error) if taken == 0 => match error.kind() {
                    ErrorKind::WouldBlock => {
                        self.has_plaintext = false;
                        return None;
                    }
                    // The connection ended without close_notify. A truncated request shows in its
                    // own framing.
                    ErrorKind::UnexpectedEof => break,
                    _ => return Some(Err(error)),
                },
                Err(_) => break,
            }
        }
        self.has_plaintext = true;
        Some(Ok(taken))
    }

    /// Reads records from the socket and decrypts them.
    fn receive(&mut self) -> io::Result<()> {
        self.connection.read_tls(&mut RustlsSocket(&mut self.tcp))?;
        let processed = self.connection.process_new_packets();
        if let Err(error) = processed {
            // Sends the alert with the reason. A failure to send it changes nothing.
            let _ = self.send_records();
            self.is_over = true;
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        // Sends rustls' own answers, such as the refusal to renegotiate, for which a TLS 1.2 client
        // waits. Bytes that the socket does not accept now go out before the next bytes.
        let _later = self.send_records();
        Ok(())
    }

    fn send_records(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut RustlsSocket(&mut self.tcp))?;
        }
        self.waiting = 0;
        Ok(())
    }

    /// Encrypts the staged bytes and the beginning of `pieces`. Returns the number of bytes taken
    /// from `pieces`.
    fn encrypt(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let staged = std::mem::take(&mut self.staged);
        let mut all = Vec::with_capacity(pieces.len() + 1);
        all.extend((!staged.is_empty()).then(|| IoSlice::new(&staged)));
        let mut left = AT_ONCE - staged.len();
        for piece in pieces {
            let n = piece.len().min(left);
            all.push(IoSlice::new(&piece[..n]));
            left -= n;
        }
        let n = self.connection.writer().write_vectored(&all)?;
        let taken = n.checked_sub(staged.len());
        let taken = taken.ok_or_else(|| io::Error::other("a record could not be made"))?;
        self.sent += taken as u64;
        self.waiting += n;
        Ok(taken)
    }
}

impl Transport for Tls {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        loop {
            if let Some(taken) = self.take_plaintext(buffer) {
                return Poll::Ready(taken);
            }
            ready!(self.tcp.poll_readable(cx))?;
            match self.receive() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                received => received?,
            }
        }
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_plaintext { Poll::Ready(Ok(())) } else { self.tcp.poll_readable(cx) }
    }

    fn has_unread(&self) -> bool {
        self.has_plaintext || self.tcp.has_unread()
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tcp.poll_writable(cx)
    }

    fn may_take(&self) -> bool {
        !self.connection.wants_write() && self.tcp.may_take()
    }

    fn try_send(&mut self, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        self.send_records()?;
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        if more && self.staged.len() + len <= SHARES_RECORD {
            for piece in pieces {
                self.staged.extend_from_slice(piece);
            }
            self.sent += len as u64;
            return Ok(len);
        }
        let taken = self.encrypt(pieces)?;
        match self.send_records() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            sent => sent?,
        }
        Ok(taken)
    }

    fn try_take(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        if self.waiting > 0 && self.waiting + len > WAITS {
            self.send_records()?;
        }
        self.encrypt(pieces)
    }

    fn try_send_file(
        &mut self,
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> io::Result<usize> {
        self.send_records()?;
        let want = len.min(AT_ONCE - self.staged.len());
        let send = |bytes: &[u8]| self.try_send(&[IoSlice::new(bytes)], false);
        send_copied(file, offset, want, send)
    }

    fn try_flush(&mut self) -> io::Result<()> {
        self.send_records()?;
        if !self.staged.is_empty() {
            self.encrypt(&[])?;
            self.send_records()?;
        }
        Ok(())
    }

    fn sent(&self) -> u64 {
        self.sent
    }

    fn taken(&self) -> u64 {
        self.tcp.taken()
    }

    fn delivered(&self) -> u64 {
        self.tcp.delivered()
    }

    fn finish(&mut self) {
        self.connection.send_close_notify();
        // Bytes that the socket does not accept now are lost: the client sees a cut instead of the
        // end.
        let _ = self.send_records();
        self.is_over = true;
        self.tcp.finish();
    }

    fn reset(&mut self) {
        self.is_over = true;
        self.tcp.reset();
    }

    fn cut(&mut self) {
        self.is_over = true;
    }
}

impl Drop for Tls {
    /// Ends the connection in good order (close_notify, RFC 8446 §6.1), unless it was cut.
    fn drop(&mut self) {
        if !self.is_over && self.staged.is_empty() && !self.connection.wants_write() {
            self.finish();
        }
    }
}

/// Adapts the socket to the I/O traits that rustls uses.
#[derive(Debug)]
pub(super) struct RustlsSocket<'s>(pub(super) &'s mut Tcp);

impl Read for RustlsSocket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for RustlsSocket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_send(&[IoSlice::new(bytes)], false)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_send(pieces, false)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A reader of bytes that have come already, then of the socket.
#[derive(Debug)]
pub(super) struct BufferedInput<'s> {
    pub(super) early: &'s mut BytesMut,
    pub(super) tcp: &'s mut Tcp,
}

impl Read for BufferedInput<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.early.is_empty() {
            return self.tcp.try_read(buffer);
        }
        let n = self.early.len().min(buffer.len());
        self.early.copy_to_slice(&mut buffer[..n]);
        Ok(n)
    }
}
