//! Functions of the `string` library that could work for long within one instruction, limited in
//! time and memory.

use std::cell::Cell;
use std::rc::Rc;

use memchr::memmem;
use mlua::{Error, Function, IntoLua, Lua, LuaString, MultiValue, Result, Table, Value};

use crate::budget::Budget;
use crate::pattern::{Capture, Matcher};

/// The special characters of patterns.
const SPECIAL: &[u8] = b"^$*+?.([%-";

/// Steps that take as long as one call of Lua's interface, about 0.3 µs.
const CALL: u64 = 20;

/// Replaces functions in the `string` table.
pub(crate) fn replace(lua: &Lua, strings: &Table, budget: &Rc<Budget>) -> Result<()> {
    let own = |budget: &Rc<Budget>| Rc::clone(budget);
    let b = own(budget);
    let repeat = lua.create_function(move |lua, (text, times, between): Repeat| {
        repeat(lua, &b, &text, times, between.as_ref())
    })?;
    strings.raw_set("rep", repeat)?;
    for (name, is_find) in [("find", true), ("match", false)] {
        let b = own(budget);
        let function =
            lua.create_function(move |lua, (subject, pattern, init, plain): Arguments| {
                let plain =
                    plain.is_some_and(|plain| !matches!(plain, Value::Nil | Value::Boolean(false)));
                find(lua, &b, &subject, &pattern, init, is_find, plain)
            })?;
        strings.raw_set(name, function)?;
    }
    let b = own(budget);
    strings.raw_set(
        "gmatch",
        lua.create_function(move |lua, (subject, pattern, init)| {
            every(lua, &b, subject, pattern, init)
        })?,
    )?;
    let b = own(budget);
    strings.raw_set(
        "gsub",
        lua.create_function(move |lua, (subject, pattern, by, most)| {
            substitute(lua, &b, &subject, &pattern, by, most)
        })?,
    )
}

type Repeat = (LuaString, i64, Option<LuaString>);
type Arguments = (LuaString, LuaString, Option<i64>, Option<Value>);

fn repeat(
    lua: &Lua,
    budget: &Budget,
    text: &LuaString,
    times: i64,
    between: Option<&LuaString>,
) -> Result<LuaString> {
    let (text, between) = (text.as_bytes(), between.map(|between| between.as_bytes()));
    let between = between.as_deref().unwrap_or_default();
    let Ok(times @ 1..) = usize::try_from(times) else { return lua.create_string("") };
    let all = text.len().checked_mul(times);
    let all = all.zip(between.len().checked_mul(times - 1)).and_then(|(a, b)| a.checked_add(b));
    let all = all.ok_or_else(|| budget.out_of_memory())?;
    if all == 0 {
        return lua.create_string("");
    }
    budget.may_build(all)?;
    budget.charge(all as u64 / 16)?;
    let mut built = [&text[..], between].concat().repeat(times);
    built.truncate(all);
    lua.create_string(built)
}

/// The position for `init`, counted from 0; `None` if it is after the end.
fn beginning(init: Option<i64>, len: usize) -> Option<usize> {
    let at = match init.unwrap_or(1) {
        0 => 0,
        init @ 1.. => usize::try_from(init).map_or(usize::MAX, |init| init - 1),
        before => len.saturating_sub(usize::try_from(before.unsigned_abs()).unwrap_or(usize::MAX)),
    };
    (at <= len).then_some(at)
}

fn find(
    lua: &Lua,
    budget: &Budget,
    subject: &LuaString,
    pattern: &LuaString,
    init: Option<i64>,
    is_find: bool,
    is_plain: bool,
) -> Result<MultiValue> {
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let Some(init) = beginning(init, subject.len()) else {
        return Ok(MultiValue::from_iter([Value::Nil]));
    };
    if is_find && (is_plain || !pattern.iter().any(|byte| SPECIAL.contains(byte))) {
        budget.charge((subject.len() - init) as u64 / 16)?;
        let Some(at) = memmem::find(&subject[init..], &pattern) else {
            return Ok(MultiValue::from_iter([Value::Nil]));
        };
        let (start, end) = (init + at, init + at + pattern.len());
        return positions(start, end, MultiValue::new());
    }
    let (pattern, is_anchored) = match pattern.strip_prefix(b"^") {
        Some(rest) => (rest, true),
        None => (&pattern[..], false),
    };
    let mut matcher = Matcher::new(&subject, pattern, budget);
    for start in init..=subject.len() {
        if let Some(end) = matcher.at(start)? {
            if is_find {
                let count = matcher.captures().len();
                return positions(
                    start,
                    end,
                    captures(lua, &matcher, &subject, start, end, count)?,
                );
            }
            let count = matcher.captures().len().max(1);
            return captures(lua, &matcher, &subject, start, end, count);
        }
        if is_anchored {
            break;
        }
    }
    Ok(MultiValue::from_iter([Value::Nil]))
}

fn positions(start: usize, end: usize, captures: MultiValue) -> Result<MultiValue> {
    let mut values = captures;
    values.push_front(Value::Integer(as_integer(end)));
    values.push_front(Value::Integer(as_integer(start + 1)));
    Ok(values)
}

fn as_integer(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn captures(
    lua: &Lua,
    matcher: &Matcher<'_>,
    subject: &[u8],
    start: usize,
    end: usize,
    count: usize,
) -> Result<MultiValue> {
    (0..count).map(|index| capture(lua, matcher, subject, index, start, end)).collect()
}

fn capture(
    lua: &Lua,
    matcher: &Matcher<'_>,
    subject: &[u8],
    index: usize,
    start: usize,
    end: usize,
) -> Result<Value> {
    match matcher.capture(index, start, end)? {
        Capture::Part(from, len) => lua.create_string(&subject[from..from + len])?.into_lua(lua),
        Capture::Position(at) | Capture::Open(at) => Ok(Value::Integer(as_integer(at + 1))),
    }
}

/// Implements `string.gmatch`.
fn every(
    lua: &Lua,
    budget: &Rc<Budget>,
    subject: LuaString,
    pattern: LuaString,
    init: Option<i64>,
) -> Result<Function> {
    let len = subject.as_bytes().len();
    let next = Cell::new(beginning(init, len).unwrap_or(len + 1));
    let (last, budget) = (Cell::new(None), Rc::clone(budget));
    lua.create_function(move |lua, ()| {
        let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
        let mut matcher = Matcher::new(&subject, &pattern, &budget);
        for start in next.get()..=subject.len() {
            let Some(end) = matcher.at(start)? else { continue };
            // An empty match right after the previous match does not count.
            if last.get() == Some(end) {
                continue;
            }
            budget.work(CALL)?;
            next.set(end);
            last.set(Some(end));
            let count = matcher.captures().len().max(1);
            return captures(lua, &matcher, &subject, start, end, count);
        }
        next.set(subject.len() + 1);
        Ok(MultiValue::from_iter([Value::Nil]))
    })
}

/// Implements `string.gsub`.
fn substitute(
    lua: &Lua,
    budget: &Budget,
    subject: &LuaString,
    pattern: &LuaString,
    by: Value,
    most: Option<i64>,
) -> Result<(LuaString, i64)> {
    let replacement = Replacement::new(lua, by)?;
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let (pattern, is_anchored) = match pattern.strip_prefix(b"^") {
        Some(rest) => (rest, true),
        None => (&pattern[..], false),
    };
    let most = most.unwrap_or_else(|| as_integer(subject.len()) + 1);
    let mut matcher = Matcher::new(&subject, pattern, budget);
    let (mut at, mut last, mut count, mut built) = (0, None, 0, Vec::new());
    while count < most {
        match matcher.at(at)? {
            Some(end) if last != Some(end) => {
                count += 1;
                let found = Found { matcher: &matcher, subject: &subject, start: at, end };
                replacement.append(lua, budget, &found, &mut built)?;
                budget.may_build(built.len())?;
                (at, last) = (end, Some(end));
            }
            _ if at < subject.len() => {
                built.push(subject[at]);
                at += 1;
            }
            _ => break,
        }
        if is_anchored {
            break;
        }
    }
    built.extend_from_slice(subject.get(at..).unwrap_or_default());
    Ok((lua.create_string(built)?, count))
}

/// A match of a pattern in a subject.
struct Found<'a> {
    matcher: &'a Matcher<'a>,
    subject: &'a [u8],
    start: usize,
    end: usize,
}

/// The third argument of `string.gsub`.
enum Replacement {
    Text(Vec<u8>),
    Table(Table),
    Function(Function),
}

impl Replacement {
    fn new(lua: &Lua, by: Value) -> Result<Self> {
        Ok(match by {
            Value::String(text) => Self::Text(text.as_bytes().to_vec()),
            Value::Integer(_) | Value::Number(_) => {
                let text = lua.coerce_string(by)?;
                Self::Text(text.map_or_else(Vec::new, |text| text.as_bytes().to_vec()))
            }
            Value::Table(table) => Self::Table(table),
            Value::Function(function) => Self::Function(function),
            other => {
                let got = other.type_name();
                let why = format!(
                    "bad argument #3 to 'gsub' (string/function/table expected, got {got})"
                );
                return Err(Error::runtime(why));
            }
        })
    }

    /// Appends the replacement of a match, or the match itself if it stays.
    fn append(
        &self,
        lua: &Lua,
        budget: &Budget,
        found: &Found<'_>,
        built: &mut Vec<u8>,
    ) -> Result<()> {
        let Found { matcher, subject, start, end } = *found;
        let value: Value = match self {
            Self::Text(text) => return render(budget, found, text, built),
            Self::Table(table) => {
                budget.work(CALL)?;
                table.get(capture(lua, matcher, subject, 0, start, end)?)?
            }
            Self::Function(function) => {
                budget.work(CALL)?;
                let count = matcher.captures().len().max(1);
                function.call(captures(lua, matcher, subject, start, end, count)?)?
            }
        };
        let text = match value {
            Value::Nil | Value::Boolean(false) => None,
            Value::String(text) => Some(text),
            Value::Integer(_) | Value::Number(_) => lua.coerce_string(value)?,
            other => {
                let kind = other.type_name();
                return Err(Error::runtime(format!("invalid replacement value (a {kind})")));
            }
        };
        let text = text.as_ref().map(|text| text.as_bytes());
        built.extend_from_slice(text.as_deref().unwrap_or(&subject[start..end]));
        Ok(())
    }
}

/// Appends a replacement string with its captures inserted.
fn render(budget: &Budget, found: &Found<'_>, text: &[u8], built: &mut Vec<u8>) -> Result<()> {
    let Found { matcher, subject, start, end } = *found;
    budget.charge(text.len() as u64 / 4)?;
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'%', rest) {
        built.extend_from_slice(&rest[..at]);
        match rest.get(at + 1) {
            Some(b'%') => built.push(b'%'),
            Some(b'0') => built.extend_from_slice(&subject[start..end]),
            Some(digit @ b'1'..=b'9') => {
                match matcher.capture(usize::from(digit - b'1'), start, end)? {
                    Capture::Part(from, len) => built.extend_from_slice(&subject[from..from + len]),
                    Capture::Position(at) | Capture::Open(at) => {
                        built.extend_from_slice((at + 1).to_string().as_bytes());
                    }
                }
            }
            _ => return Err(Error::runtime("invalid use of '%' in replacement string")),
        }
        budget.may_build(built.len())?;
        rest = &rest[at + 2..];
    }
    built.extend_from_slice(rest);
    Ok(())
}
