//! Pieces of a response body in the front's custody.

use std::rc::Rc;

use bytes::Bytes;

pub use super::open_file::OpenFile;

/// A piece of a response body. Moving it moves the custody of its bytes.
#[derive(Debug, Clone)]
pub enum Segment {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A range of an open file.
    File(FileSegment),
}

impl Segment {
    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => file.len,
        }
    }

    /// Whether the segment has no bytes.
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
