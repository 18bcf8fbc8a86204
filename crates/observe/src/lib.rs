//! The figures of all event loops, and the pages that show them: metrics, the status page, the
//! upstreams in `sendoff status`.
#![forbid(unsafe_code)]

pub mod exposition;
pub mod gather;
pub mod metrics;
pub mod status_page;
pub mod upstreams;
