//! PHP pools: responses, variables, limits, processes, and the parts of PHP that they share.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod compression;
mod crash;
mod deadline;
mod hosted;
mod hosted_refusals;
mod hosted_surroundings;
mod opcache;
mod pool_pages;
mod pools;
mod responses;
mod sandbox;
mod slow;
mod superglobals;
mod worker_mode;
