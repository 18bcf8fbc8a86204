//! The send queue: segments still owed to one client, in order.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::rc::Rc;

use bytes::{Buf, Bytes};

use super::spool::Spool;
use crate::segment::{FileSegment, Segment};
use crate::transport::Transport;

/// Once so many bytes of a response wait in memory, more goes to the spool. With 1,000 slow clients this bounds the
/// front to 320 MB: the last piece, of up to 64 KiB, may go beyond it.
const MEMORY_LIMIT: usize = 256 * 1024;

/// Pieces that may wait in memory, bytes likewise. Small ones would cost far more than the bytes they hold.
const MEMORY_PIECES: usize = 1024;

/// Pieces up to this size follow the one before them into memory even then: the end of a chunk (2 bytes) alone in a spool
/// file cost a client that takes 1 MB at once four files per response.
const WITH_THE_LAST: usize = 16;

/// Pieces of a response that may wait at all: a script can name files faster than any client takes them. At some
/// 100 bytes each with its chunk header, 2 MB per response at most.
const MAX_QUEUED: usize = 16 * 1024;

/// Pieces of one `sendmsg`. The kernel takes 1024; a page of 31 file-less pieces is already unusual.
const MAX_PIECES: usize = 64;

/// What one connection may be given in a row before others get their turn, in bytes.
const TURN: u64 = 4 << 20;

/// Where [`SendQueue::try_send`] stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nothing is owed any more.
    Done,
    /// The socket takes no more now.
    Blocked,
    /// The turn is over; the socket would take more.
    Yield,
}

/// Segments owed to one client. What is in it is in the front's custody: no worker waits for it.
#[derive(Debug, Default)]
pub struct SendQueue {
    segments: VecDeque<Segment>,
    in_memory: usize,
    spool: Option<Spool>,
    /// Bytes given to the kernel since the connection was accepted. Files that were sent remember it.
    sent: Rc<Cell<u64>>,
    /// The part of `sent` that [`SendQueue::take_sent`] has returned.
    taken: u64,
}

impl SendQueue {
    /// Queues bytes, on disk if many wait already.
    ///
    /// # Errors
    /// The temporary file could not be written; the response cannot be completed.
    pub fn push_bytes(&mut self, data: Bytes) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        if self.is_long() && !self.goes_with_the_last(&data) {
            return self.push_spooled(&data);
        }
        self.in_memory += data.len();
        self.segments.push_back(Segment::Bytes(data));
        Ok(())
    }

    fn goes_with_the_last(&self, data: &[u8]) -> bool {
        data.len() <= WITH_THE_LAST
            && self.segments.len() < MEMORY_PIECES
            && matches!(self.segments.back(), Some(Segment::Bytes(last)) if last.len() > WITH_THE_LAST)
    }

    fn push_spooled(&mut self, data: &[u8]) -> io::Result<()> {
        let spool = match &mut self.spool {
            Some(spool) => spool,
            none => none.insert(Spool::create()?),
        };
        if let Some(Segment::File(last)) = self.segments.back_mut()
            && spool.continues(last)
        {
            last.len += spool.append(data)?.len;
            return Ok(());
        }
        self.segments.push_back(Segment::File(spool.append(data)?));
        Ok(())
    }

    /// Queues a range of a file.
    pub fn push_file(&mut self, segment: FileSegment) {
        if segment.len > 0 {
            self.segments.push_back(Segment::File(segment));
        }
    }

    /// Whether more may be queued. False only when a client leaves as much lying as the spool may hold, or thousands of
    /// files.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.segments.len() < MAX_QUEUED && self.spool.as_ref().is_none_or(|spool| !spool.is_full())
    }

    /// Whether more would go to the spool rather than to memory.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.in_memory >= MEMORY_LIMIT || self.segments.len() >= MEMORY_PIECES
    }

    /// Whether nothing is owed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Bytes given to the kernel since the connection was accepted.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// Somebody else has given bytes to the kernel.
    pub fn sent_elsewhere(&mut self, bytes: u64) {
        self.sent.set(self.sent.get() + bytes);
    }

    /// Bytes given to the kernel since the last call.
    pub fn take_sent(&mut self) -> u64 {
        let sent = self.sent.get();
        sent - std::mem::replace(&mut self.taken, sent)
    }

    /// Sends as much as the socket takes without waiting.
    ///
    /// # Errors
    /// The client has gone, or a file is shorter than it was: the connection must be cut.
    pub(crate) fn try_send(&mut self, transport: &mut impl Transport) -> io::Result<Progress> {
        let end_of_turn = self.sent.get() + TURN;
        loop {
            if self.sent.get() >= end_of_turn {
                return Ok(Progress::Yield);
            }
            let step = match self.segments.front() {
                None => {
                    self.spool = None;
                    return Ok(Progress::Done);
                }
                Some(Segment::Bytes(_)) => self.send_bytes(transport),
                Some(Segment::File(segment)) => self.send_file(transport, segment),
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

    fn send_bytes(&self, transport: &mut impl Transport) -> io::Result<usize> {
        let mut pieces = [IoSlice::new(&[]); MAX_PIECES];
        let mut count = 0;
        let mut segments = self.segments.iter();
        while let Some(Segment::Bytes(data)) = segments.next() {
            pieces[count] = IoSlice::new(data);
            count += 1;
            if count == MAX_PIECES {
                break;
            }
        }
        // A file after these bytes fills the packet they begin.
        let more = count < self.segments.len();
        let n = transport.try_send(&pieces[..count], more)?;
        self.sent.set(self.sent.get() + n as u64);
        Ok(n)
    }

    fn send_file(
        &self,
        transport: &mut impl Transport,
        segment: &FileSegment,
    ) -> io::Result<usize> {
        let lost = || {
            io::Error::new(io::ErrorKind::UnexpectedEof, "a file became shorter while it was sent")
        };
        let descriptor = segment.file.descriptor().ok_or_else(lost)?;
        let count = usize::try_from(segment.len.min(TURN)).unwrap_or(usize::MAX);
        let n = transport.try_send_file(descriptor.as_fd(), segment.offset, count)?;
        if n == 0 {
            return Err(lost());
        }
        self.sent.set(self.sent.get() + n as u64);
        Ok(n)
    }

    fn advance(&mut self, mut n: usize) {
        while n > 0 {
            match self.segments.front_mut() {
                Some(Segment::Bytes(data)) if data.len() > n => {
                    data.advance(n);
                    self.in_memory -= n;
                    return;
                }
                Some(Segment::Bytes(data)) => {
                    n -= data.len();
                    self.in_memory -= data.len();
                }
                Some(Segment::File(segment)) if segment.len > n as u64 => {
                    segment.offset += n as u64;
                    segment.len -= n as u64;
                    return;
                }
                // A file is sent alone, so it ends exactly here.
                Some(Segment::File(_)) => n = 0,
                None => return,
            }
            self.segments.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::OpenFile;

    #[test]
    fn many_small_pieces_go_to_the_spool_as_one() {
        let mut queue = SendQueue::default();
        for _ in 0..100 * MEMORY_PIECES {
            queue.push_bytes(Bytes::from_static(b"x")).unwrap();
        }
        assert!(queue.segments.len() <= MEMORY_PIECES + 1);
        assert!(queue.has_room());
    }

    /// A client that takes the queue as it is needs no file.
    #[test]
    fn the_end_of_a_chunk_stays_with_it() {
        let mut queue = SendQueue::default();
        queue.push_bytes(vec![0; MEMORY_LIMIT].into()).unwrap();
        queue.push_bytes(Bytes::from_static(b"\r\n")).unwrap();
        assert!(queue.is_long() && queue.spool.is_none());
        queue.push_bytes(Bytes::from_static(b"5\r\n")).unwrap();
        queue.push_bytes(Bytes::from_static(b"hello")).unwrap();
        assert_eq!(queue.segments.len(), 3);
    }

    #[test]
    fn files_cannot_be_queued_for_ever() {
        let mut queue = SendQueue::default();
        let file = OpenFile::new(std::fs::File::open("/dev/null").unwrap().into());
        let mut queued = 0;
        while queue.has_room() {
            queue.push_file(FileSegment { file: Rc::clone(&file), offset: 0, len: 1 });
            queued += 1;
            assert!(queued <= MAX_QUEUED);
        }
    }
}
