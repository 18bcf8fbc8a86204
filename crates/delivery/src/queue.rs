//! The send queue: the segments still owed to one client, in order.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use sendoff_transport::Transport;

use super::blocked;
use super::in_memory::{self, InMemory};
use super::open_file::RangeSource;
use super::piece::{self, Piece};
use super::segment::{FileSegment, SMALL, Segment};
use super::spool::{GATHER, Spool, Spooled};

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

/// The most pieces of one `sendmsg`. The kernel takes 1024, but a page of 31 pieces without files
/// between them is already unusual.
const MAX_PIECES: usize = 64;

/// Bytes that one connection may be sent before other connections get their turn.
const TURN: u64 = 4 << 20;

/// The most bytes of a leased file per read. The buffer, one per event loop, stays in the CPU's
/// second-level cache.
const MOST_READ: usize = 256 * 1024;

/// The fewest bytes per read, even if the client took less last time.
const LEAST_READ: usize = 16 * 1024;

/// Bytes of a connection's first read.
const FIRST_READ: usize = 128 * 1024;

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

fn spool_is_short() -> io::Error {
    io::Error::other("the spool is shorter than what it holds")
}

/// The bytes of a range to send in one call.
fn at_once(len: u64) -> usize {
    usize::try_from(len.min(TURN)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::{Read, Write};
    use std::rc::Rc;

    use super::super::segment::OpenFile;
    use super::super::snapshots::{Identity, SnapshotLimits, Snapshots};
    use super::*;
    use sendoff_transport::Tcp;

    #[test]
    fn many_small_pieces_go_to_the_spool_as_one() {
        let mut queue = SendQueue::default();
        for _ in 0..100 * MEMORY_PIECES {
            queue.push_bytes(Bytes::from_static(b"x")).unwrap();
        }
        assert!(queue.segments.len() <= MEMORY_PIECES + 1);
        assert!(queue.has_room());
    }

    /// A client that takes the queue at once needs no spool file.
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

    /// 1,000 slow readers of generated pages would otherwise keep 256 MB.
    #[tokio::test(flavor = "current_thread")]
    async fn what_a_slow_client_does_not_take_leaves_memory() {
        let (file, _path, _worker) = leased(b"between");
        let (mut queue, mut expected) = (SendQueue::default(), Vec::new());
        let contents = numbers(2 * MEMORY_LIMIT);
        let push = |queue: &mut SendQueue, expected: &mut Vec<u8>| {
            for piece in contents.chunks(5000) {
                queue.push_bytes(Bytes::copy_from_slice(piece)).unwrap();
                expected.extend_from_slice(piece);
            }
        };
        queue.push_bytes(Bytes::from_static(b"head")).unwrap();
        queue.push_file(FileSegment { file, offset: 0, len: 7 });
        expected.extend_from_slice(b"headbetween");
        push(&mut queue, &mut expected);
        assert!(
            queue.in_memory.bytes() >= MEMORY_LIMIT
                && in_memory::of_this_loop() == queue.in_memory.bytes()
        );
        queue.note_slow();
        push(&mut queue, &mut expected);
        assert_eq!(
            (queue.in_memory.bytes(), in_memory::of_this_loop(), queue.segments.len()),
            (0, 0, 5)
        );
        assert!(queue.is_long());
        assert!(deliver(&mut queue).await == expected);
        assert!(!queue.is_long(), "it has caught up");
        queue.push_bytes(Bytes::from_static(b"next")).unwrap();
        assert_eq!(in_memory::of_this_loop(), 4);
        drop(queue);
        assert_eq!(in_memory::of_this_loop(), 0);
    }

    #[test]
    fn each_queue_keeps_little_when_all_together_keep_much() {
        let page = || {
            let mut queue = SendQueue::default();
            for _ in 0..25 {
                queue.push_bytes(vec![0; 8000].into()).unwrap();
            }
            queue
        };
        let queues: Vec<_> = (0..400).map(|_| page()).collect();
        assert!(queues[0].spool.is_none() && queues[399].spool.is_some());
        assert!(
            in_memory::of_this_loop() < in_memory::LOOP_LIMIT + 400 * (SMALL_LIMIT + 8000),
            "{}",
            in_memory::of_this_loop()
        );
        drop(queues);
        assert!(page().spool.is_none());
    }

    /// A client's connection, and the client.
    fn connection() -> (Tcp, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        let server = tokio::net::TcpStream::from_std(server).unwrap();
        (Tcp::new(server), client)
    }

    /// Sends the whole queue, while a client reads it.
    async fn deliver(queue: &mut SendQueue) -> Vec<u8> {
        let (mut socket, mut client) = connection();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            client.read_to_end(&mut all).unwrap();
            all
        });
        while queue.try_send(&mut socket).unwrap() != Progress::Done {
            poll_fn(|cx| socket.poll_writable(cx)).await.unwrap();
        }
        drop(socket);
        reader.join().unwrap()
    }

    fn numbers(len: usize) -> Vec<u8> {
        (0_u64..).flat_map(u64::to_be_bytes).take(len).collect()
    }

    /// A leased file with these contents, its path and a descriptor like the worker's.
    fn leased(contents: &[u8]) -> (Rc<OpenFile>, tempfile::TempPath, OwnedFd) {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        std::fs::write(&path, contents).unwrap();
        let file = OwnedFd::from(std::fs::File::open(&path).unwrap());
        sendoff_sys::lease::take(file.as_fd(), rustix::thread::gettid()).unwrap();
        let identity = Identity::new(&rustix::fs::fstat(&file).unwrap());
        let workers = file.try_clone().unwrap();
        let snapshots = Snapshots::new(SnapshotLimits::default());
        (OpenFile::guarded(file, identity, &snapshots), path, workers)
    }

    #[tokio::test(flavor = "current_thread")]
    async fn bytes_files_and_spooled_bytes_arrive_in_order() {
        let contents = numbers(3_000_000);
        let (file, _path, _worker) = leased(&contents);
        let (mut queue, mut expected) = (SendQueue::default(), Vec::new());
        for round in 0..2000_usize {
            let bytes = numbers(round);
            expected.extend_from_slice(&bytes);
            queue.push_bytes(bytes.into()).unwrap();
            if round % 500 == 0 {
                let range = round * 100..contents.len() - round;
                expected.extend_from_slice(&contents[range.clone()]);
                let (offset, len) = (range.start as u64, range.len() as u64);
                queue.push_file(FileSegment { file: Rc::clone(&file), offset, len });
            }
        }
        assert!(queue.spool.is_some());
        assert!(deliver(&mut queue).await == expected);
        assert!(queue.is_empty() && queue.spool.is_none() && queue.in_memory.bytes() == 0);
    }

    #[test]
    fn what_is_taken_is_in_order_and_not_more_than_asked_for() {
        let contents = numbers(1_000_000);
        let (leased, _path, _worker) = leased(&contents);
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        std::fs::write(&path, &contents).unwrap();
        let last = OpenFile::new(std::fs::File::open(&path).unwrap().into());
        let (mut queue, mut expected) = (SendQueue::default(), Vec::new());
        for file in [&leased, &last] {
            for round in 0..700_usize {
                let bytes = numbers(round);
                expected.extend_from_slice(&bytes);
                queue.push_bytes(bytes.into()).unwrap();
            }
            let range = 777..contents.len() - 777;
            expected.extend_from_slice(&contents[range.clone()]);
            let (offset, len) = (range.start as u64, range.len() as u64);
            queue.push_file(FileSegment { file: Rc::clone(file), offset, len });
        }
        assert!(queue.spool.is_some());
        let mut taken = Vec::new();
        for most in (1..).map(|round| round * 1000 % 65_537) {
            let at_most = queue.at_most(most);
            let piece = queue.take(most).unwrap();
            assert!(piece.remaining() <= at_most && at_most <= most);
            assert!(piece.has_remaining() || queue.is_empty());
            taken.extend_from_slice(&bytes_of(piece));
            if queue.is_empty() {
                break;
            }
        }
        assert!(taken == expected && queue.spool.is_none());
        assert_eq!(in_memory::of_this_loop(), 0);
    }

    fn bytes_of(mut piece: Piece) -> Bytes {
        piece.copy_to_bytes(piece.remaining())
    }

    #[test]
    fn nothing_is_taken_of_a_leased_file_that_changes() {
        let contents = numbers(100_000);
        let (file, path, worker) = leased(&contents);
        let mut queue = SendQueue::default();
        queue.push_file(FileSegment { file, offset: 0, len: contents.len() as u64 });
        assert!(bytes_of(queue.take(50_000).unwrap()) == contents[..50_000]);
        sendoff_sys::lease::give_up(worker.as_fd()).unwrap();
        std::fs::write(&path, vec![b'!'; 100_000]).unwrap();
        assert_eq!(queue.take(50_000).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        // A static file may change its contents, but becoming shorter is an error.
        let file = OpenFile::new(std::fs::File::open(&path).unwrap().into());
        queue = SendQueue::default();
        queue.push_file(FileSegment { file, offset: 99_999, len: 2 });
        assert!(bytes_of(queue.take(1).unwrap()) == b"!"[..]);
        assert_eq!(queue.take(10).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    /// Bytes that the client has not taken when the lease ends are lost; the bytes it gets before
    /// are correct.
    #[tokio::test(flavor = "current_thread")]
    async fn a_leased_file_that_changes_is_cut() {
        let contents = numbers(20_000_000);
        let (file, path, worker) = leased(&contents);
        let (mut socket, mut client) = connection();
        let mut queue = SendQueue::default();
        queue.push_file(FileSegment { file, offset: 0, len: contents.len() as u64 });
        poll_fn(|cx| socket.poll_writable(cx)).await.unwrap();
        while queue.try_send(&mut socket).unwrap() == Progress::Yield {}
        sendoff_sys::lease::give_up(worker.as_fd()).unwrap();
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .write_all(&[b'!'; 20_000_000])
            .unwrap();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            (client.read_to_end(&mut all).unwrap_err(), all)
        });
        let error = loop {
            match queue.try_send(&mut socket) {
                Ok(_) => poll_fn(|cx| socket.poll_writable(cx)).await.unwrap(),
                Err(error) => break error,
            }
        };
        let name = path.to_str().unwrap();
        assert!(error.to_string().contains(name), "{error} does not name {name}");
        drop((queue, socket));
        let (end, all) = reader.join().unwrap();
        assert_eq!(end.kind(), io::ErrorKind::ConnectionReset);
        assert!(all.len() < contents.len() && contents.starts_with(&all));
    }

    #[test]
    fn lines_are_gathered_before_they_are_written() {
        let mut spool = Spool::default();
        let line = [b'x'; 1000];
        for _ in 0..GATHER / line.len() {
            spool.append(&line);
        }
        assert!(matches!(spool.read(0), Some(Spooled::InMemory(_))), "a short spool needs no file");
        spool.append(&line);
        match spool.read(500) {
            Some(Spooled::InFile(_, len)) => {
                assert_eq!(len, (GATHER / line.len() * 1000 - 500) as u64);
            }
            other => panic!("{other:?}"),
        }
        let end = spool.stored();
        assert!(matches!(spool.read(end - 1), Some(Spooled::InMemory(b"x"))));
        assert!(spool.read(end).is_none());
    }
}
