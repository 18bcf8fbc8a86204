//! The last stage: what is owed to a client, and the choice of the system call that sends it.

mod queue;
mod spool;

pub use queue::{Progress, SendQueue};
