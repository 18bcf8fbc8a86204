//! Encoded output that has not been sent.
//!
//! ```text
//!   wire:  [first slot][STDOUT head+bytes][OPEN][SEGMENT][STDOUT head+bytes, still growing]
//!                       ▲ sent             ▲ marks ▲      ▲ open
//! ```
//! Bytes are copied once, to the place from which they are sent. Records that name files or chunks
//! have an entry in `marks` until they begin to leave. Until then they may grow, be turned into
//! bytes when the lease of the file breaks, or be discarded when the client has closed the
//! connection.

use sendoff_fastcgi::handover::{FileId, MAX_FDS_PER_MESSAGE, MAX_RECORD_LEN, Record};
use sendoff_fastcgi::record::{HEADER_LEN, Header, Kind, MAX_ALIGNED_CONTENT};
use sendoff_fastcgi::region::Piece;

/// Space at the start for records that are created last and sent first: `TAKEN`, then `LENGTH` or
/// `SENT`.
const FIRST_SLOT: usize = 2 * MAX_RECORD_LEN;

/// After a broken lease has made the buffer large, it is shrunk to this capacity, in bytes.
const KEEP_CAPACITY: usize = 256 * 1024;

/// A segment that becomes bytes is read in pieces of this size, in bytes.
const READ_AT_ONCE: u64 = 1024 * 1024;

/// Encoded output for one link. See the module `queue` for its layout.
#[derive(Debug)]
pub struct Queue {
    wire: Vec<u8>,
    /// Start of the unsent bytes in `wire`; the bytes before it were sent or are the unused slot.
    sent: usize,
    /// Position of the header of the `STDOUT` record that still grows.
    open: Option<usize>,
    /// In order of `at`; entries before `sent` are removed.
    marks: Vec<Mark>,
    /// True if a part of a record may have been sent: only the rest of `wire` may follow on the
    /// link.
    in_flight: bool,
    /// Number of bytes in chunks that pieces in `wire` name.
    lent: usize,
    /// Number of bytes in files that segments have named since the queue was last empty.
    named: u64,
    /// `TAKEN` with its request id, until it has been sent.
    taken: Option<(u16, Record)>,
    /// It is before the unsent bytes.
    is_sealed: bool,
}

/// A record in `wire` that names a file or shared memory.
#[derive(Debug, Clone, Copy)]
struct Mark {
    at: usize,
    record: Record,
    request_id: u16,
}

impl Mark {
    fn names(&self, wanted: FileId) -> bool {
        matches!(self.record, Record::Open(file) | Record::Segment { file, .. } if file == wanted)
    }

    fn is_lending(&self) -> bool {
        matches!(self.record, Record::Region | Record::Piece(_))
    }

    /// True if the record needs a descriptor.
    fn has_descriptor(&self) -> bool {
        matches!(self.record, Record::Open(_) | Record::Region)
    }
}

impl Default for Queue {
    fn default() -> Self {
        let wire = vec![0; FIRST_SLOT];
        let sent = FIRST_SLOT;
        let (open, marks, in_flight, taken) = (None, Vec::new(), false, None);
        Self { wire, sent, open, marks, in_flight, lent: 0, named: 0, taken, is_sealed: false }
    }
}

impl Queue {
    /// Number of unsent bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.wire.len() - self.sent
    }

    /// True if all bytes have been sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of bytes in shared memory that unsent pieces name.
    #[inline]
    pub fn lent(&self) -> usize {
        self.lent
    }

    /// Number of bytes in files that segments have named since the queue was last empty.
    #[inline]
    pub fn named(&self) -> u64 {
        self.named
    }

    /// True if a part of a record may have been sent.
    #[inline]
    pub fn in_flight(&self) -> bool {
        self.in_flight
    }

    /// Appends body bytes to the last `STDOUT` record, or to a new one.
    #[inline]
    pub fn stdout(&mut self, request_id: u16, mut data: &[u8]) {
        while !data.is_empty() {
            let head = *self.open.get_or_insert_with(|| {
                let header = Header::new(Kind::STDOUT, request_id, 0).encode();
                self.wire.extend_from_slice(&header);
                self.wire.len() - HEADER_LEN
            });
            let room = MAX_ALIGNED_CONTENT - (self.wire.len() - head - HEADER_LEN);
            let (now, later) = data.split_at(data.len().min(room));
            self.wire.extend_from_slice(now);
            data = later;
            if now.len() == room {
                self.close_record();
            }
        }
    }

    /// Ends the growing `STDOUT` record: writes its length into its header.
    pub fn close_record(&mut self) {
        if let Some(head) = self.open.take() {
            let len = u16::try_from(self.wire.len() - head - HEADER_LEN).unwrap_or(u16::MAX);
            self.wire[head + 4..head + 6].copy_from_slice(&len.to_be_bytes());
        }
    }

    /// Appends whole records that the caller has encoded.
    pub fn raw(&mut self, records: &[u8]) {
        self.close_record();
        self.wire.extend_from_slice(records);
    }

    /// Appends a stream record other than `STDOUT`; empty `data` ends the stream.
    pub fn stream(&mut self, kind: Kind, request_id: u16, data: &[u8]) {
        self.close_record();
        let mut pieces = data.chunks(MAX_ALIGNED_CONTENT);
        let mut piece = pieces.next().unwrap_or_default();
        loop {
            let len = u16::try_from(piece.len()).unwrap_or(u16::MAX);
            self.wire.extend_from_slice(&Header::new(kind, request_id, len).encode());
            self.wire.extend_from_slice(piece);
            let Some(next) = pieces.next() else { return };
            piece = next;
        }
    }

    /// Appends a handover record.
    pub fn record(&mut self, request_id: u16, record: Record) {
        self.close_record();
        let names_file =
            matches!(record, Record::Open(_) | Record::Segment { .. } | Record::Recall(_));
        if names_file || matches!(record, Record::Region | Record::Piece(_)) {
            self.marks.push(Mark { at: self.wire.len(), record, request_id });
        }
        record.encode(request_id, &mut self.wire);
    }

    /// Appends a `SEGMENT`. If the last record is a `SEGMENT` that ends where this one begins and
    /// has not begun to leave, the two are joined. Returns the length of the resulting segment.
    pub fn segment(&mut self, request_id: u16, file: FileId, offset: u64, len: u64) -> u64 {
        self.named = self.named.saturating_add(len);
        let (mut start, mut length) = (offset, len);
        if let Some(Record::Segment { file: of, offset: at, length: so_far }) =
            self.growing(request_id)
            && of == file
            && at.checked_add(so_far) == Some(offset)
        {
            (start, length) = (at, so_far + len);
            self.unrecord();
        }
        self.record(request_id, Record::Segment { file, offset: start, length });
        length
    }

    /// Appends a `PIECE`, joined with the last record in the same way.
    pub fn piece(&mut self, request_id: u16, piece: Piece) {
        self.lent += piece.length as usize;
        let mut joined = piece;
        if let Some(Record::Piece(before)) = self.growing(request_id)
            && before.chunk == piece.chunk
            && !before.last
            && before.offset + before.length == piece.offset
        {
            joined.offset = before.offset;
            joined.length += before.length;
            self.unrecord();
        }
        self.record(request_id, Record::Piece(joined));
    }

    /// The marked record at the end of `wire`, if it belongs to this request and has not begun to
    /// leave.
    fn growing(&self, request_id: u16) -> Option<Record> {
        let last = self.marks.last()?;
        let is_at_end = self.open.is_none() && last.at + last.record.wire_len() == self.wire.len();
        (is_at_end && last.request_id == request_id).then_some(last.record)
    }

    /// Removes the last marked record, which is at the end of `wire`.
    fn unrecord(&mut self) {
        if let Some(last) = self.marks.pop() {
            self.wire.truncate(last.at);
        }
    }

    /// Puts `LENGTH` or `SENT` before all queued records. Call it only before any of them has been
    /// sent.
    pub fn first(&mut self, request_id: u16, record: Record) {
        debug_assert_eq!(self.sent, FIRST_SLOT);
        let mut wire = Vec::with_capacity(FIRST_SLOT);
        record.encode(request_id, &mut wire);
        self.sent = FIRST_SLOT - wire.len();
        self.wire[self.sent..FIRST_SLOT].copy_from_slice(&wire);
    }

    /// Puts `TAKEN` before everything that is queued for this request.
    pub fn taken(&mut self, request_id: u16, number: u64, at: u64) {
        debug_assert!(self.is_empty());
        self.taken = Some((request_id, Record::Taken { number, at }));
    }

    /// Prepares the queue for sending. `with_more`: bytes that are not in the queue follow.
    pub fn seal(&mut self, with_more: bool) {
        self.close_record();
        if self.is_empty() && !with_more || self.is_sealed {
            return;
        }
        if let Some((request_id, record)) = self.taken {
            let mut wire = Vec::with_capacity(FIRST_SLOT);
            record.encode(request_id, &mut wire);
            let start = self.sent - wire.len();
            self.wire[start..self.sent].copy_from_slice(&wire);
            (self.sent, self.is_sealed) = (start, true);
        }
    }

    /// Moves the content of all `STDOUT` records to the end of `out`; other records stay. `false`,
    /// and nothing is moved, if file segments stand between them or a record is half sent.
    pub fn take_stdout(&mut self, out: &mut Vec<u8>) -> bool {
        self.close_record();
        if !self.marks.is_empty() || self.sent != FIRST_SLOT {
            return false;
        }
        let (mut at, mut kept) = (FIRST_SLOT, FIRST_SLOT);
        // The queue contains only whole records that this worker has encoded.
        while let Some(Ok(head)) = self.wire[at..].first_chunk().map(|raw| Header::decode(*raw)) {
            let content = at + HEADER_LEN;
            let end = content + usize::from(head.content_len);
            if head.kind == Kind::STDOUT {
                out.extend_from_slice(&self.wire[content..end]);
            } else {
                self.wire.copy_within(at..end, kept);
                kept += end - at;
            }
            at = end;
        }
        self.wire.truncate(kept);
        true
    }

    /// The bytes for the next `sendmsg`, and the records whose descriptors must be attached, oldest
    /// first.
    pub fn batch(&self) -> (&[u8], impl Iterator<Item = Record>) {
        let riders = self.marks.iter().filter(|mark| mark.has_descriptor());
        let end = riders.clone().nth(MAX_FDS_PER_MESSAGE).map_or(self.wire.len(), |mark| mark.at);
        let riders = riders.take(MAX_FDS_PER_MESSAGE).map(|mark| mark.record);
        (&self.wire[self.sent..end], riders)
    }

    /// Records that the socket has taken `n` > 0 bytes of the batch, and with them all its
    /// descriptors.
    pub fn advance(&mut self, n: usize) {
        self.sent += n;
        self.taken = None;
        if self.is_empty() {
            self.clear();
            return;
        }
        self.in_flight = true;
        let (sent, mut riders) = (self.sent, 0);
        self.marks.retain(|mark| {
            // The first byte of the batch carried all its descriptors, so their records must
            // follow.
            let is_rider = mark.has_descriptor();
            riders += usize::from(is_rider);
            mark.at >= sent && !(is_rider && riders <= MAX_FDS_PER_MESSAGE)
        });
    }

    /// True if a `RECALL` of the file waits behind a partly sent record.
    pub fn has_recall(&self, file: FileId) -> bool {
        self.marks.iter().any(|mark| mark.record == Record::Recall(file))
    }

    /// True if an unsent record names the file.
    pub fn names(&self, file: FileId) -> bool {
        self.marks.iter().any(|mark| mark.names(file))
    }

    /// Bytes of the file in unsent `SEGMENT` records. A byte counts each time it is named.
    pub fn unsent_bytes(&self, file: FileId) -> u64 {
        let segments = self.marks.iter().filter_map(|mark| match mark.record {
            Record::Segment { file: of, length, .. } if of == file => Some(length),
            _ => None,
        });
        segments.fold(0, u64::saturating_add)
    }

    /// Turns the file's unsent segments into `STDOUT` records, with the bytes that `read` appends
    /// for an offset and a length, and removes its `OPEN`. `true`: the descriptor of the `OPEN` had
    /// not been sent, so the front does not know the file on this link.
    pub fn take_back<E>(
        &mut self,
        file: FileId,
        mut read: impl FnMut(u64, u64, &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<bool, E> {
        self.close_record();
        if !self.names(file) {
            return Ok(false);
        }
        let old = std::mem::take(&mut self.wire);
        let (mut copied, mut was_unknown, mut bytes) = (0, false, Vec::new());
        for mark in std::mem::take(&mut self.marks) {
            self.wire.extend_from_slice(&old[copied..mark.at]);
            copied = mark.at;
            match mark.record {
                Record::Open(of) if of == file => {
                    was_unknown = true;
                    copied += mark.record.wire_len();
                }
                Record::Segment { file: of, offset, length } if of == file => {
                    let (mut at, end) = (offset, offset + length);
                    while at < end {
                        let len = (end - at).min(READ_AT_ONCE);
                        bytes.clear();
                        read(at, len, &mut bytes)?;
                        self.stdout(mark.request_id, &bytes);
                        at += len;
                    }
                    self.close_record();
                    copied += mark.record.wire_len();
                }
                _ => self.marks.push(Mark { at: self.wire.len(), ..mark }),
            }
        }
        self.wire.extend_from_slice(&old[copied..]);
        Ok(was_unknown)
    }

    /// The files whose `OPEN` has not been sent.
    pub fn unsent_opens(&self) -> impl Iterator<Item = FileId> {
        self.marks.iter().filter_map(|mark| match mark.record {
            Record::Open(file) => Some(file),
            _ => None,
        })
    }

    /// Appends the rest of a record whose beginning was sent from the caller's memory.
    pub fn rest_of_record(&mut self, rest: [&[u8]; 2]) {
        debug_assert!(self.is_empty() && self.open.is_none());
        rest.iter().for_each(|piece| self.wire.extend_from_slice(piece));
        self.in_flight = true;
    }

    /// Discards the output, but not the log. Lent chunks are announced with empty pieces: the front
    /// may know their first part, and returns all of them.
    pub fn discard(&mut self) {
        let lending: Vec<Mark> =
            self.marks.iter().filter(|mark| mark.is_lending()).copied().collect();
        let log = self.unsent_log();
        self.clear();
        self.raw(&log);
        for Mark { record, request_id, .. } in lending {
            match record {
                Record::Piece(piece) if piece.last => {
                    let empty = Piece { offset: 0, length: 0, ..piece };
                    self.record(request_id, Record::Piece(empty));
                }
                Record::Piece(_) => {}
                region => self.record(request_id, region),
            }
        }
    }

    /// The `STDERR` records, if no byte of the queue was sent.
    fn unsent_log(&mut self) -> Vec<u8> {
        self.close_record();
        let mut log = Vec::new();
        let mut at = if self.in_flight { self.wire.len() } else { self.sent };
        while let Some(Ok(head)) = self.wire[at..].first_chunk().map(|raw| Header::decode(*raw)) {
            let end =
                at + HEADER_LEN + usize::from(head.content_len) + usize::from(head.padding_len);
            if head.kind == Kind::STDERR {
                log.extend_from_slice(&self.wire[at..end]);
            }
            at = end;
        }
        log
    }

    /// Empties the queue. The buffer is kept.
    pub fn clear(&mut self) {
        self.wire.truncate(FIRST_SLOT);
        self.wire.shrink_to(KEEP_CAPACITY);
        self.sent = FIRST_SLOT;
        self.open = None;
        self.marks.clear();
        self.in_flight = false;
        self.lent = 0;
        self.named = 0;
        self.is_sealed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: FileId = FileId(1);
    const B: FileId = FileId(2);

    fn segment(file: FileId) -> Record {
        Record::Segment { file, offset: 5, length: 3 }
    }

    fn encoded(records: &[Record]) -> Vec<u8> {
        let mut wire = Vec::new();
        records.iter().for_each(|record| record.encode(7, &mut wire));
        wire
    }

    fn stdout(text: &[u8]) -> Vec<u8> {
        let mut wire =
            Header::new(Kind::STDOUT, 7, text.len().try_into().unwrap()).encode().to_vec();
        wire.extend_from_slice(text);
        wire
    }

    fn read(offset: u64, len: u64, out: &mut Vec<u8>) -> Result<(), ()> {
        assert_eq!((offset, len), (5, 3));
        out.extend_from_slice(b"abc");
        Ok(())
    }

    fn filled() -> Queue {
        let mut queue = Queue::default();
        queue.stdout(7, b"x");
        for record in [Record::Open(A), segment(A), Record::Open(B), segment(B), segment(A)] {
            queue.record(7, record);
        }
        queue.stdout(7, b"y");
        queue
    }

    #[test]
    fn unsent_segments_become_bytes_and_the_file_was_never_known() {
        let mut queue = filled();
        queue.first(7, Record::Length(11));
        assert_eq!(queue.take_back(A, read), Ok(true));
        assert!(!queue.names(A) && queue.names(B));
        let (bytes, files) = queue.batch();
        let expected = [
            encoded(&[Record::Length(11)]),
            stdout(b"x"),
            stdout(b"abc"),
            encoded(&[Record::Open(B), segment(B)]),
            stdout(b"abc"),
            stdout(b"y"),
        ];
        assert_eq!(bytes, expected.concat());
        assert_eq!(files.collect::<Vec<_>>(), [Record::Open(B)]);
    }

    #[test]
    fn taken_is_first_and_survives_until_it_has_been_sent() {
        let taken = encoded(&[Record::Taken { number: 9, at: 8 }]);
        let mut queue = Queue::default();
        queue.taken(7, 9, 8);
        queue.seal(false);
        assert!(queue.is_empty(), "it goes with something else");
        queue.stdout(7, b"x");
        queue.first(7, Record::Length(1));
        queue.seal(false);
        let length = encoded(&[Record::Length(1)]);
        assert_eq!(
            queue.batch().0,
            [&taken, &length, &stdout(b"x")].map(|part| &part[..]).concat()
        );
        queue.discard();
        assert!(queue.is_empty());
        queue.stdout(7, b"y");
        queue.seal(false);
        queue.seal(false);
        assert_eq!(queue.batch().0, [taken.clone(), stdout(b"y")].concat());
        queue.advance(1);
        queue.seal(false);
        assert_eq!(queue.batch().0, [taken[1..].to_vec(), stdout(b"y")].concat());
        queue.advance(queue.len());
        queue.stdout(7, b"z");
        queue.seal(false);
        assert_eq!(queue.batch().0, stdout(b"z"));
        queue.clear();
        queue.taken(7, 9, 8);
        queue.seal(true);
        assert_eq!(queue.batch().0, taken, "bytes from elsewhere follow");
    }

    #[test]
    fn a_large_segment_is_read_in_pieces() {
        let mut queue = Queue::default();
        queue.segment(7, A, 1, 2 * READ_AT_ONCE);
        queue.segment(7, A, 0, 3);
        assert_eq!((queue.unsent_bytes(A), queue.unsent_bytes(B)), (2 * READ_AT_ONCE + 3, 0));
        assert_eq!(queue.named(), 2 * READ_AT_ONCE + 3);
        let mut asked = Vec::new();
        let taken = queue.take_back(A, |offset, len, out| {
            asked.push((offset, len));
            out.resize(usize::try_from(len).unwrap(), b'x');
            Ok::<(), ()>(())
        });
        assert_eq!(taken, Ok(false));
        assert_eq!(asked, [(1, READ_AT_ONCE), (1 + READ_AT_ONCE, READ_AT_ONCE), (0, 3)]);
        let mut out = Vec::new();
        assert!(queue.take_stdout(&mut out));
        assert_eq!((out.len() as u64, queue.unsent_bytes(A)), (2 * READ_AT_ONCE + 3, 0));
    }

    /// One byte of the first `SEGMENT` was sent, and both descriptors with it.
    #[test]
    fn what_has_begun_to_leave_stays() {
        let mut queue = filled();
        queue.close_record();
        let sent = 9 + 12 + 1;
        queue.advance(sent);
        assert_eq!(queue.take_back(A, read), Ok(false));
        let (bytes, mut files) = queue.batch();
        let expected = [
            encoded(&[segment(A)])[1..].to_vec(),
            encoded(&[Record::Open(B), segment(B)]),
            stdout(b"abc"),
            stdout(b"y"),
        ];
        assert_eq!(bytes, expected.concat());
        assert!(files.next().is_none() && queue.in_flight());
    }

    #[test]
    fn adjacent_segments_are_one_until_it_begins_to_leave() {
        let long = |length| encoded(&[Record::Segment { file: A, offset: 5, length }]);
        let mut queue = Queue::default();
        assert_eq!(queue.segment(7, A, 5, 3), 3);
        assert_eq!(queue.segment(7, A, 8, 2), 5);
        assert_eq!(queue.batch().0, long(5));
        // These do not continue the segment: another file, a gap, another request, a record in
        // between.
        for (request, file, offset) in [(7, B, 10), (7, A, 11), (8, A, 12)] {
            assert_eq!(queue.segment(request, file, offset, 1), 1);
        }
        queue.stdout(8, b"x");
        assert_eq!(queue.segment(8, A, 13, 1), 1);

        let mut queue = Queue::default();
        queue.segment(7, A, 5, 3);
        queue.advance(1);
        assert_eq!(queue.segment(7, A, 8, 2), 2);
        assert_eq!(queue.segment(7, A, 10, 2), 4);
        let rest = encoded(&[Record::Segment { file: A, offset: 8, length: 4 }]);
        assert_eq!(queue.batch().0, [&long(3)[1..], &rest].concat());
    }

    #[test]
    fn pieces_of_a_chunk_are_one_until_it_is_full() {
        let piece = |chunk, last, offset, length| Piece { chunk, last, offset, length };
        let mut queue = Queue::default();
        for next in [piece(3, false, 0, 5), piece(3, true, 5, 6), piece(3, false, 11, 1)] {
            queue.piece(7, next);
        }
        queue.stdout(7, b"x");
        queue.piece(7, piece(3, true, 12, 1));
        queue.piece(7, piece(3, true, 20, 1));
        let parts = [
            encoded(&[Record::Piece(piece(3, true, 0, 11)), Record::Piece(piece(3, false, 11, 1))]),
            stdout(b"x"),
            encoded(&[Record::Piece(piece(3, true, 12, 1)), Record::Piece(piece(3, true, 20, 1))]),
        ];
        assert_eq!(queue.batch().0, parts.concat());
        assert_eq!(queue.lent(), 14);
        queue.clear();
        assert_eq!(queue.lent(), 0);
    }

    #[test]
    fn output_that_goes_another_way_leaves_the_other_records_behind() {
        let log = |text: &[u8]| {
            let mut wire =
                Header::new(Kind::STDERR, 7, text.len().try_into().unwrap()).encode().to_vec();
            wire.extend_from_slice(text);
            wire
        };
        let (mut queue, mut out) = (Queue::default(), b"-".to_vec());
        queue.stdout(7, &[b'z'; MAX_ALIGNED_CONTENT + 1]);
        queue.stream(Kind::STDERR, 7, b"noted");
        queue.stdout(7, b"ab");
        queue.stream(Kind::STDERR, 7, b"too");
        assert!(queue.take_stdout(&mut out));
        assert_eq!(out, [&b"-"[..], &[b'z'; MAX_ALIGNED_CONTENT + 1], b"ab"].concat());
        queue.first(7, Record::Length(1));
        queue.stdout(7, b"c");
        queue.close_record();
        let left = [encoded(&[Record::Length(1)]), log(b"noted"), log(b"too"), stdout(b"c")];
        assert_eq!(queue.batch().0, left.concat());
        for mut queue in [filled(), {
            let mut queue = queue;
            queue.advance(1);
            queue
        }] {
            queue.close_record();
            let before = queue.batch().0.to_vec();
            assert!(!queue.take_stdout(&mut out));
            assert_eq!(queue.batch().0, before);
        }
    }

    #[test]
    fn a_full_record_is_followed_by_another() {
        let mut queue = Queue::default();
        queue.stdout(7, &[b'z'; MAX_ALIGNED_CONTENT]);
        queue.stdout(7, b"z");
        queue.close_record();
        let (bytes, _) = queue.batch();
        assert_eq!(bytes, [stdout(&[b'z'; MAX_ALIGNED_CONTENT]), stdout(b"z")].concat());
        queue.advance(queue.len());
        assert!(queue.is_empty() && !queue.in_flight());
    }
}
