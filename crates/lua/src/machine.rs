//! The machine's services for scripts. The crate itself does no input and output.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

/// The machine's services.
pub trait Machine: fmt::Debug {
    /// Metadata of a path; `None` if the file is missing or may not be accessed.
    fn stat(&self, path: &[u8]) -> Option<Stat>;

    /// The names in a folder, except `.` and `..`; `None` if it cannot be read.
    fn list(&self, path: &[u8]) -> Option<Vec<Vec<u8>>>;

    /// The target of a symbolic link; `None` if the path is none.
    fn link(&self, path: &[u8]) -> Option<Vec<u8>>;

    /// The time since 1970.
    fn now(&self) -> Duration;

    /// A random number.
    fn random(&self) -> u32;
}

/// The result of `stat` for a path.
#[derive(Debug, Clone, Default)]
pub struct Stat {
    /// Kind and permissions, as in `st_mode`.
    pub mode: u32,
    /// The number of the inode.
    pub inode: u64,
    /// Size in bytes.
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
    /// The media type for the file's name.
    pub content_type: Option<Bytes>,
    /// The validator that the server would send.
    pub etag: Option<Bytes>,
}
