//! Both ends of a link (`docs/handover.md`) as state machines: bytes and descriptors come in,
//! events and instructions go out.
//!
//! This crate uses no sockets, clocks or runtime. The caller receives and sends, passes what it has
//! received to the machine, and does what the machine returns. The caller chooses the type of
//! descriptors, so tests can use numbers.
#![forbid(unsafe_code)]

pub mod front;
pub mod worker;
