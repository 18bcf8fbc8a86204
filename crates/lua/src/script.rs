//! Parsed scripts.

use std::rc::Rc;

use mlua::Function;

/// A script that has been parsed, for the [`Runtime`](crate::Runtime) that parsed it.
#[derive(Debug, Clone)]
pub struct Script {
    pub(crate) main: Function,
    pub(crate) name: Rc<str>,
    /// Its text has the word that a script needs which waits. Others run without a coroutine of their own, which is quicker.
    pub(crate) may_wait: bool,
}
