//! Workers of the front's own: the pool that chooses one, and the links over which they get requests (`docs/handover.md`).

pub(super) mod claims;
pub(super) mod deadline;
mod files;
mod guard;
pub(super) mod link;
pub(super) mod master;
pub(super) mod pool;
mod reader;
pub(super) mod region;
pub(super) mod register;
pub(super) mod report;
pub(super) mod tuner;
mod watch;
