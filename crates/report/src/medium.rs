//! The media that hold the bytes of a response.

/// The medium of a piece of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// Bytes in memory.
    Bytes,
    /// A range of an open file.
    File,
    /// A range of an open file that is so short that it is read when it is sent.
    ShortFile,
}
