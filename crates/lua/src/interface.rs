//! `lighty.r`: the request and the response as scripts read and change them.

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, HOST, HeaderName, HeaderValue, SET_COOKIE,
    TRANSFER_ENCODING,
};
use mlua::{Error, Lua, LuaString, Result, Table, Value};

use crate::current::{Current, Functions, integer, text_or_nil};
use crate::dictionary::Stored;
use crate::exchange::{Body, Exchange, MAX_FIELDS, Phase, Request};

/// A table, its key, and a value. The table is unused, and passing a boolean costs least.
type Set = (bool, LuaString, Option<LuaString>);

/// A table and its key.
type Get = (bool, LuaString);

/// Maximum number of environment variables that one request may set, so that applications accept
/// its parameters.
const MAX_VARIABLES: usize = 256;

/// The attributes, in the order in which `pairs` gives them.
const ATTRIBUTES: [&str; 21] = [
    "physical.path",
    "physical.rel-path",
    "physical.doc-root",
    "physical.basedir",
    "uri.path",
    "uri.path-raw",
    "uri.scheme",
    "uri.authority",
    "uri.query",
    "request.method",
    "request.uri",
    "request.orig-uri",
    "request.path-info",
    "request.remote-ip",
    "request.remote-addr",
    "request.remote-port",
    "request.server-addr",
    "request.server-port",
    "request.protocol",
    "request.server-name",
    "request.stage",
];

/// Adds the functions behind `lighty.r`.
pub(crate) fn add(functions: &Functions<'_>) -> Result<()> {
    headers(functions)?;
    fields(functions)?;
    variables(functions)?;
    items(functions)?;
    functions.add("get_attribute", |lua, current, (_, key): Get| {
        current.with(|exchange| text_or_nil(lua, attribute(exchange, &key.as_bytes())))
    })?;
    functions.add("set_attribute", |_, current, (_, key, value): Set| {
        if let Some(value) = &value {
            current.budget.hand_out(value.as_bytes().len())?;
        }
        let value = value.as_ref().map(|value| value.as_bytes());
        current.with(|exchange| set_attribute(exchange, &key.as_bytes(), value.as_deref()))
    })?;
    functions.add("all_attributes", |lua, current, ()| {
        current.with(|exchange| {
            let list = lua.create_table()?;
            for (number, name) in ATTRIBUTES.into_iter().enumerate() {
                list.raw_set(2 * number + 1, name)?;
                let value = attribute(exchange, name.as_bytes());
                list.raw_set(2 * number + 2, text_or_nil(lua, value)?)?;
            }
            Ok(list)
        })
    })
}

fn pairs<'p>(lua: &Lua, pairs: impl IntoIterator<Item = (&'p [u8], &'p [u8])>) -> Result<Table> {
    let texts = pairs.into_iter().flat_map(|(name, value)| [name, value]);
    lua.create_sequence_from(texts.map(|text| lua.create_string(text)).collect::<Result<Vec<_>>>()?)
}

fn headers(functions: &Functions<'_>) -> Result<()> {
    functions.add("get_header", |lua, current, (_, name): Get| {
        current.with(|exchange| {
            let headers = &exchange.request.headers;
            let Ok(name) = HeaderName::from_bytes(&name.as_bytes()) else { return Ok(Value::Nil) };
            let between: &[u8] = if name == COOKIE { b"; " } else { b", " };
            let mut values = headers.get_all(&name).iter();
            let Some(first) = values.next() else { return Ok(Value::Nil) };
            let Some(second) = values.next() else { return text_or_nil(lua, Some(first)) };
            let mut all = first.as_bytes().to_vec();
            for value in std::iter::once(second).chain(values) {
                all.extend_from_slice(between);
                all.extend_from_slice(value.as_bytes());
            }
            text_or_nil(lua, Some(all))
        })
    })?;
    functions.add("set_header", |_, current, (_, name, value): Set| {
        let value = value.map_or(Ok(Bytes::new()), |value| current.hand_out(&value))?;
        current.with(|exchange| {
            let shown = name.as_bytes().escape_ascii().to_string();
            let parsed = HeaderName::from_bytes(&name.as_bytes()).ok();
            let value = HeaderValue::from_maybe_shared(value).ok();
            let Some((name, value)) = parsed.zip(value) else {
                exchange.log(&format!("the request field {shown} is not valid, and not set"));
                return Ok(());
            };
            let Request { headers, set, .. } = &exchange.request;
            if headers.len() > MAX_FIELDS || set.len() > MAX_FIELDS {
                return Err(Error::runtime("the request has too many fields"));
            }
            let Request { headers, set, authority, .. } = &mut exchange.request;
            if !set.contains(&name) {
                set.push(name.clone());
            }
            match name {
                CONTENT_LENGTH | CONNECTION | TRANSFER_ENCODING | SET_COOKIE => {}
                HOST if value.is_empty() => {}
                HOST => {
                    *authority = Bytes::copy_from_slice(value.as_bytes());
                    headers.insert(HOST, value);
                }
                name if value.is_empty() => {
                    headers.remove(name);
                }
                name => {
                    headers.insert(name, value);
                }
            }
            Ok(())
        })
    })?;
    functions.add("all_headers", |lua, current, ()| {
        current.with(|exchange| {
            let headers = exchange.request.headers.iter();
            pairs(lua, headers.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes())))
        })
    })
}

fn fields(functions: &Functions<'_>) -> Result<()> {
    functions.add("get_field", |lua, current, (_, name): Get| {
        current.with(|exchange| text_or_nil(lua, exchange.field(&name.as_bytes())))
    })?;
    functions.add("set_field", |_, current, (_, name, value): Set| {
        let value = value.map_or(Ok(Bytes::new()), |value| current.hand_out(&value))?;
        current.budget.hand_out(name.as_bytes().len())?;
        current.with(|exchange| {
            exchange.set_field(&name.as_bytes(), value);
            Ok(())
        })
    })?;
    functions.add("all_fields", |lua, current, ()| {
        current.with(|exchange| {
            pairs(lua, exchange.fields.iter().map(|(name, value)| (&name[..], &value[..])))
        })
    })
}

fn variables(functions: &Functions<'_>) -> Result<()> {
    functions.add("get_variable", |lua, current, (_, name): Get| {
        current.with(|exchange| {
            let name = name.as_bytes();
            let found = exchange.environment.iter().find(|(known, _)| *known == *name);
            text_or_nil(lua, found.map(|(_, value)| value))
        })
    })?;
    functions.add("set_variable", |_, current, (_, name, value): Set| {
        let name = current.hand_out(&name)?;
        let value = value.map(|value| current.hand_out(&value)).transpose()?;
        current.with(|exchange| {
            exchange.environment.retain(|(known, _)| *known != name);
            if let Some(value) = value {
                if exchange.environment.len() == MAX_VARIABLES {
                    return Err(Error::runtime("r.req_env has too many variables"));
                }
                exchange.environment.push((name, value));
            }
            Ok(())
        })
    })?;
    functions.add("all_variables", |lua, current, ()| {
        current.with(|exchange| {
            pairs(lua, exchange.environment.iter().map(|(name, value)| (&name[..], &value[..])))
        })
    })
}

fn items(functions: &Functions<'_>) -> Result<()> {
    functions.add("get_item", |_, current, (_, key): Get| {
        current.with(|exchange| match &*key.as_bytes() {
            b"http_status" => Ok(integer(exchange.status.into())),
            b"keep_alive" => Ok(integer(1)),
            b"bytes_in" | b"bytes_out" | b"stream_id" | b"req_count" | b"req_header_len"
            | b"resp_header_len" => Ok(integer(0)),
            key => {
                let key = key.escape_ascii();
                Err(Error::runtime(format!("r.req_item['{key}'] invalid")))
            }
        })
    })?;
    functions.add("set_item", |_, _, (_, key, _): (bool, LuaString, i64)| {
        if *key.as_bytes() == *b"keep_alive" {
            return Ok(());
        }
        let key = key.as_bytes().escape_ascii().to_string();
        Err(Error::runtime(format!("r.req_item['{key}'] invalid or read-only")))
    })?;
    functions.add("get_stat", |lua, _, (_, key): Get| match &*key.as_bytes() {
        b"version" => text_or_nil(lua, Some(concat!("sendoff/", env!("CARGO_PKG_VERSION")))),
        key => {
            let key = key.escape_ascii();
            Err(Error::runtime(format!("server.stats['{key}'] invalid")))
        }
    })?;
    // Counters are in the same dictionary as entries, under names that scripts cannot write.
    functions.add("get_counter", |_, current, (_, key): Get| {
        let key = [b"\0counter:", &*key.as_bytes()].concat();
        current.with(|exchange| match exchange.shared.get(&key, std::time::Duration::ZERO) {
            Some(Stored::Integer(number)) => Ok(number),
            _ => Ok(0),
        })
    })?;
    functions.add("set_counter", |_, current, (_, key, value): (bool, LuaString, i64)| {
        let key = [b"\0counter:", &*key.as_bytes()].concat();
        current.with(|exchange| {
            exchange.shared.set(&key, Stored::Integer(value), None);
            Ok(())
        })
    })
}

/// The path of a request target, without its query.
fn path_of(target: &[u8]) -> &[u8] {
    target.split(|&byte| byte == b'?').next().unwrap_or_default()
}

fn attribute(exchange: &Exchange, key: &[u8]) -> Option<Vec<u8>> {
    let Exchange { request, physical, .. } = exchange;
    let text = |text: String| Some(text.into_bytes());
    match key {
        b"physical.path" => physical.path.clone(),
        b"physical.rel-path" => physical.relative.clone(),
        b"physical.doc-root" | b"physical.basedir" => physical.root.as_ref().map(|r| r.to_vec()),
        b"uri.path" => Some(request.path.clone()),
        b"uri.path-raw" => Some(path_of(&request.target).to_vec()),
        b"uri.scheme" => Some(request.scheme.to_vec()),
        b"uri.authority" => Some(request.authority.to_vec()),
        b"uri.query" => request.query.as_ref().map(|query| query.to_vec()),
        b"request.method" => text(request.method.to_string()),
        b"request.uri" => Some(request.target.to_vec()),
        b"request.orig-uri" => Some(request.original_target.to_vec()),
        b"request.path-info" => physical.path_info.clone(),
        b"request.remote-ip" | b"request.remote-addr" => {
            text(request.remote.map(|remote| remote.ip().to_string()).unwrap_or_default())
        }
        b"request.remote-port" => {
            text(request.remote.map_or(0, |remote| remote.port()).to_string())
        }
        b"request.server-addr" => {
            text(request.local.map(|local| local.ip().to_string()).unwrap_or_default())
        }
        b"request.server-port" => text(request.local.map_or(0, |local| local.port()).to_string()),
        b"request.protocol" => text(request.protocol.to_owned()),
        b"request.server-name" => Some(request.server_name.to_vec()),
        // The value of lighttpd 1.4.69 in each phase in which scripts run.
        b"request.stage" => text("handle-req".to_owned()),
        _ => None,
    }
}

fn set_attribute(exchange: &mut Exchange, key: &[u8], value: Option<&[u8]>) -> Result<()> {
    let Exchange { request, physical, .. } = exchange;
    let bytes = || value.map_or_else(Bytes::new, Bytes::copy_from_slice);
    let small = || value.map_or_else(Bytes::new, |value| value.to_ascii_lowercase().into());
    let vec = || value.unwrap_or_default().to_vec();
    match key {
        b"physical.path" => physical.path = value.map(<[u8]>::to_vec),
        b"physical.rel-path" => physical.relative = Some(vec()),
        b"physical.doc-root" | b"physical.basedir" => {
            physical.root = Some(value.unwrap_or_default().into());
        }
        b"uri.path" => request.path = vec(),
        b"uri.path-raw" => {
            let path = path_of(&request.target).len();
            request.target = [value.unwrap_or_default(), &request.target[path..]].concat().into();
        }
        b"uri.scheme" => request.scheme = small(),
        b"uri.authority" => request.authority = small(),
        b"uri.query" => request.query = value.map(Bytes::copy_from_slice),
        b"request.uri" => request.target = bytes(),
        b"request.orig-uri" => request.original_target = bytes(),
        b"request.path-info" => physical.path_info = Some(vec()),
        // As in lighttpd, read-only attributes stay unchanged.
        b"request.method"
        | b"request.remote-ip"
        | b"request.remote-addr"
        | b"request.remote-port"
        | b"request.server-addr"
        | b"request.server-port"
        | b"request.protocol"
        | b"request.server-name"
        | b"request.stage" => {}
        _ => {
            let key = key.escape_ascii();
            return Err(Error::runtime(format!("couldn't store '{key}' in r.req_attr[]")));
        }
    }
    Ok(())
}

/// Adds the functions behind `lighty.r.req_body`.
pub(crate) fn add_bodies(functions: &Functions<'_>) -> Result<()> {
    functions.add("has_body", |_, current, ()| {
        current.with(|exchange| Ok(matches!(exchange.request.body, Body::Received(_))))
    })?;
    functions.add("body", |lua, current, key: LuaString| {
        current.with(|exchange| body(lua, exchange, &key.as_bytes()))
    })?;
    functions.add("set_body", |_, current, value| change_body(current, value, true))?;
    functions.add("add_body", |_, current, value| change_body(current, value, false))
}

fn body(lua: &Lua, exchange: &mut Exchange, key: &[u8]) -> Result<Value> {
    let is_response = exchange.phase == Phase::Response;
    let body = &mut exchange.request.body;
    match (key, body) {
        (b"len", Body::Received(bytes)) => Ok(integer(bytes.len() as u64)),
        (b"len", Body::Pending { length: Some(length), .. } | Body::Large(length)) => {
            Ok(integer(*length))
        }
        (b"len", Body::Pending { length: None, .. }) => Ok(Value::Integer(-1)),
        (b"get", Body::Received(bytes)) => text_or_nil(lua, Some(bytes)),
        (b"get", _) => Ok(Value::Nil),
        (b"bytes_in" | b"bytes_out", Body::Received(bytes)) => Ok(integer(bytes.len() as u64)),
        (b"bytes_in" | b"bytes_out", _) => Ok(integer(0)),
        (b"collect", Body::Received(_)) => Ok(Value::Boolean(true)),
        (b"collect", Body::Pending { is_wanted, .. }) if !is_response => {
            *is_wanted = true;
            Ok(Value::Boolean(false))
        }
        (b"collect", _) => Ok(Value::Nil),
        (b"unspecified_len", _) => Ok(Value::Boolean(false)),
        _ => Err(Error::runtime("r.req_body invalid method or param")),
    }
}

fn change_body(current: &Current, value: Value, is_set: bool) -> Result<bool> {
    let mut texts = Vec::new();
    match value {
        Value::String(text) => texts.push(current.hand_out(&text)?),
        Value::Table(list) => {
            for number in 1..=list.raw_len() {
                match list.raw_get(number)? {
                    Value::String(text) => texts.push(current.hand_out(&text)?),
                    _ => break,
                }
            }
        }
        _ => return Ok(false),
    }
    current.with(|exchange| {
        if let Body::Received(body) = &mut exchange.request.body {
            let before = if is_set { Bytes::new() } else { std::mem::take(body) };
            *body = std::iter::once(before).chain(texts).collect::<Vec<_>>().concat().into();
        }
        Ok(true)
    })
}
