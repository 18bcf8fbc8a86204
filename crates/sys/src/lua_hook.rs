//! A check that Lua makes every N instructions, and that ends what runs.
//!
//! `mlua` has hooks, too. When such a hook fails, `mlua` resets the stack of the function that runs, which calls the `__close`
//! metamethods of its variables while hooks are off: a metamethod that loops would never end. An error that Lua itself raises leaves
//! the function first.

use std::cell::RefCell;
use std::ffi::{CStr, c_int};
use std::rc::Rc;

use mlua::{Lua, ffi};

/// Whether what runs may go on. The arguments are the file and the line that are being executed.
pub type Check = Rc<dyn Fn(&CStr, i32) -> bool>;

thread_local! {
    /// The check of what runs on this thread.
    static CHECK: RefCell<Option<Check>> = const { RefCell::new(None) };
}

/// Sets the check for what runs on this thread from now on.
pub fn set_check(check: &Check) {
    CHECK.with_borrow_mut(|current| *current = Some(Rc::clone(check)));
}

/// Has the check called every `instructions` instructions of the state, and of coroutines that it makes from now on.
///
/// # Errors
/// There is not enough memory.
pub fn install(lua: &Lua, instructions: u16) -> mlua::Result<()> {
    // SAFETY: the closure leaves the stack as it is, and `hook` is a function for as long as the program runs.
    unsafe {
        lua.exec_raw((), |state| {
            ffi::lua_sethook(state, Some(hook), ffi::LUA_MASKCOUNT, c_int::from(instructions));
        })
    }
}

/// # Safety
/// Lua calls it, with its state and its record of what is active.
unsafe extern "C-unwind" fn hook(state: *mut ffi::lua_State, active: *mut ffi::lua_Debug) {
    // SAFETY: both come from Lua, and `Sl` fills in the source and the line.
    let may_go_on = unsafe {
        ffi::lua_getinfo(state, c"Sl".as_ptr(), active);
        let file = CStr::from_ptr((&raw const (*active).short_src).cast());
        let check = CHECK.with_borrow(Clone::clone);
        check.is_none_or(|check| check(file, (*active).currentline))
    };
    if !may_go_on {
        // SAFETY: nothing is alive here that has a destructor, so that Lua may jump over this frame.
        unsafe { ffi::luaL_error(state, c"the script has used up what it may use".as_ptr()) };
    }
}
