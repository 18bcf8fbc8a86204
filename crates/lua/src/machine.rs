//! What scripts may ask of the machine. The crate itself does no input and output.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

/// The machine.
pub trait Machine: fmt::Debug {
    /// What is at a path; `None`: nothing that can be seen.
    fn stat(&self, path: &[u8]) -> Option<Stat>;

    /// The names in a folder, except `.` and `..`.
    fn list(&self, path: &[u8]) -> Option<Vec<Vec<u8>>>;

    /// Where a symbolic link leads.
    fn link(&self, path: &[u8]) -> Option<Vec<u8>>;

    /// The time since 1970.
    fn now(&self) -> Duration;

    /// A number by chance.
    fn random(&self) -> u32;
}

/// What `stat` says of a path.
#[derive(Debug, Clone, Default)]
pub struct Stat {
    /// Kind and permissions, as in `st_mode`.
    pub mode: u32,
    /// The number of the inode.
    pub inode: u64,
    /// Bytes.
    pub size: i64,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The last access, in seconds and nanoseconds.
    pub accessed: (i64, i64),
    /// The last change of the contents.
    pub modified: (i64, i64),
    /// The last change of the inode.
    pub changed: (i64, i64),
    /// The media type that the name says.
    pub content_type: Option<Bytes>,
    /// The validator that the server would send.
    pub etag: Option<Bytes>,
}
