//! JSON to Lua and back. Parsed text becomes Lua values at once, so the memory limit applies to it.

use std::fmt;
use std::io::{self, Write};

use mlua::{Error, Lua, LuaString, Result, Table, Value};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::budget::Budget;

/// Maximum depth of nested tables; serde_json has the same limit for parsing.
const MAX_DEPTH: u32 = 128;

/// Steps that take as long as making one value, about 0.3 µs.
const VALUE: u64 = 20;

/// Parses a JSON text.
pub(crate) fn decode(lua: &Lua, budget: &Budget, text: &LuaString) -> Result<Value> {
    let text = text.as_bytes();
    budget.charge(text.len() as u64)?;
    let mut reader = serde_json::Deserializer::from_slice(&text);
    let value = Seed(lua, budget).deserialize(&mut reader);
    value.and_then(|value| reader.end().map(|()| value)).map_err(|error| {
        if let Some(spent) = budget.spent() {
            Error::runtime(spent)
        } else if error.to_string().contains("not enough memory") {
            budget.out_of_memory()
        } else {
            Error::runtime(format!("json: {error}"))
        }
    })
}

/// Reads one value.
#[derive(Clone, Copy)]
struct Seed<'l>(&'l Lua, &'l Budget);

fn wrong<E: serde::de::Error>(error: Error) -> E {
    E::custom(error)
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<Value, D::Error> {
        self.1.work(VALUE).map_err(wrong)?;
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::NULL)
    }

    fn visit_bool<E>(self, value: bool) -> std::result::Result<Value, E> {
        Ok(Value::Boolean(value))
    }

    fn visit_i64<E>(self, value: i64) -> std::result::Result<Value, E> {
        Ok(Value::Integer(value))
    }

    #[expect(clippy::cast_precision_loss, reason = "as Lua reads numerals that no integer holds")]
    fn visit_u64<E>(self, value: u64) -> std::result::Result<Value, E> {
        Ok(i64::try_from(value).map_or(Value::Number(value as f64), Value::Integer))
    }

    fn visit_f64<E>(self, value: f64) -> std::result::Result<Value, E> {
        Ok(Value::Number(value))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> std::result::Result<Value, E> {
        self.0.create_string(value).map(Value::String).map_err(wrong)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<Value, A::Error> {
        let table = self.0.create_table().map_err(wrong)?;
        while let Some(value) = list.next_element_seed(self)? {
            table.raw_push(value).map_err(wrong)?;
        }
        Ok(Value::Table(table))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Value, A::Error> {
        let table = self.0.create_table().map_err(wrong)?;
        while let Some(key) = map.next_key_seed(self)? {
            let value = map.next_value_seed(self)?;
            table.raw_set(key, value).map_err(wrong)?;
        }
        Ok(Value::Table(table))
    }
}

/// Writes a value as JSON. A table is an array or an object ([`array_length`]) and keeps all of its
/// elements either way.
pub(crate) fn encode(lua: &Lua, budget: &Budget, value: &Value) -> Result<LuaString> {
    let mut out = Vec::new();
    write(budget, &mut out, value, 0)?;
    lua.create_string(out)
}

fn write(budget: &Budget, out: &mut Vec<u8>, value: &Value, depth: u32) -> Result<()> {
    budget.charge(1)?;
    budget.work(VALUE)?;
    budget.may_build(out.len())?;
    let failed = |error: io::Error| Error::runtime(format!("json: {error}"));
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        value if value.is_null() => out.extend_from_slice(b"null"),
        Value::Boolean(value) => write!(out, "{value}").map_err(failed)?,
        Value::Integer(value) => write!(out, "{value}").map_err(failed)?,
        Value::Number(number) if number.is_finite() => {
            serde_json::to_writer(out, number).map_err(|error| failed(error.into()))?;
        }
        Value::String(text) => write_text(budget, out, text)?,
        Value::Table(_) if depth == MAX_DEPTH => {
            return Err(Error::runtime("json: tables lie too deep within one another"));
        }
        Value::Table(table) => match array_length(budget, table)? {
            Some(length) => write_array(budget, out, table, length, depth)?,
            None => write_object(budget, out, table, depth)?,
        },
        other => {
            let kind = other.type_name();
            return Err(Error::runtime(format!("json: a {kind} has no JSON form")));
        }
    }
    Ok(())
}

/// The length of a table that is an array: it has a first element, all keys are positive integers,
/// and at most half of the places are holes. A few holes come from missing values (`{1, nil, 3}`);
/// with more, the keys are numbers such as ids.
fn array_length(budget: &Budget, table: &Table) -> Result<Option<i64>> {
    if table.raw_get::<Value>(1)?.is_nil() {
        return Ok(None);
    }
    let (mut elements, mut length, mut is_array) = (0_i64, 0, true);
    table.for_each(|key: Value, _: Value| {
        budget.charge(1)?;
        elements += 1;
        match key {
            Value::Integer(key) if key > 0 => length = length.max(key),
            _ => is_array = false,
        }
        Ok(())
    })?;
    Ok((is_array && length - elements <= elements).then_some(length))
}

fn write_array(
    budget: &Budget,
    out: &mut Vec<u8>,
    table: &Table,
    length: i64,
    depth: u32,
) -> Result<()> {
    out.push(b'[');
    for place in 1..=length {
        if place > 1 {
            out.push(b',');
        }
        write(budget, out, &table.raw_get(place)?, depth + 1)?;
    }
    out.push(b']');
    Ok(())
}

fn write_object(budget: &Budget, out: &mut Vec<u8>, table: &Table, depth: u32) -> Result<()> {
    out.push(b'{');
    let mut is_first = true;
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        match key {
            Value::String(key) => write_text(budget, out, &key)?,
            Value::Integer(key) => out.extend_from_slice(format!("\"{key}\"").as_bytes()),
            other => {
                let kind = other.type_name();
                return Err(Error::runtime(format!("json: a {kind} cannot be a key")));
            }
        }
        out.push(b':');
        write(budget, out, &value, depth + 1)?;
    }
    out.push(b'}');
    Ok(())
}

fn write_text(budget: &Budget, out: &mut Vec<u8>, text: &LuaString) -> Result<()> {
    budget.charge(text.as_bytes().len() as u64 / 4)?;
    let text = text.to_str().map_err(|_| Error::runtime("json: a string is not UTF-8"))?;
    serde_json::to_writer(out, &*text).map_err(|error| Error::runtime(format!("json: {error}")))
}
