//! Response bodies of scripts: strings and ranges of files, in order.

use bytes::Bytes;
use mlua::{Error, Integer, Lua, LuaString, Result, Table, Value};

use crate::current::{Current, Functions, RunningScript, integer, text_or_nil};
use crate::exchange::{BodyPiece, Exchange, ScriptDecision};

/// Maximum number of pieces in a body.
const MAX_PIECES: usize = 4096;

/// Adds the functions behind `lighty.r.resp_body`.
pub(crate) fn add(functions: &Functions<'_>) -> Result<()> {
    functions.add("note_place", |lua, current, ()| current.note_place(lua))?;
    functions.add("add_content", |lua, current, value| change(lua, current, value, false))?;
    functions.add("set_content", |lua, current, value| change(lua, current, value, true))?;
    functions.add("content", |lua, current, key: LuaString| {
        current.with(|exchange| look(lua, exchange, &key.as_bytes()))
    })
}

fn look(lua: &Lua, exchange: &Exchange, key: &[u8]) -> Result<Value> {
    let pieces = exchange.content.as_deref();
    // The length of a file is known only when it is opened.
    let texts = || {
        pieces.unwrap_or_default().iter().map(|piece| match piece {
            BodyPiece::Text(text) => Some(&text[..]),
            BodyPiece::File { .. } => None,
        })
    };
    let len = || texts().map(|text| text.map(<[u8]>::len)).sum::<Option<usize>>();
    match key {
        b"len" => Ok(len().map_or(Value::Nil, |len| integer(len as u64))),
        b"bytes_in" => Ok(integer(len().unwrap_or_default() as u64)),
        b"bytes_out" => Ok(integer(0)),
        b"get" => text_or_nil(lua, texts().collect::<Option<Vec<_>>>().map(|texts| texts.concat())),
        _ => Err(Error::runtime("r.resp_body invalid method or param")),
    }
}

fn change(lua: &Lua, current: &Current, value: Value, is_set: bool) -> Result<bool> {
    let (pieces, message) = match value {
        Value::Table(list) => {
            let values = (1..=list.raw_len()).map(|number| list.raw_get::<Value>(number));
            listed(lua, current, values, false)?
        }
        value => match text(lua, current, value)? {
            Some(text) => (vec![BodyPiece::Text(text)], None),
            None => return Ok(false),
        },
    };
    current.note_place(lua)?;
    current.with_running(|running| {
        let RunningScript { exchange, decided, .. } = running;
        if let Some(message) = message {
            exchange.log(&message);
        }
        // A file chosen by the script is the whole body, until another body replaces it.
        match decided {
            Some(ScriptDecision::File(_)) if is_set => *decided = None,
            Some(ScriptDecision::File(_)) => return Ok(true),
            _ => {}
        }
        let content = exchange.content.get_or_insert_default();
        if is_set {
            content.clear();
        }
        content.extend(pieces);
        if content.len() > MAX_PIECES {
            let why = format!("the response has more than {MAX_PIECES} pieces");
            return Err(Error::runtime(why));
        }
        Ok(true)
    })
}

/// A string, or a number as a string; `None` for other values.
fn text(lua: &Lua, current: &Current, value: Value) -> Result<Option<Bytes>> {
    let value = match value {
        Value::String(text) => Some(text),
        Value::Integer(_) | Value::Number(_) => lua.coerce_string(value)?,
        _ => None,
    };
    value.map(|text| current.hand_out(&text)).transpose()
}

/// The pieces for these values up to the first invalid one, and its error. `is_older`: the values
/// are from `lighty.content`, where `length` is the end of the range.
pub(crate) fn listed(
    lua: &Lua,
    current: &Current,
    values: impl Iterator<Item = Result<Value>>,
    is_older: bool,
) -> Result<(Vec<BodyPiece>, Option<String>)> {
    let name = if is_older { "content" } else { "body" };
    let mut pieces = Vec::new();
    for (number, value) in (1..).zip(values) {
        if pieces.len() == MAX_PIECES {
            let why = format!("the response has more than {MAX_PIECES} pieces");
            return Err(Error::runtime(why));
        }
        match value? {
            Value::Nil => break,
            Value::Table(table) => match file(current, &table, is_older)? {
                Ok(piece) => pieces.extend(piece),
                Err(why) => return Ok((pieces, Some(format!("{name}[{number}]: {why}")))),
            },
            value => match text(lua, current, value)? {
                Some(text) => pieces.push(BodyPiece::Text(text)),
                None => {
                    let why = format!("{name}[{number}] is neither a string nor a table");
                    return Ok((pieces, Some(why)));
                }
            },
        }
    }
    Ok((pieces, None))
}

/// The file range in a table; `None` if it is empty.
fn file(
    current: &Current,
    table: &Table,
    is_older: bool,
) -> Result<std::result::Result<Option<BodyPiece>, String>> {
    let Value::String(path) = table.raw_get("filename")? else {
        return Ok(Err("the field \"filename\" must be a string".to_owned()));
    };
    let path = current.hand_out(&path)?.to_vec();
    let number = |field: &str| -> Result<Option<Integer>> { table.raw_get(field) };
    let offset = number("offset")?.unwrap_or(0);
    let len = match number("length")? {
        Some(end) if is_older => match end.checked_sub(offset) {
            Some(len @ 0..) => Some(len),
            _ if end == -1 => None,
            _ => return Ok(Err("offset > length".to_owned())),
        },
        Some(len @ 0..) => Some(len),
        Some(_) | None => None,
    };
    if is_older && offset < 0 {
        return Ok(Err("offset is negative".to_owned()));
    }
    if len == Some(0) {
        return Ok(Ok(None));
    }
    let len = len.map(i64::unsigned_abs);
    Ok(Ok(Some(BodyPiece::File { path, offset, len })))
}
