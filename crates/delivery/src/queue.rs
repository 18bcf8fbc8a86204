//! The send queue: the segments still owed to one client, in order.

mod sending;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;

use bytes::{Buf, Bytes};

use super::blocked;
use super::in_memory::{self, InMemory};
use super::piece::{self, Piece};
use super::segment::{FileSegment, Segment};
use super::spool::{GATHER, Spool, Spooled};
pub use sending::Progress;
use sending::TURN;

/// Bytes of a response in memory above which further bytes go to the spool, which keeps another
/// [`GATHER`] in memory. The last piece, of up to 64 KiB, may exceed the limit. For a slow client,
/// only the spool's gathered bytes stay in memory.
const MEMORY_LIMIT: usize = 256 * 1024 - GATHER;

/// The limit of each queue while memory is short ([`in_memory::is_short`]), in bytes.
const SMALL_LIMIT: usize = 32 * 1024;

/// The most pieces in memory, regardless of their length: the overhead of small pieces exceeds
/// their bytes.
const MEMORY_PIECES: usize = 1024;

/// Pieces up to this size, in bytes, join the previous piece in memory even above the limits.
/// Otherwise the end of a chunk (2 bytes) would go to the spool alone, and each chunk would need a
/// spool.
const WITH_THE_LAST: usize = 16;

/// The most pieces of a response in the queue: a script can name files faster than a client takes
/// them. A piece takes about 100 bytes with its chunk header, so a response takes at most 2 MB.
const MAX_QUEUED: usize = 16 * 1024;

/// Bytes of a connection's first read.
const FIRST_READ: usize = 128 * 1024;

#[derive(Debug)]
enum Queued {
    Bytes(Bytes),
    File(FileSegment),
    /// A range of the spool.
    Spooled {
        offset: u64,
        len: u64,
    },
}

/// Segments owed to one client. The front owns them: no worker waits for their delivery.
#[derive(Debug)]
pub struct SendQueue {
    segments: VecDeque<Queued>,
    in_memory: InMemory,
    spool: Option<Spool>,
    /// The client has not taken data for a while; see [`SendQueue::note_slow`].
    is_slow: bool,
    /// Bytes of a leased file to read next: about the number that the socket took last time, so
    /// that few bytes are read twice.
    next_read: usize,
}

impl Default for SendQueue {
    fn default() -> Self {
        Self {
            segments: VecDeque::new(),
            in_memory: InMemory::default(),
            spool: None,
            is_slow: false,
            next_read: FIRST_READ,
        }
    }
}

impl SendQueue {
    /// Queues bytes, in the spool if the limits for memory are reached.
    ///
    /// # Errors
    /// The temporary file could not be written; the response cannot be completed.
    pub fn push_bytes(&mut self, data: Bytes) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        if self.is_long() && !self.goes_with_the_last(&data) {
            self.push_spooled(&data);
            return Ok(());
        }
        self.in_memory.add(data.len());
        self.segments.push_back(Queued::Bytes(data));
        blocked::relieve();
        Ok(())
    }

    fn goes_with_the_last(&self, data: &[u8]) -> bool {
        data.len() <= WITH_THE_LAST
            && self.segments.len() < MEMORY_PIECES
            && matches!(self.segments.back(), Some(Queued::Bytes(last)) if last.len() > WITH_THE_LAST)
    }

    fn push_spooled(&mut self, data: &[u8]) {
        if self.is_slow {
            self.empty_memory();
        }
        self.append_to_spool(data);
    }

    fn append_to_spool(&mut self, data: &[u8]) {
        let spool = self.spool.get_or_insert_default();
        let at = spool.stored();
        spool.append(data);
        blocked::relieve();
        let more = data.len() as u64;
        match self.segments.back_mut() {
            Some(Queued::Spooled { offset, len }) if *offset + *len == at => *len += more,
            _ => self.segments.push_back(Queued::Spooled { offset: at, len: more }),
        }
    }

    /// Moves the bytes in memory to the spool, keeping their order.
    fn empty_memory(&mut self) {
        if self.in_memory.bytes() == 0 {
            return;
        }
        for segment in std::mem::take(&mut self.segments) {
            match segment {
                Queued::Bytes(data) => {
                    self.append_to_spool(&data);
                    self.in_memory.remove(data.len());
                }
                other => self.segments.push_back(other),
            }
        }
    }

    /// Notes that the client is slow: from the next spooled piece on, its bytes wait on disk and
    /// leave memory to other connections.
    pub fn note_slow(&mut self) {
        self.is_slow = true;
    }

    /// Queues a piece of a body.
    ///
    /// # Errors
    /// As for [`push_bytes`](Self::push_bytes).
    pub fn push(&mut self, segment: Segment) -> io::Result<()> {
        match segment {
            Segment::Bytes(bytes) => self.push_bytes(bytes)?,
            Segment::File(file) => self.push_file(file),
        }
        Ok(())
    }

    /// Queues a range of a file.
    fn push_file(&mut self, segment: FileSegment) {
        if segment.len > 0 {
            self.segments.push_back(Queued::File(segment));
        }
    }

    /// True if more may be queued: fewer than `MAX_QUEUED` pieces wait and the spool is not full.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.segments.len() < MAX_QUEUED && self.spool.as_ref().is_none_or(|spool| !spool.is_full())
    }

    /// True if further bytes would go to the spool instead of memory.
    #[must_use]
    pub fn is_long(&self) -> bool {
        let limit = if in_memory::is_short() { SMALL_LIMIT } else { MEMORY_LIMIT };
        let is_spooled = self.is_slow && self.spool.is_some();
        is_spooled || self.in_memory.bytes() >= limit || self.segments.len() >= MEMORY_PIECES
    }

    /// Bytes of memory in use, including the spool's.
    pub fn memory(&self) -> usize {
        self.in_memory.bytes() + self.spool.as_ref().map_or(0, Spool::in_memory)
    }

    /// True if no byte is owed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Takes at most `most` bytes out of the queue, for a protocol that frames them itself. Bytes
    /// in memory are not copied; parts of files are read, under the same checks as in
    /// [`try_send`](Self::try_send). The result is empty only if the queue is empty or `most` is 0.
    ///
    /// # Errors
    /// A file has lost the contents that were handed over: the response must be cut.
    pub fn take(&mut self, most: usize) -> io::Result<Piece> {
        let mut piece = Piece::default();
        while piece.remaining() < most {
            let room = most - piece.remaining();
            let part = match self.segments.front_mut() {
                None => break,
                Some(Queued::Bytes(data)) => data.slice(..data.len().min(room)),
                Some(Queued::File(segment)) => piece::read(segment, room)?,
                Some(&mut Queued::Spooled { offset, len }) => {
                    self.read_spooled(offset, len, room)?
                }
            };
            self.advance(part.len());
            piece.push(part);
        }
        if self.segments.is_empty() {
            self.spool = None;
        }
        Ok(piece)
    }

    fn read_spooled(&self, offset: u64, len: u64, room: usize) -> io::Result<Bytes> {
        let most = |available: u64| at_once(len.min(available)).min(room);
        let bytes = match self.spool.as_ref().and_then(|spool| spool.read(offset)) {
            Some(Spooled::InFile(file, available)) => {
                piece::read_at(file, offset, most(available))?
            }
            Some(Spooled::InMemory(bytes)) => {
                Bytes::copy_from_slice(&bytes[..most(bytes.len() as u64)])
            }
            None => Bytes::new(),
        };
        if bytes.is_empty() { Err(spool_is_short()) } else { Ok(bytes) }
    }

    /// The number of queued bytes if it is known to be less than `most`, otherwise `most`.
    pub fn at_most(&self, most: usize) -> usize {
        match (self.segments.front(), self.segments.len()) {
            (None, _) => 0,
            (Some(Queued::Bytes(data)), 1) => data.len().min(most),
            (Some(Queued::File(FileSegment { len, .. }) | Queued::Spooled { len, .. }), 1) => {
                usize::try_from(*len).map_or(most, |len| len.min(most))
            }
            _ => most,
        }
    }

    /// Takes bytes that were sent, or taken, off the queue.
    fn advance(&mut self, mut n: usize) {
        while n > 0 {
            match self.segments.front_mut() {
                Some(Queued::Bytes(data)) if data.len() > n => {
                    data.advance(n);
                    self.in_memory.remove(n);
                    return;
                }
                Some(Queued::Bytes(data)) => {
                    n -= data.len();
                    self.in_memory.remove(data.len());
                }
                Some(
                    Queued::File(FileSegment { offset, len, .. }) | Queued::Spooled { offset, len },
                ) => {
                    if *len > n as u64 {
                        *offset += n as u64;
                        *len -= n as u64;
                        return;
                    }
                    n -= usize::try_from(*len).unwrap_or(n);
                }
                None => return,
            }
            self.segments.pop_front();
        }
    }
}

fn spool_is_short() -> io::Error {
    io::Error::other("the spool is shorter than what it holds")
}

/// The bytes of a range to send in one call.
fn at_once(len: u64) -> usize {
    usize::try_from(len.min(TURN)).unwrap_or(usize::MAX)
}
