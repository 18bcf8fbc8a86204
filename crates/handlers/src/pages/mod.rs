//! Pages about the server and its pools.

pub(crate) mod listing;
pub(crate) mod metrics;
pub(crate) mod pool;
pub(crate) mod status;
