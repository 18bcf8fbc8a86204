//! The front: event loops, each in a thread of its own, with listeners, connections, and a share of the pools.
#![forbid(unsafe_code)]

pub mod front;
