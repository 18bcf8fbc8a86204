//! Workers of the front's own: the pool that chooses one, and the links over which they get
//! requests (`docs/handover.md`).
#![forbid(unsafe_code)]

pub mod claims;
pub mod deadline;
mod files;
mod guard;
pub mod link;
pub mod master;
pub mod pool;
pub mod posted;
mod reader;
pub mod region;
pub mod register;
pub mod tuner;
mod watch;
