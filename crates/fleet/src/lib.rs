//! Several nodes that act as one by a Redis or Valkey that they share (`docs/fleet.md`).
//!
//! ```text
//!  this node's purges ──▶ Outbox ──▶ sender ──▶ stream NAME:purges ──▶ reader ──▶ Obey
//!                                                                      (of each other node)
//!  keys ◀──▶ NAME:ticket-key:PERIOD ──▶ Tickets
//! ```
//! A [`Node`] belongs to one thread with a runtime of its own: no client waits for the engine.
//!
//! - `counted`: counts the bytes of answers
//! - [`engine`]: connections to the engine, and commands with a time limit
//! - [`record`]: the records of the stream
//! - [`outbox`]: purges that wait for the engine
//! - `notes`: notes on disk that purges wait
//! - [`position`]: the last record that this node has read, in memory and in a file
//! - `reader`: obeys records, and finds out that some are missing
//! - `keys`: the keys of session tickets
//! - [`state`]: the figures for `sendoff status`, metrics and the log
#![forbid(unsafe_code)]

mod counted;
mod engine;
mod keys;
mod node;
mod notes;
mod outbox;
mod position;
mod reader;
mod record;
mod state;

pub use node::{Node, Obey, Parts};
pub use outbox::Outbox;
pub use position::Positions;
pub use state::FleetState;
