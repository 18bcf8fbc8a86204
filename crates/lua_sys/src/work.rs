//! A check before library functions whose work grows with their arguments.
//!
//! In a coroutine 100 instructions pass between two checks, and each may call a library function
//! that works on megabytes: `utf8.len(("x"):rep(4000000))` takes 10 ms.

use std::cell::Cell;
use std::ffi::c_int;

use mlua::{Error, Function, Lua, ffi};

use crate::hook::check_caller;

/// Number of bytes and values that such functions may work on between two checks: some 0.2 ms.
const WORK: usize = 64 << 10;

/// Number of arguments whose length counts.
const MEASURED: c_int = 3;

thread_local! {
    /// Bytes and values since the last check.
    static UNCHECKED: Cell<usize> = const { Cell::new(0) };
}

/// A library function in C, with a check before it if it has much to do. Its messages stay: it runs
/// in the same frame.
///
/// # Errors
/// The function is not written in C, or has upvalues; or memory is exhausted.
pub fn worked(lua: &Lua, function: &Function) -> mlua::Result<Function> {
    let mut is_plain = false;
    // SAFETY: the function is the first value on the stack. It becomes the upvalue of the closure,
    // which is the result.
    let made = unsafe {
        lua.exec_raw::<Function>(function, |state| {
            is_plain = ffi::lua_tocfunction(state, 1).is_some()
                && ffi::lua_getupvalue(state, 1, 1).is_null();
            ffi::lua_settop(state, 1);
            ffi::lua_pushcclosure(state, checked, 1);
        })?
    };
    if is_plain { Ok(made) } else { Err(Error::runtime("not a plain function of a library")) }
}

/// # Safety
/// Only Lua may call it, with its state, as a closure made by [`worked`].
unsafe extern "C-unwind" fn checked(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: the arguments are on the stack, from 1 to `top`, and stay as they are. The upvalue is
    // a C function without upvalues, which finds the same arguments in this frame. No value with a
    // destructor is alive here.
    unsafe {
        let top = ffi::lua_gettop(state);
        let mut work = usize::try_from(top).unwrap_or(0);
        for place in 1..=top.min(MEASURED) {
            if matches!(ffi::lua_type(state, place), ffi::LUA_TSTRING | ffi::LUA_TTABLE) {
                work += ffi::lua_rawlen(state, place);
            }
        }
        let unchecked = UNCHECKED.get() + work;
        UNCHECKED.set(if unchecked < WORK { unchecked } else { 0 });
        if unchecked >= WORK {
            check_caller(state);
        }
        ffi::lua_tocfunction(state, ffi::lua_upvalueindex(1)).map_or(0, |function| function(state))
    }
}
