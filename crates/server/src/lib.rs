//! The front: event loops, each on its own thread, with listeners, connections, and a share of the
//! pools.
#![forbid(unsafe_code)]

pub mod front;
