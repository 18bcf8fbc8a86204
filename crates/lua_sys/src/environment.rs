//! The environment of a loaded text. `mlua` sets it to tables only, Lua's `load` to any value.

use mlua::{Function, Lua, Value, ffi};

/// Makes a value the environment of a chunk that was just loaded: of its first upvalue, `_ENV`.
///
/// # Errors
/// Memory is exhausted.
pub fn set_environment(lua: &Lua, chunk: &Function, environment: Value) -> mlua::Result<()> {
    // SAFETY: the chunk is the first value on the stack, the environment the second one and the
    // last. Both are popped.
    unsafe {
        lua.exec_raw::<()>((chunk, environment), |state| {
            ffi::lua_setupvalue(state, 1, 1);
            ffi::lua_settop(state, 0);
        })
    }
}
