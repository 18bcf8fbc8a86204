//! Runs the Lua scripts of sites in the event loop. `crates/lua` has the state, the sandbox and the
//! interface; this crate passes requests and files to it, and turns the decisions of scripts into
//! answers.
//!
//! ```text
//!  crates/site: lib.rs (lua_before), rules.rs (lua) ──▶ SiteScripts::run ──▶ ScriptsResult
//!  crates/site: lib.rs, run_on_head (lua_response) ───▶ SiteScripts::change
//! ```
#![forbid(unsafe_code)]

mod answer;
mod ask;
mod content;
mod machine;
mod scripts;
mod shared;
mod view;

pub use answer::ScriptAnswer;
pub use ask::{Asked, Asks};
pub use content::without_dots;
pub use scripts::{Call, ScriptShare, ScriptsResult, SiteScripts, Traces};
pub use sendoff_lua::STACK;
pub use shared::SharedByScripts;
