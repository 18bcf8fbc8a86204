//! The texts of a Lua table, read where they lie. `mlua` makes a reference of each key and value, which costs more than what is done with them.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use mlua::{Lua, Table, ffi};

/// Calls `visit` with each key that is a string and its value, if that is a string or a number, until `visit` returns false. No
/// metamethods are asked.
///
/// # Errors
/// There is not enough memory to make a string of a number.
pub fn each_text(
    lua: &Lua,
    table: &Table,
    mut visit: impl FnMut(&[u8], &[u8]) -> bool,
) -> mlua::Result<()> {
    let mut panicked = None;
    // SAFETY: the table is the first value on the stack, its key and its value are the next two, and nothing is left of them. A number is
    // changed into a string only where it lies on the stack. If Lua jumps over the closure, it jumps over no destructor, and a panic of
    // `visit` does not reach Lua.
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
/// At this place on the stack is a string or a number, and stays there for as long as the bytes are used.
unsafe fn bytes<'s>(state: *mut ffi::lua_State, place: std::ffi::c_int) -> &'s [u8] {
    let mut len = 0;
    // SAFETY: as the caller promises, Lua has a string there, or makes one.
    unsafe {
        let start = ffi::lua_tolstring(state, place, &raw mut len);
        std::slice::from_raw_parts(start.cast(), len)
    }
}
