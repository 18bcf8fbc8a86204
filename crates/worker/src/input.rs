//! Input of one link, divided into FastCGI parts.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use bytes::BytesMut;
use sendoff_fastcgi::{Decoder, Error, RecordPart};
use sendoff_sys::fdpass;

/// Buffer for one `recvmsg`, in bytes: a whole request with the 64 KiB of body that the front sends
/// in band, and its record headers.
const RECEIVE_LEN: usize = 80 * 1024;

/// With less room than this a new buffer is allocated instead of a short `recvmsg`.
const RECEIVE_MIN: usize = 16 * 1024;

/// Descriptors that may wait for their `BODY` record. One request needs one.
const MAX_WAITING_FDS: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct RecordInput {
    buf: BytesMut,
    decoder: Decoder,
    fds: VecDeque<OwnedFd>,
}

impl RecordInput {
    /// The next part of the received bytes; `None`: receive more first.
    pub(crate) fn next(&mut self) -> Result<Option<RecordPart>, Error> {
        self.decoder.next(&mut self.buf)
    }

    /// The buffer for bytes that come another way.
    pub(crate) fn buffer(&mut self) -> &mut BytesMut {
        if self.buf.capacity() - self.buf.len() < RECEIVE_MIN {
            self.buf.reserve(RECEIVE_LEN);
        }
        &mut self.buf
    }

    /// Waits for bytes on the link and takes them. 0: the front closed it.
    pub(crate) fn receive(&mut self, link: BorrowedFd<'_>) -> io::Result<usize> {
        if self.buf.capacity() - self.buf.len() < RECEIVE_MIN {
            self.buf.reserve(RECEIVE_LEN);
        }
        loop {
            match fdpass::receive(link, &mut self.buf, &mut self.fds) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) if self.fds.len() > MAX_WAITING_FDS => {
                    return Err(io::Error::other("descriptors that no record claims"));
                }
                other => return other,
            }
        }
    }

    /// The descriptors that no record has claimed, oldest first.
    pub(crate) fn descriptors(&mut self) -> &mut VecDeque<OwnedFd> {
        &mut self.fds
    }

    /// True if there are received bytes that have not been processed.
    pub(crate) fn has_bytes(&self) -> bool {
        !self.buf.is_empty()
    }

    /// True if the peer may close the link here without cutting a record.
    pub(crate) fn at_boundary(&self) -> bool {
        self.buf.is_empty() && self.decoder.at_boundary()
    }
}
