//! Calls of Lua's C interface that `mlua` lacks, as safe functions: the check of running code, the
//! check before library functions with much work, the texts of a table, and the environment of a
//! loaded text.
#![allow(unsafe_code, reason = "Lua's C interface, and the timer of the check, are called by hand")]

mod environment;
mod hook;
mod table;
mod work;

pub use environment::set_environment;
pub use hook::{CHECK_EVERY, Check, Run, Watched, coroutine_create};
pub use table::each_text;
pub use work::worked;
