//! Lua scripts that decide about requests, as in lighttpd's mod_magnet: state, sandbox and
//! interface. This crate does no input and output.
//!
//! ```text
//!  Exchange (request, fields) ──▶ Runtime::run(Script) ──▶ Exchange (changed), ScriptDecision
//!                                       │ stat, time
//!                                       ▼
//!                                    Machine
//! ```
//!
//! Scripts may name any file that the process may read. The sandbox protects the process: no script
//! can keep it busy, use up its memory, or access another request (`budget.rs`, `prelude.lua`).

mod budget;
mod content;
mod current;
mod dictionary;
mod encoding;
mod exchange;
mod extras;
mod fragments;
mod functions;
mod interface;
mod json;
mod machine;
mod pattern;
mod runtime;
mod script;
mod strings;
mod wait;

#[cfg(test)]
mod tests;

/// Bytes of stack of a thread that runs scripts. Lua lets calls through functions that are not Lua's
/// nest 200 deep (`LUAI_MAXCCALLS`); in programs built without optimization that takes 4 MB.
pub const STACK: usize = 8 << 20;

pub use budget::Limits;
pub use dictionary::{DICTIONARY_BYTES, Dictionary, Stored};
pub use exchange::{Body, BodyPiece, Exchange, Phase, Physical, Request, ScriptDecision};
pub use fragments::{FragmentAnswer, FragmentCount, FragmentPermit, FragmentStore};
pub use machine::{Machine, Stat};
pub use runtime::Runtime;
pub use script::Script;
pub use wait::{Reply, Step, Subrequest, Waiting};
