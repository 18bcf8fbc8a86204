//! The pages that show figures of all event loops, and how the figures come together.

pub(crate) mod exposition;
pub mod gather;
pub(crate) mod metrics;
pub(crate) mod status_page;
pub mod upstreams;
