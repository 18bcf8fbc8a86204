//! Both ends of a link (`docs/handover.md`) as state machines: bytes and descriptors come in, events and wishes go out.
//!
//! There is no socket, no clock and no runtime in this crate. The caller receives and sends, gives what has come to the
//! machine, and does what the machine says. Descriptors are values of a type that the caller chooses, so that tests can
//! use numbers.
#![forbid(unsafe_code)]

pub mod front;
pub mod worker;
