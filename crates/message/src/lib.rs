//! Requests and responses as data, independent of the protocol: protocol code reads and writes
//! them, and all other code works with them.
#![forbid(unsafe_code)]

mod clock;
pub mod configured;
mod cut;
pub mod lscache;
pub mod request;
pub mod response;

pub use clock::{Clock, Shown};
pub use cut::{Cut, Fault};
