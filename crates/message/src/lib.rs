//! Requests and responses as data, without a protocol: what protocols read and write, and what everything above works with.
#![forbid(unsafe_code)]

mod clock;
mod cut;
pub mod request;
pub mod response;

pub use clock::{Clock, Shown};
pub use cut::{Cut, Fault};
