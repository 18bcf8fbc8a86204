//! Calls of Lua's C interface that `mlua` lacks, as safe functions: the check of running code, the
//! check before library functions with much work, and the texts of a table.
#![allow(unsafe_code, reason = "Lua's C interface, and the timer of the check, are called by hand")]

mod hook;
mod table;
mod work;

pub use hook::{CHECK_EVERY, Check, Run, Watched, coroutine_create};
pub use table::each_text;
pub use work::worked;
