//! An unlinked temporary file for what a slow client has not taken yet.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use crate::segment::{FileSegment, OpenFile};

/// Bytes of one response that may wait on disk. Beyond it the worker waits for the client, as behind every server.
pub(super) const SPOOL_LIMIT: u64 = 1 << 30;

/// Grows while a response is produced faster than it is taken; its blocks go back when the last segment is sent.
#[derive(Debug)]
pub(super) struct Spool {
    writer: File,
    file: Rc<OpenFile>,
    written: u64,
}

impl Spool {
    pub(super) fn create() -> io::Result<Self> {
        let writer = tempfile::tempfile()?;
        let file = OpenFile::new(writer.try_clone()?.into());
        Ok(Self { writer, file, written: 0 })
    }

    /// Stores `data` at the end and returns where it lies.
    pub(super) fn append(&mut self, data: &[u8]) -> io::Result<FileSegment> {
        let offset = self.written;
        self.writer.write_all_at(data, offset)?;
        self.written += data.len() as u64;
        Ok(FileSegment { file: Rc::clone(&self.file), offset, len: data.len() as u64 })
    }

    /// Whether `segment` ends where the next [`append`](Self::append) will begin.
    pub(super) fn continues(&self, segment: &FileSegment) -> bool {
        Rc::ptr_eq(&segment.file, &self.file) && segment.offset + segment.len == self.written
    }

    pub(super) fn is_full(&self) -> bool {
        self.written >= SPOOL_LIMIT
    }
}
