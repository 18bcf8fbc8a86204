//! What the front reports about its work: the access log, the table of `sendoff explain`, and its status.

pub(crate) mod access_log;
pub mod explain;
pub(crate) mod log_line;
pub(crate) mod pool_page;
pub mod status;
