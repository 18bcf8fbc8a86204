//! What the front reports about its work: the access log, and the table of `sendoff explain`.

pub(crate) mod access_log;
pub mod explain;
pub(crate) mod log_line;
