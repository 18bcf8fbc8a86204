//! What the front reports about its work: the access log, the table of `sendoff explain`, and its status and its metrics.

pub(crate) mod access_log;
pub mod explain;
pub(crate) mod exposition;
pub(crate) mod gather;
pub(crate) mod limits;
pub(crate) mod log_line;
pub(crate) mod meters;
pub(crate) mod metrics;
pub(crate) mod mode;
pub(crate) mod pool_page;
pub(crate) mod repeated;
pub mod status;
pub(crate) mod status_page;
