//! What the server reports about its work: log lines, the table of `sendoff explain`, counters, the figures of `sendoff status`. Data that
//! others fill in and write; nothing here asks anybody.
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
pub mod workers;

pub use medium::Medium;
