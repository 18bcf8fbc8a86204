//! Obtains certificates from an authority by ACME (RFC 8555) and renews them.
//!
//! ```text
//!  Wanted (from the configuration) ──▶ Agent ── conversation ──▶ authority: checks challenges
//!                                       │ ▲                       at the site's names
//!        state folder ◀── Store ────────┤ └── Server: the front answers challenges,
//!   fleet's engine ◀── Nodes ────────────┘     and serves with new certificates
//! ```
//!
//! The agent runs in a process of its own. Several servers may share its folder: the holder of a
//! lock asks the authority, the others adopt the stored certificates and answer the same
//! challenges. The nodes of a fleet do the same by values in their engine, each with a folder of
//! its own.
#![forbid(unsafe_code)]

mod agent;
mod answers;
mod client;
mod conversation;
mod dns;
mod ledger;
mod managed;
mod nodes;
mod schedule;
mod server;
mod store;
mod trouble;
mod wanted;

pub use agent::Agent;
pub use server::{CertificateReport, Server};
pub use wanted::is_same_work;

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
