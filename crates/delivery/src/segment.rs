//! Pieces of a response body in the front's custody.

use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;

use bytes::Bytes;
use sendoff_report::Medium;

use super::open_file::RangeSource;

pub use super::open_file::OpenFile;
pub use super::snapshots::Identity as FileState;

/// The largest range of an unguarded file, in bytes, that is read and sent in one call with the
/// preceding bytes, which takes less CPU time than `sendfile` (`docs/measurements.md`, "Small files
/// and pages in memory").
pub const SMALL: u64 = 32 * 1024;

/// A piece of a response body. Moving it moves the ownership of its bytes.
#[derive(Debug, Clone)]
pub enum Segment {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A range of an open file.
    File(FileSegment),
}

impl Segment {
    /// The length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => file.len,
        }
    }

    /// The medium of the bytes.
    #[must_use]
    pub fn medium(&self) -> Medium {
        match self {
            Self::Bytes(_) => Medium::Bytes,
            Self::File(_) if self.is_read() => Medium::ShortFile,
            Self::File(_) => Medium::File,
        }
    }

    /// Drops all bytes beyond the first `len`.
    pub fn truncate(&mut self, len: u64) {
        match self {
            Self::Bytes(bytes) => bytes.truncate(usize::try_from(len).unwrap_or(usize::MAX)),
            Self::File(file) => file.len = file.len.min(len),
        }
    }

    /// Splits the segment after `len` bytes, which must be fewer than it has. Returns the rest.
    pub fn split_off(&mut self, len: u64) -> Self {
        match self {
            Self::Bytes(bytes) => {
                Self::Bytes(bytes.split_off(usize::try_from(len).unwrap_or(usize::MAX)))
            }
            Self::File(file) => {
                let mut rest = file.clone();
                rest.offset += len;
                rest.len -= len;
                file.len = len;
                Self::File(rest)
            }
        }
    }

    /// True for a range of a file that is read when it is sent.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Self::File(part) if part.len <= SMALL && !part.file.is_guarded())
    }

    /// True if the segment has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A range of an open file.
#[derive(Debug, Clone)]
pub struct FileSegment {
    /// The file.
    pub file: Rc<OpenFile>,
    /// First byte, from the start of the file.
    pub offset: u64,
    /// Bytes left to send.
    pub len: u64,
}

impl FileSegment {
    /// Reads at most `most` bytes from the front of the range and removes them from it.
    ///
    /// # Errors
    /// The file cannot be read, or has lost the contents that were handed over.
    pub fn read(&mut self, most: usize) -> io::Result<Bytes> {
        let want = usize::try_from(self.len).map_or(most, |len| len.min(most));
        let read = |descriptor| -> io::Result<Bytes> {
            let mut buffer = vec![0; want];
            let read = rustix::io::retry_on_intr(|| {
                rustix::io::pread(&descriptor, &mut buffer, self.offset)
            })?;
            buffer.truncate(read);
            Ok(buffer.into())
        };
        let bytes = match self.file.source()? {
            RangeSource::Final(descriptor) => read(descriptor)?,
            RangeSource::Leased(descriptor) => {
                let bytes = read(descriptor)?;
                self.file.verify()?;
                bytes
            }
            RangeSource::Memory(contents) => {
                let from = usize::try_from(self.offset).unwrap_or(usize::MAX);
                let end = from.saturating_add(want).min(contents.len());
                contents.slice(from.min(end)..end)
            }
        };
        if bytes.is_empty() && want > 0 {
            return Err(self.file.became_shorter());
        }
        self.offset += bytes.len() as u64;
        self.len -= bytes.len() as u64;
        Ok(bytes)
    }

    /// The state of a file that is sent by `sendfile` and not guarded against changes. `None` for
    /// other files, and for contents in memory.
    pub fn state(&self) -> io::Result<Option<FileState>> {
        match self.file.source()? {
            RangeSource::Final(descriptor) if !self.file.is_guarded() => {
                Ok(Some(FileState::new(&rustix::fs::fstat(descriptor.as_fd())?)))
            }
            RangeSource::Final(_) | RangeSource::Leased(_) | RangeSource::Memory(_) => Ok(None),
        }
    }
}
