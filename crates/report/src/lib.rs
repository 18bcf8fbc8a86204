//! The server's reports about its work: log lines, the table of `sendoff explain`, counters, the
//! figures of `sendoff status`. This crate holds data that other crates fill in and write out; it
//! asks no other component.
#![forbid(unsafe_code)]

pub mod access_log;
pub mod at_work;
pub mod explain;
pub mod limits;
pub mod log_line;
mod medium;
pub mod meters;
pub mod mode;
pub mod pool_page;
pub mod repeated;
pub mod seldom;
pub mod status;
pub mod traces;
mod warming;
pub mod workers;

pub use medium::Medium;
