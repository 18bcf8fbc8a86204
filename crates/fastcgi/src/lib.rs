//! FastCGI 1.0 records and the handover records of `docs/handover.md`, for both roles. No I/O.
//!
//! Numbers on the wire are big-endian. Section numbers refer to the FastCGI specification, version
//! 1.0.
#![forbid(unsafe_code)]

pub mod channel;
mod decoder;
pub mod direct;
mod error;
pub mod frames;
pub mod handover;
pub mod params;
pub mod record;
pub mod region;

pub use decoder::{Decoder, RecordPart};
pub use error::Error;
