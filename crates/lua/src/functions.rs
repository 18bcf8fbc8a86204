//! `lighty.c`: helper functions for scripts.

use std::rc::Rc;

use mlua::{
    Error, Lua, LuaString, MetaMethod, MultiValue, Result, Table, UserData, UserDataMethods, Value,
};

use crate::budget::Budget;
use crate::current::{Functions, integer, text_or_nil};
use crate::encoding;
use crate::exchange::ScriptDecision;
use crate::machine::{Machine, Stat};

/// Maximum number of a folder's names that scripts get.
const MAX_NAMES: usize = 10_000;

/// Steps that take as long as making one entry of a table, about 0.5 µs.
const ENTRY: u64 = 40;

/// Adds the functions of `lighty.c` from strings to strings.
pub(crate) fn add(c: &Functions<'_>) -> Result<()> {
    let text = |name: &'static str, change: fn(&[u8]) -> Option<Vec<u8>>| {
        // As in lighttpd, the last argument counts, and a missing argument is an empty string.
        c.add(name, move |lua, current, arguments: mlua::Variadic<Value>| {
            let last = arguments.into_iter().next_back().unwrap_or(Value::Nil);
            let given =
                if last.is_nil() { Some(lua.create_string("")?) } else { lua.coerce_string(last)? };
            let Some(given) = given else {
                return Err(Error::runtime(format!(
                    "bad argument #1 to '{name}' (string expected)"
                )));
            };
            let given = given.as_bytes();
            if given.is_empty() {
                return Ok(MultiValue::from_iter([text_or_nil(lua, Some(""))?]));
            }
            current.budget.charge(given.len() as u64 / 4)?;
            match change(&given) {
                // These two return no value on an error, instead of nil.
                None if matches!(name, "hexdec" | "quoteddec") => Ok(MultiValue::new()),
                changed => Ok(MultiValue::from_iter([text_or_nil(lua, changed)?])),
            }
        })
    };
    text("b64dec", |text| encoding::from_base64(text, false))?;
    text("b64enc", |text| Some(encoding::base64(text, false).into_bytes()))?;
    text("b64urldec", |text| encoding::from_base64(text, true))?;
    text("b64urlenc", |text| Some(encoding::base64(text, true).into_bytes()))?;
    text("hexdec", encoding::from_hex)?;
    text("hexenc", |text| Some(encoding::hex(text).into_bytes()))?;
    text("xmlenc", |text| Some(encoding::xml(text)))?;
    text("urldec", |text| Some(encoding::from_url(text)))?;
    text("urlenc", |text| Some(encoding::url(text)))?;
    text("urlenc_normalize", |text| Some(encoding::normalised(text)))?;
    text("fspath_simplify", |text| Some(encoding::simplified(text)))?;
    text("quoteddec", encoding::from_quoted)?;
    text("quotedenc", |text| Some(encoding::quoted(text)))?;
    text("bsdec", |text| Some(encoding::from_escaped(text)))?;
    text("bsenc", |text| Some(encoding::escaped(text, false)))?;
    text("bsenc_json", |text| Some(encoding::escaped(text, true)))?;
    digests(c)?;
    lists(c)
}

fn digests(c: &Functions<'_>) -> Result<()> {
    c.add("md", |lua, current, (algorithm, data): (LuaString, LuaString)| {
        current.budget.charge(data.as_bytes().len() as u64 / 4)?;
        text_or_nil(lua, encoding::digest(&algorithm.as_bytes(), &data.as_bytes()))
    })?;
    c.add("hmac", |lua, current, (algorithm, key, data): (LuaString, LuaString, LuaString)| {
        current.budget.charge((key.as_bytes().len() + data.as_bytes().len()) as u64 / 4)?;
        let code = encoding::hmac(&algorithm.as_bytes(), &key.as_bytes(), &data.as_bytes());
        text_or_nil(lua, code)
    })?;
    c.add("digest_eq", |_, current, (one, other): (LuaString, LuaString)| {
        current.budget.charge((one.as_bytes().len() + other.as_bytes().len()) as u64 / 4)?;
        let digests =
            encoding::from_hex(&one.as_bytes()).zip(encoding::from_hex(&other.as_bytes()));
        Ok(digests.is_some_and(|(one, other)| encoding::is_same_secret(&one, &other)))
    })?;
    c.add("secret_eq", |_, current, (one, other): (LuaString, LuaString)| {
        current.budget.charge(one.as_bytes().len() as u64 / 4)?;
        Ok(encoding::is_same_secret(&one.as_bytes(), &other.as_bytes()))
    })
}

fn lists(c: &Functions<'_>) -> Result<()> {
    type Pairs<'p> = &'p mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>;
    let table = |lua: &Lua, budget: &Budget, pairs: Pairs<'_>| {
        let table = lua.create_table()?;
        for (name, value) in pairs {
            budget.work(ENTRY)?;
            table.raw_set(lua.create_string(name)?, lua.create_string(value)?)?;
        }
        Ok::<Table, Error>(table)
    };
    c.add("urldec_query", move |lua, current, text: Option<LuaString>| {
        let Some(text) = text else { return lua.create_table() };
        current.budget.charge(text.as_bytes().len() as u64)?;
        table(lua, &current.budget, &mut encoding::from_query(&text.as_bytes()))
    })?;
    c.add("cookie_tokens", move |lua, current, text: Option<LuaString>| {
        let Some(text) = text else { return lua.create_table() };
        current.budget.charge(text.as_bytes().len() as u64)?;
        table(lua, &current.budget, &mut encoding::cookies(&text.as_bytes()).into_iter())
    })?;
    c.add("header_tokens", |lua, current, text: Option<LuaString>| {
        let Some(text) = text else { return lua.create_table() };
        current.budget.charge(text.as_bytes().len() as u64)?;
        let tokens = encoding::tokens(&text.as_bytes());
        let list = lua.create_table()?;
        for token in tokens {
            current.budget.work(ENTRY)?;
            list.raw_push(lua.create_string(token)?)?;
        }
        Ok(list)
    })
}

/// Adds the functions that query the machine.
pub(crate) fn add_machine(
    c: &Functions<'_>,
    inner: &Functions<'_>,
    machine: &Rc<dyn Machine>,
) -> Result<()> {
    let of = || Rc::clone(machine);
    let m = of();
    c.add("time", move |_, _, ()| Ok(m.now().as_secs()))?;
    let m = of();
    c.add("hrtime", move |_, _, ()| {
        let now = m.now();
        Ok((now.as_secs(), now.subsec_nanos()))
    })?;
    let m = of();
    c.add("rand", move |_, _, ()| Ok(m.random() >> 1))?;
    let m = of();
    c.add("readlink", move |lua, current, path: LuaString| {
        current.budget.charge(100)?;
        text_or_nil(lua, m.link(&path.as_bytes()))
    })?;
    inner.add("query_pair", |lua, current, (name, value): (LuaString, Option<LuaString>)| {
        current.budget.charge(name.as_bytes().len() as u64)?;
        let mut pair = encoding::query_part(&name.as_bytes(), true);
        if let Some(value) = value {
            current.budget.charge(value.as_bytes().len() as u64)?;
            pair.push(b'=');
            pair.extend(encoding::query_part(&value.as_bytes(), false));
        }
        lua.create_string(pair)
    })?;
    let m = of();
    inner.add("list", move |lua, current, path: LuaString| {
        current.budget.charge(1000)?;
        let Some(names) = m.list(&path.as_bytes()) else { return Ok(None) };
        current.budget.charge(names.len() as u64)?;
        let names = names.iter().take(MAX_NAMES).map(|name| lua.create_string(name));
        lua.create_sequence_from(names.collect::<Result<Vec<_>>>()?).map(Some)
    })?;
    let (m, current) = (of(), Rc::clone(inner.current));
    let stat = inner.lua.create_function(move |lua, path: Option<LuaString>| {
        current.budget.charge(100)?;
        let Some(path) = path.filter(|path| !path.as_bytes().is_empty()) else { return Ok(None) };
        let Some(stat) = m.stat(&path.as_bytes()) else { return Ok(None) };
        let (path, current) = (path.as_bytes().to_vec(), Rc::clone(&current));
        let kind = stat.content_type.clone();
        let send = Box::new(move |lua: &Lua| {
            current.note_place(lua)?;
            current.with_running(|running| {
                running.decided = Some(ScriptDecision::File(path.clone()));
                running.media_type.clone_from(&kind);
                running.exchange.content = None;
                Ok(())
            })
        });
        lua.create_userdata(StatResult { stat, send }).map(Some)
    })?;
    inner.table.raw_set("stat", stat)
}

/// A function that chooses a file as the response.
type Choose = Box<dyn Fn(&Lua) -> Result<()>>;

/// The result of `lighty.stat`.
struct StatResult {
    stat: Stat,
    /// Chooses the file as the response.
    send: Choose,
}

impl UserData for StatResult {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_meta_method(MetaMethod::Index, |lua, found, key: LuaString| {
            found.field(lua, &key.as_bytes())
        });
        methods.add_meta_method(MetaMethod::NewIndex, |_, _, _: (Value, Value)| -> Result<()> {
            Err(Error::runtime("lua table is read-only"))
        });
    }
}

impl StatResult {
    fn field(&self, lua: &Lua, key: &[u8]) -> Result<Value> {
        let stat = &self.stat;
        let is = |kind: u32| Ok(Value::Boolean(stat.mode & 0o170_000 == kind));
        let whole = |(seconds, _): (i64, i64)| Ok(Value::Integer(seconds));
        let both =
            |time: (i64, i64)| lua.create_function(move |_, ()| Ok(time)).map(Value::Function);
        match key {
            b"content-type" => text_or_nil(lua, stat.content_type.as_ref()),
            b"etag" => text_or_nil(lua, stat.etag.as_ref()),
            b"http-response-send-file" => {
                (self.send)(lua)?;
                // As in lighttpd: scripts return this value.
                Ok(Value::Integer(200))
            }
            b"is_file" => is(0o100_000),
            b"is_dir" => is(0o040_000),
            b"is_char" => is(0o020_000),
            b"is_block" => is(0o060_000),
            b"is_socket" => is(0o140_000),
            b"is_link" => is(0o120_000),
            b"is_fifo" => is(0o010_000),
            b"st_mode" => Ok(integer(stat.mode.into())),
            b"st_ino" => Ok(integer(stat.inode)),
            b"st_size" => Ok(Value::Integer(stat.size)),
            b"st_uid" => Ok(integer(stat.uid.into())),
            b"st_gid" => Ok(integer(stat.gid.into())),
            b"st_atime" => whole(stat.accessed),
            b"st_mtime" => whole(stat.modified),
            b"st_ctime" => whole(stat.changed),
            b"st_atim" => both(stat.accessed),
            b"st_mtim" => both(stat.modified),
            b"st_ctim" => both(stat.changed),
            _ => {
                let key = key.escape_ascii();
                Err(Error::runtime(format!("stat[\"field\"] invalid: {key}")))
            }
        }
    }
}
