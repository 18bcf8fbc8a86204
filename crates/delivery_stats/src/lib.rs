//! Statistics about responses of applications, learned on the running system, by which the front
//! chooses how they are delivered (`docs/responses.md`, "Delivery modes").
//!
//! - [`sizes`]: the probable size of a script's next response
//! - [`lending_stats`]: whether it is quicker to lend the client's socket, per size class
//! - [`patience`]: how long a worker waits for a client before the response goes to a spool file
#![forbid(unsafe_code)]

pub mod lending_stats;
pub mod patience;
pub mod sizes;
