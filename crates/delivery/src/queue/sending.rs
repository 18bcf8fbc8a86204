//! Sending of the queue: the choice of the system call for the pieces at its front.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use sendoff_transport::Transport;

use super::{Queued, SendQueue, at_once, spool_is_short};
use crate::open_file::RangeSource;
use crate::segment::{FileSegment, SMALL};
use crate::spool::Spooled;

/// The most pieces of one `sendmsg`. The kernel takes 1024, but a page of 31 pieces without files
/// between them is already unusual.
const MAX_PIECES: usize = 64;

/// Bytes that one connection may be sent before other connections get their turn.
pub(super) const TURN: u64 = 4 << 20;

/// The most bytes of a leased file per read. The buffer, one per event loop, stays in the CPU's
/// second-level cache.
const MOST_READ: usize = 256 * 1024;

/// The fewest bytes per read, even if the client took less last time.
const LEAST_READ: usize = 16 * 1024;

thread_local! {
    /// Buffer for reads of leased files. Each event loop is a thread.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The reason why `SendQueue::try_send` stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// No byte is owed any longer.
    Done,
    /// The socket takes no more bytes for now.
    Blocked,
    /// `TURN` bytes have been sent; the socket may take more.
    Yield,
}

impl SendQueue {
    /// Sends as much as the socket takes without waiting.
    ///
    /// # Errors
    /// The client has closed the connection, or a file has lost the contents that were handed over:
    /// the connection must be cut. In the second case, closing the socket resets the connection.
    pub fn try_send(&mut self, transport: &mut impl Transport) -> io::Result<Progress> {
        if !flushed(transport)? {
            return Ok(Progress::Blocked);
        }
        let end_of_turn = transport.sent() + TURN;
        loop {
            if transport.sent() >= end_of_turn {
                return Ok(Progress::Yield);
            }
            let more = self.segments.len() > 1;
            let step = match self.segments.front() {
                None => {
                    self.spool = None;
                    let all = flushed(transport)?;
                    return Ok(if all { Progress::Done } else { Progress::Blocked });
                }
                Some(Queued::Bytes(_)) => self.send_bytes(transport),
                Some(Queued::File(segment)) if segment.len <= SMALL => match small(segment) {
                    Ok(Some(file)) => send_with(transport, [].iter(), segment, &file, more),
                    Ok(None) => send_file(transport, segment, more, &mut self.next_read),
                    Err(error) => Err(error),
                },
                Some(&Queued::Spooled { offset, len }) => {
                    self.send_spooled(transport, offset, len, more)
                }
                Some(Queued::File(segment)) => {
                    send_file(transport, segment, more, &mut self.next_read)
                }
            };
            match step {
                Ok(n) => self.advance(n),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Progress::Blocked);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends the pieces in memory at the front of the queue, together with a small file behind
    /// them.
    fn send_bytes(&self, transport: &mut impl Transport) -> io::Result<usize> {
        let in_memory = |segment: &&Queued| matches!(segment, Queued::Bytes(_));
        let count = self.segments.iter().take(MAX_PIECES).take_while(in_memory).count();
        let pieces = self.segments.range(..count);
        if let Some(Queued::File(segment)) = self.segments.get(count)
            && count < MAX_PIECES
            && let Some(descriptor) = small(segment)?
        {
            let more = count + 1 < self.segments.len();
            return send_with(transport, pieces, segment, &descriptor, more);
        }
        let mut all = [IoSlice::new(&[]); MAX_PIECES];
        fill(&mut all, pieces);
        // With `more`, the kernel fills the packet from the file range that follows.
        let more = count < self.segments.len();
        transport.try_send(&all[..count], more)
    }

    fn send_spooled(
        &self,
        transport: &mut impl Transport,
        offset: u64,
        len: u64,
        more: bool,
    ) -> io::Result<usize> {
        match self.spool.as_ref().and_then(|spool| spool.read(offset)) {
            Some(Spooled::InFile(file, available)) => {
                transport.try_send_file(file.as_fd(), offset, at_once(len.min(available)))
            }
            Some(Spooled::InMemory(bytes)) => {
                let bytes =
                    &bytes[..usize::try_from(len).map_or(bytes.len(), |n| n.min(bytes.len()))];
                transport.try_send(&[IoSlice::new(bytes)], more)
            }
            None => Err(spool_is_short()),
        }
    }
}

/// Sends the bytes buffered in the transport. Returns false if some remain.
fn flushed(transport: &mut impl Transport) -> io::Result<bool> {
    match transport.try_flush() {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// The descriptor of a small range whose file is not guarded. Its bytes are read when they are
/// sent.
fn small(segment: &FileSegment) -> io::Result<Option<Arc<OwnedFd>>> {
    if segment.len > SMALL || segment.file.is_guarded() {
        return Ok(None);
    }
    Ok(match segment.file.source()? {
        RangeSource::Final(descriptor) => Some(descriptor),
        RangeSource::Leased(_) | RangeSource::Memory(_) => None,
    })
}

/// Writes the pieces in memory to the front of a list for `sendmsg`.
fn fill<'a, 'q: 'a>(all: &mut [IoSlice<'a>], pieces: impl Iterator<Item = &'q Queued>) {
    for (place, piece) in all.iter_mut().zip(pieces) {
        if let Queued::Bytes(data) = piece {
            *place = IoSlice::new(data);
        }
    }
}

/// Reads a small range and sends it behind `pieces`, which must be in memory and fewer than
/// [`MAX_PIECES`].
fn send_with<'q>(
    transport: &mut impl Transport,
    pieces: impl ExactSizeIterator<Item = &'q Queued>,
    segment: &FileSegment,
    descriptor: &OwnedFd,
    more: bool,
) -> io::Result<usize> {
    if !transport.may_take() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let want = usize::try_from(segment.len).map_err(io::Error::other)?;
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.len() < want {
            scratch.resize(MOST_READ, 0);
        }
        let read = rustix::io::retry_on_intr(|| {
            rustix::io::pread(descriptor, &mut scratch[..want], segment.offset)
        })?;
        let count = pieces.len();
        if read == 0 && count == 0 {
            return Err(segment.file.became_shorter());
        }
        let mut all = [IoSlice::new(&[]); MAX_PIECES];
        fill(&mut all, pieces);
        all[count] = IoSlice::new(&scratch[..read]);
        transport.try_send(&all[..=count], more || read < want)
    })
}

fn send_file(
    transport: &mut impl Transport,
    segment: &FileSegment,
    more: bool,
    next_read: &mut usize,
) -> io::Result<usize> {
    let FileSegment { file, offset, len } = segment;
    let sent = file.source().and_then(|source| match source {
        RangeSource::Final(descriptor) => {
            match transport.try_send_file(descriptor.as_fd(), *offset, at_once(*len)) {
                Ok(0) => Err(file.became_shorter()),
                sent => sent,
            }
        }
        RangeSource::Memory(contents) => {
            let range = usize::try_from(*offset).ok().zip(usize::try_from(offset + len).ok());
            let bytes = range.and_then(|(from, to)| contents.get(from..to));
            let pieces = [IoSlice::new(bytes.ok_or_else(|| file.became_shorter())?)];
            transport.try_send(&pieces, more)
        }
        RangeSource::Leased(descriptor) => {
            send_read(transport, segment, &descriptor, more, next_read)
        }
    });
    if let Err(error) = &sent
        && error.kind() == io::ErrorKind::UnexpectedEof
        && file.is_guarded()
    {
        // After a reset, the client cannot mistake the beginning for the whole response.
        transport.reset();
    }
    sent
}

/// Reads a range of a leased file, checks that the lease has not ended, and sends the bytes.
fn send_read(
    transport: &mut impl Transport,
    segment: &FileSegment,
    descriptor: &OwnedFd,
    more: bool,
    next_read: &mut usize,
) -> io::Result<usize> {
    if !transport.may_take() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let want = usize::try_from(segment.len).map_or(*next_read, |len| len.min(*next_read));
    let (sent, read) = SCRATCH.with_borrow_mut(|scratch| {
        if scratch.len() < want {
            scratch.resize(MOST_READ, 0);
        }
        let read = rustix::io::pread(descriptor, &mut scratch[..want], segment.offset)?;
        segment.file.verify()?;
        if read == 0 {
            return Err(segment.file.became_shorter());
        }
        let more = more || (read as u64) < segment.len;
        Ok((transport.try_send(&[IoSlice::new(&scratch[..read])], more)?, read))
    })?;
    *next_read = if sent == read { 2 * want } else { sent }.clamp(LEAST_READ, MOST_READ);
    Ok(sent)
}
