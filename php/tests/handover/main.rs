//! Files and strings of scripts that leave as files.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod blobs;
mod chunks;
#[path = "../common/mod.rs"]
mod common;
mod cost;
mod explain;
mod guard;
mod lazy;
mod search;
mod streams;
