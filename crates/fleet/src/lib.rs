//! Several nodes that act as one by a Redis or Valkey that they share (`docs/fleet.md`).
//!
//! ```text
//!  this node's purges ──▶ Outbox ──▶ sender ──▶ stream NAME:purges ──▶ reader ──▶ Obey
//!                                                                      (of each other node)
//!  counts of requests ◀──▶ stream NAME:counts ◀──▶ Counts
//!  keys ◀──▶ NAME:ticket-key:PERIOD ──▶ Tickets
//!  agent for certificates ◀──▶ SealedValues ◀──▶ NAME:acme:...
//! ```
//! A [`Node`] belongs to one thread with a runtime of its own: no client waits for the engine.
//! [`SealedValues`] belong to the process for certificates.
//!
//! - `counted`: counts the bytes of answers
//! - [`engine`]: connections to the engine, and commands with a time limit
//! - [`record`]: the records of streams
//! - [`outbox`]: purges that wait for the engine
//! - `notes`: notes on disk that purges wait
//! - [`position`]: the last record that this node has read, in memory and in a file
//! - `reader`: obeys records, and finds out that some are missing
//! - `counts`: counts of requests, for limits that the nodes share
//! - `keys`: the keys of session tickets
//! - `sealed`: values that only the nodes can read
//! - `lock`: the lock whose owner changes them
//! - [`state`]: the figures for `sendoff status`, metrics and the log
#![forbid(unsafe_code)]

mod counted;
mod counts;
mod engine;
mod keys;
mod lock;
mod node;
mod notes;
mod outbox;
mod position;
mod reader;
mod record;
mod sealed;
mod state;

pub use counts::Counts;
pub use lock::FleetLock;
pub use node::{Node, Obey, Parts};
pub use outbox::Outbox;
pub use position::Positions;
pub use sealed::{NotShared, SealedValues};
pub use state::FleetState;
