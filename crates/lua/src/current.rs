//! The exchange of the current run, for functions that Lua calls.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use mlua::{Error, FromLuaMulti, Function, IntoLuaMulti, Lua, LuaString, Result, Table, Value};

use crate::budget::Budget;
use crate::exchange::{Exchange, ScriptDecision};
use crate::fragments::BeingMade;

/// Maximum number of call levels that are searched for the script.
const MAX_LEVELS: usize = 8;

/// State that functions called by Lua share.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) budget: Rc<Budget>,
    running: RefCell<Option<RunningScript>>,
}

#[derive(Debug)]
pub(crate) struct RunningScript {
    /// Boxed, because it is large and moved often.
    pub(crate) exchange: Box<Exchange>,
    /// A function's decision, which takes precedence over the script's return value.
    pub(crate) decided: Option<ScriptDecision>,
    /// The media type of a chosen file, kept even if another body replaces the file.
    pub(crate) media_type: Option<Bytes>,
    /// The fragments that the script makes at present.
    pub(crate) making: Vec<BeingMade>,
    /// Number of fragments that the script has begun to make.
    pub(crate) made: u64,
}

impl RunningScript {
    pub(crate) fn new(exchange: Exchange) -> Self {
        let exchange = Box::new(exchange);
        Self { exchange, decided: None, media_type: None, making: Vec::new(), made: 0 }
    }
}

impl Current {
    pub(crate) fn new(budget: &Rc<Budget>) -> Rc<Self> {
        Rc::new(Self { budget: Rc::clone(budget), running: RefCell::default() })
    }

    pub(crate) fn begin(&self, running: RunningScript) {
        *self.running.borrow_mut() = Some(running);
    }

    pub(crate) fn end(&self) -> Option<RunningScript> {
        self.running.take()
    }

    /// Calls a function with the exchange. The function must not call Lua code.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Exchange) -> Result<T>) -> Result<T> {
        self.with_running(|running| act(&mut running.exchange))
    }

    pub(crate) fn with_running<T>(
        &self,
        act: impl FnOnce(&mut RunningScript) -> Result<T>,
    ) -> Result<T> {
        match &mut *self.running.borrow_mut() {
            Some(running) => act(running),
            None => Err(Error::runtime("no request is being answered")),
        }
    }

    /// Notes the script's place, if the response is explained.
    pub(crate) fn note_place(&self, lua: &Lua) -> Result<()> {
        self.with(|exchange| {
            if exchange.is_explained {
                let places = (0..MAX_LEVELS).map_while(|level| {
                    lua.inspect_stack(level, |level| {
                        let file = level.source().source?.strip_prefix('@')?.to_owned();
                        level.current_line().map(|line| format!("{file}:{line}"))
                    })
                });
                // The prelude has no file.
                exchange.place = places.flatten().next();
            }
            Ok(())
        })
    }

    /// A copy of bytes that leave the state, charged to the budget.
    pub(crate) fn hand_out(&self, text: &LuaString) -> Result<Bytes> {
        let text = text.as_bytes();
        self.budget.hand_out(text.len())?;
        Ok(Bytes::copy_from_slice(&text))
    }

    /// Makes a Lua function with access to the exchange.
    pub(crate) fn function<A: FromLuaMulti, R: IntoLuaMulti>(
        self: &Rc<Self>,
        lua: &Lua,
        act: impl Fn(&Lua, &Self, A) -> Result<R> + 'static,
    ) -> Result<Function> {
        let current = Rc::clone(self);
        lua.create_function(move |lua, arguments| act(lua, &current, arguments))
    }
}

/// A table of functions, filled one function at a time.
pub(crate) struct Functions<'l> {
    pub(crate) lua: &'l Lua,
    pub(crate) current: &'l Rc<Current>,
    pub(crate) table: Table,
}

impl<'l> Functions<'l> {
    pub(crate) fn new(lua: &'l Lua, current: &'l Rc<Current>) -> Result<Self> {
        Ok(Self { lua, current, table: lua.create_table()? })
    }

    pub(crate) fn add<A: FromLuaMulti, R: IntoLuaMulti>(
        &self,
        name: &str,
        act: impl Fn(&Lua, &Current, A) -> Result<R> + 'static,
    ) -> Result<()> {
        self.table.raw_set(name, self.current.function(self.lua, act)?)
    }
}

/// A Lua string, or `nil`.
pub(crate) fn text_or_nil(lua: &Lua, text: Option<impl AsRef<[u8]>>) -> Result<Value> {
    text.map_or(Ok(Value::Nil), |text| lua.create_string(text).map(Value::String))
}

/// A Lua integer, at most the largest one.
pub(crate) fn integer(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}
