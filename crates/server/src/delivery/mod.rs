//! The last stage: what is owed to a client, and the choice of the system call that sends it.
//!
//! Pages of a file that another process may change are never given to a socket: `sendfile` takes files whose contents are
//! final (sealed copies, spool files, and static files, whose meaning is that of every server), everything else is read,
//! checked and sent.

pub(crate) mod copying;
mod open_file;
mod queue;
pub mod segment;
pub(crate) mod snapshots;
mod spool;

pub use queue::{Progress, SendQueue};
pub use snapshots::{SnapshotLimits, SnapshotUsage, Snapshots};
