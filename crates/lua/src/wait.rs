//! Scripts that wait for another page of their site (`sendoff.subrequest`).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use mlua::{LuaString, Result, Table, Value};

use crate::budget::{Budget, Left};
use crate::current::RunningScript;
use crate::exchange::{Exchange, ScriptDecision};
use crate::script::Script;

/// Maximum number of subrequests per run.
const MAX_SUBREQUESTS: u32 = 32;

/// Maximum number of fields that a script may set in a subrequest.
const MAX_FIELDS: usize = 64;

/// Default time limit of a subrequest.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The result of a step of a run.
#[derive(Debug)]
pub enum Step {
    /// The script has ended; the changed exchange and its decision.
    Done(Box<Exchange>, ScriptDecision),
    /// The script waits.
    Waits(Box<Waiting>),
}

/// A script that waits for a subrequest. Dropping this ends the script.
#[derive(Debug)]
pub struct Waiting {
    pub(crate) script: Script,
    pub(crate) running: RunningScript,
    /// State that the prelude needs to continue.
    pub(crate) state: Table,
    pub(crate) left: Left,
    /// Number of subrequests of the run, including this one.
    pub(crate) count: u32,
    /// The subrequest; `None` once it has been taken.
    pub(crate) wish: Option<std::result::Result<Subrequest, String>>,
    pub(crate) _waiting: WaitingGuard,
}

impl Waiting {
    /// The exchange in its present state.
    #[must_use]
    pub fn exchange(&self) -> &Exchange {
        &self.running.exchange
    }

    /// Takes the subrequest.
    ///
    /// # Errors
    /// The subrequest is impossible, for this reason.
    pub fn wish(&mut self) -> std::result::Result<Subrequest, String> {
        self.wish.take().unwrap_or_else(|| Err("it has been answered".to_owned()))
    }
}

/// A request for another page of the site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subrequest {
    /// Path and query, as in a request target.
    pub target: Bytes,
    /// The method.
    pub method: Bytes,
    /// Fields that replace fields of the request; an empty value removes a field.
    pub fields: Vec<(Bytes, Bytes)>,
    /// The body.
    pub body: Bytes,
    /// Time limit for the answer.
    pub timeout: Duration,
}

/// The answer to a subrequest.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The fields.
    pub fields: Vec<(Bytes, Bytes)>,
    /// The body.
    pub body: Bytes,
}

/// Counts the waiting scripts of a state.
#[derive(Debug)]
pub(crate) struct WaitingGuard(Rc<Cell<usize>>);

impl WaitingGuard {
    pub(crate) fn new(count: &Rc<Cell<usize>>) -> Self {
        count.set(count.get() + 1);
        Self(Rc::clone(count))
    }
}

impl Drop for WaitingGuard {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Reads a script's subrequest. `count`: number of subrequests of the run.
pub(crate) fn read(
    budget: &Budget,
    wish: &Value,
    count: u32,
) -> Result<std::result::Result<Subrequest, String>> {
    let Value::Table(wish) = wish else { return Ok(Err("it is no table".to_owned())) };
    if count > MAX_SUBREQUESTS {
        return Ok(Err(format!("more than {MAX_SUBREQUESTS} subrequests in one run")));
    }
    let text = |text: &LuaString| {
        let text = text.as_bytes();
        budget.hand_out(text.len()).map(|()| Bytes::copy_from_slice(&text))
    };
    let field = |name: &str| -> Result<Option<Bytes>> {
        let value: Option<LuaString> = wish.raw_get(name)?;
        value.as_ref().map(text).transpose()
    };
    let Some(target) = field("path")?.filter(|path| path.starts_with(b"/")) else {
        return Ok(Err("the path does not begin with a slash".to_owned()));
    };
    let mut fields = Vec::new();
    if let Some(table) = wish.raw_get::<Option<Table>>("headers")? {
        for pair in table.pairs::<LuaString, Value>() {
            let (name, value) = pair?;
            if fields.len() == MAX_FIELDS {
                return Ok(Err(format!("a subrequest has more than {MAX_FIELDS} fields")));
            }
            let value = match &value {
                Value::String(value) => text(value)?,
                Value::Integer(number) => number.to_string().into(),
                _ => Bytes::new(),
            };
            fields.push((text(&name)?, value));
        }
    }
    let seconds: Option<f64> = wish.raw_get("timeout")?;
    let timeout = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    Ok(Ok(Subrequest {
        target,
        method: field("method")?.unwrap_or_else(|| Bytes::from_static(b"GET")),
        fields,
        body: field("body")?.unwrap_or_default(),
        timeout: timeout.map_or(TIMEOUT, |timeout| timeout.min(TIMEOUT)),
    }))
}
