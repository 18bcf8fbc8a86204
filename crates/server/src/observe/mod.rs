//! What the front tells about its work: the access log, and `sendoff explain`. Counters and a status page will stand here.

pub(crate) mod access_log;
pub mod explain;
