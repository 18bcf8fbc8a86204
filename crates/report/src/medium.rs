//! Where the bytes of a response are.

/// What a piece of a body is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// Bytes in memory.
    Bytes,
    /// A range of an open file.
    File,
    /// A range of an open file that is so short that it is read when it is sent.
    ShortFile,
}
