//! Lua scripts of sites, run in the event loop. `crates/lua` has the state, the sandbox and the interface; this folder gives it requests
//! and files, and turns what scripts decide into answers.
//!
//! ```text
//!  site/mod.rs (lua_before), site/rules.rs (lua) ──▶ SiteScripts::run ──▶ Next: go on, begin again, Answer
//!  filter of heads (lua_response) ─────────────────▶ SiteScripts::change
//! ```
#![forbid(unsafe_code)]

mod answer;
mod ask;
mod content;
mod machine;
mod scripts;
mod view;

pub use answer::ScriptAnswer;
pub use ask::{Asked, Asks};
pub use content::without_dots;
pub use scripts::{Call, Dictionaries, Next, ScriptShare, SiteScripts, Traces};
