//! Output that is encoded but not sent.
//!
//! ```text
//!   wire:  [LENGTH slot][STDOUT head+bytes][OPEN][SEGMENT][STDOUT head+bytes, still growing]
//!                       ▲ sent             ▲ marks ▲      ▲ open
//! ```
//! Bytes are copied once, into the place they are sent from. Records that name files are remembered in `marks` until
//! they begin to leave, so that they can be turned into bytes when the file's lease breaks.

use sendoff_fastcgi::handover::{FileId, MAX_FDS_PER_MESSAGE, Record};
use sendoff_fastcgi::record::{HEADER_LEN, Header, Kind, MAX_ALIGNED_CONTENT};

/// Room at the start for a `LENGTH` record, which is known last and sent first.
const LENGTH_SLOT: usize = HEADER_LEN + 8;

#[derive(Debug)]
pub(crate) struct Queue {
    wire: Vec<u8>,
    /// `wire` before this has been sent, or is the unused slot.
    sent: usize,
    /// Where the header of the `STDOUT` record stands that still grows.
    open: Option<usize>,
    /// In order of `at`; those before `sent` are gone.
    marks: Vec<Mark>,
    /// Part of a record may have been sent: nothing may be sent on the link but the rest of `wire`.
    in_flight: bool,
}

/// A record in `wire` that names a file.
#[derive(Debug, Clone, Copy)]
struct Mark {
    at: usize,
    record: Record,
    request_id: u16,
}

impl Default for Queue {
    fn default() -> Self {
        let wire = vec![0; LENGTH_SLOT];
        Self { wire, sent: LENGTH_SLOT, open: None, marks: Vec::new(), in_flight: false }
    }
}

impl Queue {
    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.wire.len() - self.sent
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether part of a record may have been sent.
    pub(crate) fn in_flight(&self) -> bool {
        self.in_flight
    }

    pub(crate) fn stdout(&mut self, request_id: u16, mut data: &[u8]) {
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

    /// Writes its length into the record that still grows.
    pub(crate) fn close_record(&mut self) {
        if let Some(head) = self.open.take() {
            let len = u16::try_from(self.wire.len() - head - HEADER_LEN).unwrap_or(u16::MAX);
            self.wire[head + 4..head + 6].copy_from_slice(&len.to_be_bytes());
        }
    }

    /// Whole records, encoded by the caller.
    pub(crate) fn raw(&mut self, records: &[u8]) {
        self.close_record();
        self.wire.extend_from_slice(records);
    }

    /// A stream record other than `STDOUT`; empty `data` ends the stream.
    pub(crate) fn stream(&mut self, kind: Kind, request_id: u16, data: &[u8]) {
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

    pub(crate) fn record(&mut self, request_id: u16, record: Record) {
        self.close_record();
        if matches!(record, Record::Open(_) | Record::Segment { .. } | Record::Recall(_)) {
            self.marks.push(Mark { at: self.wire.len(), record, request_id });
        }
        record.encode(request_id, &mut self.wire);
    }

    /// Puts `LENGTH` before everything. Only while nothing of the response has been sent.
    pub(crate) fn length(&mut self, request_id: u16, length: u64) {
        debug_assert_eq!(self.sent, LENGTH_SLOT);
        let mut record = Vec::with_capacity(LENGTH_SLOT);
        Record::Length(length).encode(request_id, &mut record);
        self.wire[..LENGTH_SLOT].copy_from_slice(&record);
        self.sent = 0;
    }

    /// What one `sendmsg` may take next, and the files whose descriptors must ride along, oldest first.
    pub(crate) fn batch(&self) -> (&[u8], impl Iterator<Item = FileId>) {
        let opens = self.marks.iter().filter_map(|mark| match mark.record {
            Record::Open(file) => Some((mark.at, file)),
            _ => None,
        });
        let end = opens.clone().nth(MAX_FDS_PER_MESSAGE).map_or(self.wire.len(), |(at, _)| at);
        let files = opens.take(MAX_FDS_PER_MESSAGE).map(|(_, file)| file);
        (&self.wire[self.sent..end], files)
    }

    /// `n` > 0 bytes of the batch, and all its descriptors, are on their way.
    pub(crate) fn advance(&mut self, n: usize) {
        self.sent += n;
        if self.is_empty() {
            self.clear();
            return;
        }
        self.in_flight = true;
        let (sent, mut opens) = (self.sent, 0);
        self.marks.retain(|mark| {
            // The descriptors of the whole batch went with its first byte: those OPEN records must follow, come what may.
            let is_open = matches!(mark.record, Record::Open(_));
            opens += usize::from(is_open);
            mark.at >= sent && !(is_open && opens <= MAX_FDS_PER_MESSAGE)
        });
    }

    /// The rest of a record whose beginning was sent from elsewhere.
    pub(crate) fn rest_of_record(&mut self, rest: [&[u8]; 2]) {
        debug_assert!(self.is_empty() && self.open.is_none());
        rest.iter().for_each(|piece| self.wire.extend_from_slice(piece));
        self.in_flight = true;
    }

    /// Forgets everything. The buffer stays.
    pub(crate) fn clear(&mut self) {
        self.wire.truncate(LENGTH_SLOT);
        self.sent = LENGTH_SLOT;
        self.open = None;
        self.marks.clear();
        self.in_flight = false;
    }
}
