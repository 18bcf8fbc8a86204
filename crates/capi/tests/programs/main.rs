//! Programs on the library: in Rust, and in C by the generated header.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod files;
#[path = "../../../worker/tests/front/mod.rs"]
mod front;
mod header;
mod library;
mod memory;
