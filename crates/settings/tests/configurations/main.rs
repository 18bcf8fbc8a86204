//! Configurations as a whole: what they mean, reports about wrong ones, and the documents about them.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod broken;
#[path = "../machine/complete.rs"]
mod complete;
mod docs;
mod examples;
#[path = "../machine/mod.rs"]
mod machine;
mod sites;
