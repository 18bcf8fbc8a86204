//! A worker against a front that the tests script.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]
#![allow(unreachable_pub, reason = "modules of a test program")]

mod besides;
mod blob;
mod body;
mod channel;
mod direct;
#[path = "../front/mod.rs"]
mod front;
mod link;
mod region;
mod shared_sender;
mod unread;
