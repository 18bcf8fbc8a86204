//! Reads the texts of a Lua table in place. `mlua` creates a reference for each key and value,
//! which costs more than the use of the texts.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use mlua::{Lua, Table, ffi};

/// Calls `visit` with each string key whose value is a string or a number, until `visit` returns
/// false. Metamethods are not called.
///
/// # Errors
/// Memory is exhausted while a number is converted to a string.
pub fn each_text(
    lua: &Lua,
    table: &Table,
    mut visit: impl FnMut(&[u8], &[u8]) -> bool,
) -> mlua::Result<()> {
    let mut panicked = None;
    // SAFETY: the table is the first value on the stack, its key and its value are the next two,
    // and all of them are popped. A number is converted to a string only in its place on the stack.
    // If Lua jumps over the closure, it jumps over no destructor, and a panic of `visit` does not
    // reach Lua.
    unsafe {
        lua.exec_raw::<()>(table, |state| {
            ffi::lua_pushnil(state);
            while panicked.is_none() && ffi::lua_next(state, 1) != 0 {
                if ffi::lua_type(state, 2) == ffi::LUA_TSTRING && ffi::lua_isstring(state, 3) != 0 {
                    let (key, value) = (bytes(state, 2), bytes(state, 3));
                    match catch_unwind(AssertUnwindSafe(|| visit(key, value))) {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(panic) => panicked = Some(panic),
                    }
                }
                ffi::lua_settop(state, 2);
            }
            ffi::lua_settop(state, 0);
        })?;
    }
    panicked.map_or(Ok(()), |panic| resume_unwind(panic))
}

/// # Safety
/// This place on the stack contains a string or a number, and does so as long as the bytes are
/// used.
unsafe fn bytes<'s>(state: *mut ffi::lua_State, place: std::ffi::c_int) -> &'s [u8] {
    let mut len = 0;
    // SAFETY: by the caller's promise Lua has a string there, or makes one.
    unsafe {
        let start = ffi::lua_tolstring(state, place, &raw mut len);
        std::slice::from_raw_parts(start.cast(), len)
    }
}
