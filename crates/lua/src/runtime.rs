//! The state in which the scripts of one thread run.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use mlua::chunk::ChunkMode;
use mlua::{Error, Function, Lua, LuaOptions, LuaString, Result, StdLib, Table, Value};

use sendoff_sys::lua_hook::{self, Check};

use crate::budget::{Budget, CHECK_EVERY, Limits};
use crate::current::{Current, Functions, Running};
use crate::exchange::{Exchange, Outcome, Phase};
use crate::machine::Machine;
use crate::{content, extras, functions, interface, strings};

/// How the prelude is named in messages.
const PRELUDE: &str = "prelude";

/// Bytes of a text that a script may `load`.
const MAX_LOADED: usize = 256 << 10;

/// The status by which a script asks for a restart (`lighty.RESTART_REQUEST`).
const RESTART: i64 = 99;

/// A state for scripts.
pub struct Runtime {
    lua: Lua,
    budget: Rc<Budget>,
    check: Check,
    current: Rc<Current>,
    run: Function,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Runtime").finish_non_exhaustive()
    }
}

/// A script that has been parsed, for the [`Runtime`] that parsed it.
#[derive(Debug, Clone)]
pub struct Script {
    main: Function,
    name: Rc<str>,
}

impl Runtime {
    /// A state whose scripts have these limits. `cpu_time`: processor time that the thread has used.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(
        limits: Limits,
        machine: &Rc<dyn Machine>,
        cpu_time: fn() -> Duration,
    ) -> std::result::Result<Self, String> {
        Self::build(limits, machine, cpu_time).map_err(|error| error.to_string())
    }

    fn build(
        limits: Limits,
        machine: &Rc<dyn Machine>,
        cpu_time: fn() -> Duration,
    ) -> Result<Self> {
        let libraries = StdLib::COROUTINE
            | StdLib::TABLE
            | StdLib::STRING
            | StdLib::UTF8
            | StdLib::MATH
            | StdLib::OS;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        let budget = Budget::new(limits, cpu_time);
        let current = Current::new(&budget);
        let rust = inner(&lua, &current, machine)?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name(format!("={PRELUDE}"));
        let run = prelude.call(rust)?;
        let checked = Rc::clone(&budget);
        let check: Check = Rc::new(move |file, line| {
            let place = || {
                let file = file.to_string_lossy();
                (file != PRELUDE).then(|| format!("{file}:{line}"))
            };
            checked.check(place).is_ok()
        });
        lua_hook::install(&lua, CHECK_EVERY)?;
        let runtime = Self { lua, budget, check, current, run };
        runtime.limit_memory()?;
        Ok(runtime)
    }

    /// Limits memory to what the state needs itself and what scripts may have.
    fn limit_memory(&self) -> Result<()> {
        self.lua.set_memory_limit(0)?;
        self.lua.gc_collect()?;
        let limit = self.lua.used_memory() + self.budget.limits().memory;
        self.lua.set_memory_limit(limit)?;
        Ok(())
    }

    /// Parses a script. `name`: its path, for messages.
    ///
    /// # Errors
    /// The script is no Lua; the error says in which line.
    pub fn compile(&self, name: &str, source: &[u8]) -> std::result::Result<Script, String> {
        // The script's globals come as its argument. What stands in front of it stands in its first line.
        let text = [b"local _ENV = ...; ", source].concat();
        let chunk = self.lua.load(text).set_mode(ChunkMode::Text).set_name(format!("@{name}"));
        let main = chunk.into_function().map_err(|error| self.explain(name, &error))?;
        self.limit_memory().map_err(|error| self.explain(name, &error))?;
        Ok(Script { main, name: name.into() })
    }

    /// Runs a script. Returns what it has made of the exchange, and what it has decided.
    pub fn run(&self, script: &Script, exchange: Exchange) -> (Exchange, Outcome) {
        self.budget.begin();
        lua_hook::set_check(&self.check);
        let phase = exchange.phase;
        self.current.begin(exchange);
        let ran: Result<(Value, Value, Value)> = self.run.call(&script.main);
        let decided = ran.and_then(|(status, header, content)| {
            self.older(header, content, &status)?;
            Ok(status)
        });
        let Some(Running { mut exchange, decided: chosen }) = self.current.end() else {
            unreachable!("it began above")
        };
        let outcome = match decided {
            Err(error) => Outcome::Failed(self.failed(&script.name, &error)),
            Ok(status) => match (status, chosen) {
                (_, Some(chosen)) => chosen,
                (Value::Nil, None) => Outcome::GoOn,
                (status, None) => match self.lua.coerce_integer(status.clone()) {
                    Ok(Some(RESTART)) => Outcome::Restart,
                    Ok(Some(status @ 200..=999)) => {
                        Outcome::Answer(u16::try_from(status).unwrap_or(500))
                    }
                    Ok(Some(_)) => Outcome::GoOn,
                    _ => {
                        let kind = status.type_name();
                        exchange.log(&format!("{} returns a {kind} and no integer", script.name));
                        Outcome::GoOn
                    }
                },
            },
        };
        if phase != Phase::Response && matches!(outcome, Outcome::GoOn | Outcome::Restart) {
            exchange.content = None;
        }
        (exchange, outcome)
    }

    /// Takes what the older interface has: `lighty.header` and, if the script answers, `lighty.content`.
    fn older(&self, header: Value, content: Value, status: &Value) -> Result<()> {
        if let Value::Table(header) = header {
            for pair in header.pairs::<Value, Value>() {
                let (name, value) = pair?;
                let (Value::String(name), Some(value)) = (name, self.lua.coerce_string(value)?)
                else {
                    continue;
                };
                let value = self.current.hand_out(&value)?;
                self.current.with(|exchange| {
                    exchange.set_field(&name.as_bytes(), &value);
                    Ok(())
                })?;
            }
        }
        let answers = matches!(status, Value::Integer(200..));
        if let Value::Table(list) = content
            && answers
        {
            let (pieces, message) = content::listed(&self.lua, &self.current, &list, true)?;
            self.current.with(|exchange| {
                if let Some(message) = message {
                    exchange.log(&message);
                }
                exchange.content = Some(pieces);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Why a script has failed. Afterwards the state is as good as new.
    fn failed(&self, name: &str, error: &Error) -> String {
        if is_out_of_memory(error) {
            let _ = self.budget.out_of_memory();
        }
        let why = match self.budget.spent() {
            Some(why) if why.starts_with("the script") => {
                let place = place_in(error, name).or_else(|| self.budget.last_place());
                format!("{}: {why}", place.unwrap_or_else(|| name.to_owned()))
            }
            Some(why) => why,
            None => self.explain(name, error),
        };
        let _ = self.lua.gc_collect();
        why
    }

    /// An error as one line, with the file and the line.
    fn explain(&self, name: &str, error: &Error) -> String {
        let message = message_of(error);
        let message = message.split("\nstack traceback:").next().unwrap_or_default();
        let message = message.trim_end().replace(char::is_control, " ");
        if message.contains(&format!("{name}:")) {
            return message;
        }
        let place = place_in(error, name).unwrap_or_else(|| name.to_owned());
        format!("{place}: {message}")
    }
}

fn message_of(error: &Error) -> String {
    match error {
        Error::CallbackError { cause, .. } => message_of(cause),
        Error::RuntimeError(message)
        | Error::SyntaxError { message, .. }
        | Error::MemoryError(message) => message.clone(),
        Error::BadArgument { pos, cause, .. } => {
            format!("bad argument #{pos} ({})", message_of(cause))
        }
        other => other.to_string(),
    }
}

fn is_out_of_memory(error: &Error) -> bool {
    match error {
        Error::MemoryError(_) => true,
        Error::CallbackError { cause, .. } | Error::BadArgument { cause, .. } => {
            is_out_of_memory(cause)
        }
        other => other.to_string().starts_with("not enough memory"),
    }
}

/// The first place of the script in the trace of an error.
fn place_in(error: &Error, name: &str) -> Option<String> {
    let trace = match error {
        Error::CallbackError { traceback, .. } => traceback,
        Error::RuntimeError(message) => message,
        _ => return None,
    };
    let after = trace.split(&format!("{name}:")).nth(1)?;
    let line: String = after.chars().take_while(char::is_ascii_digit).collect();
    (!line.is_empty()).then(|| format!("{name}:{line}"))
}

/// The functions that the prelude builds on.
fn inner(lua: &Lua, current: &Rc<Current>, machine: &Rc<dyn Machine>) -> Result<Table> {
    let rust = Functions::new(lua, current)?;
    rust.add("is_fatal", |_, current, error: Value| {
        let is_out = match &error {
            Value::String(text) => *text.as_bytes() == *b"not enough memory",
            Value::Error(error) => is_out_of_memory(error),
            _ => false,
        };
        if is_out {
            let _ = current.budget.out_of_memory();
        }
        Ok(current.budget.spent().is_some())
    })?;
    rust.add("charge", |_, current, steps: i64| {
        current.budget.charge(u64::try_from(steps).unwrap_or(0))
    })?;
    rust.add("used_memory", |lua, _, ()| Ok(lua.used_memory()))?;
    rust.add("log", |_, current, text: LuaString| {
        let text = current.hand_out(&text)?;
        current.with(|exchange| {
            exchange.log(&String::from_utf8_lossy(&text));
            Ok(())
        })
    })?;
    rust.add("replace_string_functions", |lua, current, strings: Table| {
        strings::replace(lua, &strings, &current.budget)
    })?;
    rust.add("load", |lua, current, (text, name, globals): (LuaString, Option<String>, Value)| {
        let text = text.as_bytes();
        current.budget.charge(text.len() as u64)?;
        if text.len() > MAX_LOADED {
            return Ok((None, Some(format!("the text has more than {MAX_LOADED} bytes"))));
        }
        let name = name.unwrap_or_else(|| "=(load)".to_owned());
        let text = [b"local _ENV = ...; return function(...) ", &*text, b"\nend"].concat();
        let chunk = lua.load(text).set_mode(ChunkMode::Text).set_name(name);
        match chunk.into_function() {
            Ok(outer) => Ok((Some(outer.call::<Function>(globals)?), None)),
            Err(error) if is_out_of_memory(&error) => Err(current.budget.out_of_memory()),
            Err(error) => Ok((None, Some(message_of(&error)))),
        }
    })?;
    interface::add(&rust)?;
    interface::add_bodies(&rust)?;
    content::add(&rust)?;
    let c = Functions::new(lua, current)?;
    functions::add(&c)?;
    functions::add_machine(&c, &rust, machine)?;
    rust.table.raw_set("functions", c.table)?;
    rust.table.raw_set("sendoff", extras::table(lua, current, machine)?)?;
    Ok(rust.table)
}
