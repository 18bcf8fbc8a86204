//! `sendoff.*`: extensions beyond mod_magnet.

use std::rc::Rc;
use std::time::Duration;

use mlua::{Lua, LuaString, Result, Table, Value};

use crate::current::{Current, Functions};
use crate::dictionary::Stored;
use crate::json;
use crate::machine::Machine;

/// The table `sendoff`.
pub(crate) fn table(lua: &Lua, current: &Rc<Current>, machine: &Rc<dyn Machine>) -> Result<Table> {
    let sendoff = lua.create_table()?;
    sendoff.raw_set("version", env!("CARGO_PKG_VERSION"))?;
    let of_json = Functions::new(lua, current)?;
    of_json
        .add("decode", |lua, current, text: LuaString| json::decode(lua, &current.budget, &text))?;
    of_json
        .add("encode", |lua, current, value: Value| json::encode(lua, &current.budget, &value))?;
    of_json.table.raw_set("null", Value::NULL)?;
    sendoff.raw_set("json", of_json.table)?;
    sendoff.raw_set("shared", shared(lua, current, machine)?)?;
    Ok(sendoff)
}

/// The key of an entry. Counters of `lighty.status` are in the same dictionary under other keys.
fn key(key: &LuaString) -> Vec<u8> {
    [b"\0entry:", &*key.as_bytes()].concat()
}

fn stored(value: &Value) -> Result<Stored> {
    Ok(match value {
        Value::String(text) => Stored::Text(text.as_bytes().to_vec().into()),
        Value::Integer(number) => Stored::Integer(*number),
        Value::Number(number) => Stored::Number(*number),
        Value::Boolean(value) => Stored::Boolean(*value),
        other => {
            let kind = other.type_name();
            let why = format!("a {kind} cannot be shared: strings, numbers, true and false can");
            return Err(mlua::Error::runtime(why));
        }
    })
}

/// Time of expiry for a lifetime in seconds, counted from `now`; `None`: no expiry.
fn until(now: Duration, seconds: Option<f64>) -> Result<Option<Duration>> {
    match seconds {
        None => Ok(None),
        Some(seconds) if seconds.is_nan() => {
            Err(mlua::Error::runtime("the time to keep it is not a number"))
        }
        // A time beyond the range of a duration means no expiry.
        Some(seconds) => Ok(Duration::try_from_secs_f64(seconds.max(0.0))
            .ok()
            .and_then(|seconds| now.checked_add(seconds))),
    }
}

fn shared(lua: &Lua, current: &Rc<Current>, machine: &Rc<dyn Machine>) -> Result<Table> {
    let functions = Functions::new(lua, current)?;
    let of = || Rc::clone(machine);
    let m = of();
    functions.add("get", move |lua, current, name: LuaString| {
        let found = current.with(|exchange| Ok(exchange.shared.get(&key(&name), m.now())))?;
        Ok(match found {
            None => Value::Nil,
            Some(Stored::Text(text)) => Value::String(lua.create_string(text)?),
            Some(Stored::Integer(number)) => Value::Integer(number),
            Some(Stored::Number(number)) => Value::Number(number),
            Some(Stored::Boolean(value)) => Value::Boolean(value),
        })
    })?;
    let m = of();
    type Entry = (LuaString, Value, Option<f64>);
    functions.add("set", move |_, current, (name, value, seconds): Entry| {
        current.with(|exchange| {
            if value.is_nil() {
                exchange.shared.remove(&key(&name));
                return Ok(true);
            }
            let until = until(m.now(), seconds)?;
            Ok(exchange.shared.set(&key(&name), stored(&value)?, until))
        })
    })?;
    let m = of();
    functions.add("add", move |_, current, (name, value, seconds): Entry| {
        let (value, now) = (stored(&value)?, m.now());
        let until = until(now, seconds)?;
        current.with(|exchange| Ok(exchange.shared.add(&key(&name), value, until, now)))
    })?;
    let m = of();
    type Sum = (LuaString, Option<i64>, Option<f64>);
    functions.add("incr", move |_, current, (name, by, seconds): Sum| {
        let (by, now) = (by.unwrap_or(1), m.now());
        let until = until(now, seconds)?;
        current.with(|exchange| Ok(exchange.shared.increase(&key(&name), by, until, now)))
    })?;
    functions.add("delete", |_, current, name: LuaString| {
        current.with(|exchange| {
            exchange.shared.remove(&key(&name));
            Ok(())
        })
    })?;
    Ok(functions.table)
}
