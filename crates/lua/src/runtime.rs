//! The Lua state that runs the scripts of one thread.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use mlua::chunk::ChunkMode;
use mlua::{Error, Function, Lua, LuaOptions, LuaString, MultiValue, Result, StdLib, Table, Value};
use sendoff_lua_sys::{Check, Watched, coroutine_create, each_text, set_environment, worked};

use crate::budget::{Budget, Limits};
use crate::current::{Current, Functions, RunningScript};
use crate::exchange::{BodyPiece, Exchange, Phase, ScriptDecision};
use crate::machine::Machine;
use crate::script::Script;
use crate::wait::{Reply, Step, Waiting, WaitingGuard};
use crate::{content, extras, fragments, functions, interface, strings, wait};

/// The prelude's name in messages.
const PRELUDE: &str = "prelude";

/// Maximum length in bytes of a text that a script may `load`. Lua's parser takes quadratic time for
/// labels, `break` and `elseif`, and cannot be interrupted.
const MAX_LOADED: usize = 64 << 10;

/// Steps that take as long as setting one response field.
const FIELD: u64 = 40;

/// Steps that take as long as catching one error.
const CAUGHT: u64 = 500;

/// The name of the function that makes a script wait.
const WORD: &[u8] = b"subrequest";

/// Maximum number of waiting scripts per state. Each of them may have as much memory as a running
/// script.
const MAX_WAITING: usize = 64;

/// The status by which a script asks for a restart (`lighty.RESTART_REQUEST`).
const RESTART: i64 = 99;

/// Return values of the prelude's functions: the status, and the fields and the content of the
/// older interface; or [`Runtime::waits`], the state for [`Runtime::go_on`], and the request that
/// the script waits for.
type Returned = (Value, Value, Value);

/// A Lua state for scripts.
pub struct Runtime {
    lua: Lua,
    budget: Rc<Budget>,
    check: Check,
    watched: Watched,
    current: Rc<Current>,
    /// Runs a script that does not wait.
    run: Function,
    /// Runs a script that may wait.
    start: Function,
    go_on: Function,
    forget: Function,
    /// Returned by the prelude in place of a status if the script waits.
    waits: Table,
    /// Number of waiting scripts.
    waiting: Rc<Cell<usize>>,
    /// Number of bytes that the state and its parsed scripts need.
    own_memory: Cell<usize>,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Runtime").finish_non_exhaustive()
    }
}

impl Runtime {
    /// A state with these limits for its scripts. `cpu_time`: clock of the thread's processor time.
    ///
    /// # Errors
    /// Memory is exhausted.
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
        let (run, start, go_on, forget, waits) = prelude.call(rust)?;
        let checked = Rc::clone(&budget);
        let check: Check = Rc::new(move |file, line| {
            let place = || {
                let file = file.to_string_lossy();
                let is_script = line > 0 && file != PRELUDE;
                is_script.then(|| format!("{file}:{line}"))
            };
            checked.check(place).is_ok()
        });
        let watched = Watched::new(&lua)?;
        let (waiting, own_memory) = (Rc::default(), Cell::default());
        let runtime = Self {
            lua,
            budget,
            check,
            watched,
            current,
            run,
            start,
            go_on,
            forget,
            waits,
            waiting,
            own_memory,
        };
        runtime.limit_memory()?;
        Ok(runtime)
    }

    /// Limits memory to the state's own needs and the budget of scripts.
    fn limit_memory(&self) -> Result<()> {
        if self.waiting.get() == 0 {
            self.lua.set_memory_limit(0)?;
            self.lua.gc_collect()?;
            self.own_memory.set(self.lua.used_memory());
        }
        self.let_scripts_have_memory()
    }

    /// Allows the state one script's memory for each waiting script, and for the running one.
    fn let_scripts_have_memory(&self) -> Result<()> {
        let scripts = self.waiting.get() + 1;
        let limit = self.own_memory.get() + scripts * self.budget.limits().memory;
        self.lua.set_memory_limit(limit)?;
        Ok(())
    }

    /// Parses a script. `name`: its path, for messages.
    ///
    /// # Errors
    /// The script is not valid Lua; the error contains the line.
    pub fn compile(&self, name: &str, source: &[u8]) -> std::result::Result<Script, String> {
        // The script receives its globals as an argument. The prefix is in the script's first line,
        // so that line numbers stay right.
        let text = [b"local _ENV = ...; ", source].concat();
        let chunk = self.lua.load(text).set_mode(ChunkMode::Text).set_name(format!("@{name}"));
        let main = chunk.into_function().map_err(|error| self.explain(name, &error))?;
        self.limit_memory().map_err(|error| self.explain(name, &error))?;
        let may_wait = memchr::memmem::find(source, WORD).is_some();
        Ok(Script { main, name: name.into(), may_wait })
    }

    /// Runs a script that cannot wait: subrequests fail. Returns the changed exchange and the
    /// script's decision.
    pub fn run(&self, script: &Script, exchange: Exchange) -> (Exchange, ScriptDecision) {
        let mut step = self.start(script, exchange);
        loop {
            step = match step {
                Step::Done(exchange, outcome) => return (*exchange, outcome),
                Step::Waits(waiting) => {
                    self.go_on(*waiting, Err("no subrequest can be made here".to_owned()))
                }
            }
        }
    }

    /// Runs a script until it ends or waits.
    pub fn start(&self, script: &Script, exchange: Exchange) -> Step {
        self.budget.begin();
        let _watch = self.watched.run(&self.check);
        let is_explained = exchange.is_explained;
        self.current.begin(RunningScript::new(exchange));
        let run = if script.may_wait { &self.start } else { &self.run };
        let ran = run.call((&script.main, is_explained));
        self.step(script, 0, ran)
    }

    /// Continues a script that has waited, with the answer or the reason why there is none.
    pub fn go_on(&self, waiting: Waiting, reply: std::result::Result<Reply, String>) -> Step {
        let Waiting { script, running, state, left, count, .. } = waiting;
        self.budget.go_on(left);
        let _watch = self.watched.run(&self.check);
        self.current.begin(running);
        let ran = self.given(state, reply).and_then(|given| self.go_on.call(given));
        self.step(&script, count, ran)
    }

    /// The answer to a subrequest as Lua values.
    fn given(&self, state: Table, reply: std::result::Result<Reply, String>) -> Result<MultiValue> {
        self.let_scripts_have_memory()?;
        let mut given = MultiValue::from_iter([Value::Table(state)]);
        match reply {
            Err(why) => {
                given.push_back(Value::Boolean(false));
                given.push_back(Value::String(self.lua.create_string(why)?));
            }
            Ok(Reply { status, fields, body }) => {
                let table = self.lua.create_table()?;
                for (name, value) in fields {
                    let name = self.lua.create_string(name.to_ascii_lowercase())?;
                    // Several fields with the same name are joined as a list.
                    let before: Option<LuaString> = table.raw_get(&name)?;
                    let value = match before {
                        Some(before) => [&*before.as_bytes(), b", ", &value].concat().into(),
                        None => value,
                    };
                    table.raw_set(name, self.lua.create_string(value)?)?;
                }
                given.push_back(Value::Integer(status.into()));
                given.push_back(Value::Table(table));
                given.push_back(Value::String(self.lua.create_string(body)?));
            }
        }
        Ok(given)
    }

    /// The result of a run.
    fn step(&self, script: &Script, count: u32, ran: Result<Returned>) -> Step {
        let Some(mut running) = self.current.end() else { unreachable!("it began before") };
        let (status, header, content) = match ran {
            Ok(returned) => returned,
            Err(error) => return self.failed_step(script, running, &error),
        };
        if let Value::Table(table) = &status
            && *table == self.waits
        {
            return self.wait(script, count, running, header, &content);
        }
        if let Err(error) = self.older(&mut running, header, content, &status) {
            return self.failed_step(script, running, &error);
        }
        self.decide(script, running, &status)
    }

    fn failed_step(&self, script: &Script, running: RunningScript, error: &Error) -> Step {
        let outcome = ScriptDecision::Failed(self.failed(&script.name, error));
        Step::Done(running.exchange, outcome)
    }

    fn wait(
        &self,
        script: &Script,
        count: u32,
        running: RunningScript,
        state: Value,
        wish: &Value,
    ) -> Step {
        let Value::Table(state) = state else { unreachable!("the prelude returns a table") };
        // A `__close` method may make a subrequest after the budget is used up, and a continued run
        // would get a new time budget.
        if let Some(spent) = self.budget.spent() {
            return self.failed_step(script, running, &Error::runtime(spent));
        }
        let count = count + 1;
        let wish = match wait::read(&self.budget, wish, count) {
            Ok(wish) => wish,
            Err(error) => return self.failed_step(script, running, &error),
        };
        let too_many = self.waiting.get() >= MAX_WAITING;
        let wish = if too_many { Err("too many scripts wait".to_owned()) } else { wish };
        let (script, left) = (script.clone(), self.budget.pause());
        let _waiting = WaitingGuard::new(&self.waiting);
        let waiting = Waiting { script, running, state, left, count, wish: Some(wish), _waiting };
        Step::Waits(Box::new(waiting))
    }

    fn decide(&self, script: &Script, running: RunningScript, status: &Value) -> Step {
        let RunningScript { mut exchange, decided: chosen, media_type, .. } = running;
        let phase = exchange.phase;
        let outcome = match (status, chosen) {
            // With another status the file is sent as an ordinary body.
            (Value::Integer(status @ 201..=999), Some(ScriptDecision::File(path))) => {
                exchange.content = Some(vec![BodyPiece::File { path, offset: 0, len: None }]);
                ScriptDecision::Answer(u16::try_from(*status).unwrap_or(500))
            }
            (_, Some(chosen)) => chosen,
            (Value::Nil, None) => ScriptDecision::GoOn,
            (status, None) => match self.lua.coerce_integer(status.clone()) {
                Ok(Some(RESTART)) => ScriptDecision::Restart,
                Ok(Some(status @ 200..=999)) => {
                    ScriptDecision::Answer(u16::try_from(status).unwrap_or(500))
                }
                Ok(Some(_)) => ScriptDecision::GoOn,
                _ => {
                    let kind = status.type_name();
                    exchange.log(&format!("{} returns a {kind} and no integer", script.name));
                    ScriptDecision::GoOn
                }
            },
        };
        if let (ScriptDecision::Answer(_), Some(kind)) = (&outcome, media_type)
            && exchange.field(b"content-type").is_none()
        {
            exchange.set_field(b"Content-Type", kind);
        }
        if phase != Phase::Response
            && matches!(outcome, ScriptDecision::GoOn | ScriptDecision::Restart)
        {
            exchange.content = None;
        }
        Step::Done(exchange, outcome)
    }

    /// Applies the older interface: `lighty.header` and, if the script answers, `lighty.content`.
    fn older(
        &self,
        running: &mut RunningScript,
        header: Value,
        content: Value,
        status: &Value,
    ) -> Result<()> {
        let exchange = &mut running.exchange;
        if let Value::Table(header) = header {
            let mut handed_out = Ok(());
            each_text(&self.lua, &header, |name, value| {
                let handed = self.budget.hand_out(value.len());
                handed_out = handed.and_then(|()| self.budget.work(FIELD));
                if handed_out.is_ok() {
                    exchange.set_field(name, Bytes::copy_from_slice(value));
                }
                handed_out.is_ok()
            })?;
            handed_out?;
        }
        if let Value::Table(list) = content
            && matches!(status, Value::Integer(200..))
        {
            let values = list.sequence_values::<Value>();
            let (pieces, message) = content::listed(&self.lua, &self.current, values, true)?;
            if let Some(message) = message {
                exchange.log(&message);
            }
            exchange.content = Some(pieces);
            // The content replaces a file that the script has chosen.
            running.decided = None;
        }
        Ok(())
    }

    /// The message for a script's failure. Resets the state afterwards.
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
        // Leftovers of the failed script must not be charged to the next one.
        self.budget.begin();
        let _ = self.forget.call::<()>(());
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
        Error::RuntimeError(message) => message.starts_with("not enough memory"),
        Error::CallbackError { cause, .. } | Error::BadArgument { cause, .. } => {
            is_out_of_memory(cause)
        }
        other => other.to_string().starts_with("not enough memory"),
    }
}

/// An error as a catching script receives it: the message, preceded by the place, as with Lua's own
/// functions.
fn caught(error: &Error) -> String {
    if let Error::CallbackError { cause, .. } = error
        && matches!(**cause, Error::CallbackError { .. })
    {
        return caught(cause);
    }
    let message = message_of(error);
    // What Lua code throws within a function that is not written in Lua comes with a traceback. Its
    // place is part of it, unless the script has left the place out (`error(text, 0)`).
    if let Some((thrown, _)) = message.rsplit_once("\nstack traceback:") {
        return thrown.to_owned();
    }
    match caller_in(error) {
        Some(place) => format!("{place}: {message}"),
        None => message,
    }
}

/// The first place of a script in an error's traceback.
fn caller_in(error: &Error) -> Option<&str> {
    let Error::CallbackError { traceback, .. } = error else { return None };
    let levels = traceback.lines().map(str::trim_start);
    let mut places = levels.filter_map(|level| Some(level.split_once(": in ")?.0));
    places.find(|place| {
        let line = place.rsplit_once(':').filter(|(file, _)| *file != PRELUDE);
        line.is_some_and(|(_, line)| line.parse::<u32>().is_ok())
    })
}

/// The first place of this script in an error's traceback.
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

/// The functions on which the prelude builds.
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
        // At the largest depth of calls an error takes as long as thousands of instructions.
        Ok(current.budget.work(CAUGHT).is_err() || current.budget.spent().is_some())
    })?;
    rust.add("caught", |lua, _, value: Value| match value {
        Value::Error(error) => lua.create_string(caught(&error)).map(Value::String),
        value => Ok(value),
    })?;
    rust.add("charge", |_, current, steps: i64| {
        current.budget.charge(u64::try_from(steps).unwrap_or(0))
    })?;
    rust.table.raw_set("create_coroutine", coroutine_create(lua)?)?;
    rust.add("worked", |lua, _, function: Function| worked(lua, &function))?;
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
        let chunk = lua.load(&*text).set_mode(ChunkMode::Text).set_name(name);
        match chunk.into_function() {
            Ok(chunk) => {
                set_environment(lua, &chunk, globals)?;
                Ok((Some(chunk), None))
            }
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
    let sendoff = extras::table(lua, current, machine)?;
    fragments::add(&sendoff, &rust, machine)?;
    rust.table.raw_set("sendoff", sendoff)?;
    Ok(rust.table)
}
