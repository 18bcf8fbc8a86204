//! Parsed scripts.

use std::rc::Rc;

use mlua::Function;

/// A parsed script, for the [`Runtime`](crate::Runtime) that parsed it.
#[derive(Debug, Clone)]
pub struct Script {
    pub(crate) main: Function,
    pub(crate) name: Rc<str>,
    /// True if its text contains the word that waiting requires. Other scripts run without a
    /// coroutine of their own, which is faster.
    pub(crate) may_wait: bool,
}
