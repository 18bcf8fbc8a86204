//! The last stage: the segments still owed to a client, and the choice of the system call that
//! sends them.
//!
//! Pages of a file that another process may change are never given to a socket. `sendfile` is used
//! for files with final contents (sealed copies, spool files) and for static files, whose changes
//! may show in a response as in other web servers. The ranges of other files are read into memory,
//! and sent after a check of the lease.
#![forbid(unsafe_code)]

pub mod blocked;
pub mod copying;
mod disk;
pub mod in_memory;
mod open_file;
mod piece;
mod queue;
pub mod segment;
mod send_timer;
pub mod snapshots;
mod spool;

pub use disk::DiskStore;
pub use piece::Piece;
pub use queue::{Progress, SendQueue};
pub use send_timer::{SendTimer, send_pace};
pub use snapshots::{SnapshotLimits, SnapshotUsage, Snapshots};
pub use spool::{Spool, Spooled};
