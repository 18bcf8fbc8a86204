//! What one run of a script may use: instructions, processor time, memory.
//!
//! Lua counts instructions, in the main coroutine once a run is long (`sys/lua_hook.rs`). But a single instruction may copy
//! megabytes, and a library function may work for long within one instruction. So processor time is checked along with the count, and
//! functions of the library that could work for long are replaced by ones that charge the same budget (`strings.rs`, `prelude.lua`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use mlua::Error;
use sendoff_sys::lua_hook::CHECK_EVERY;

/// The limits of one run.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Instructions of the virtual machine, and steps of pattern matching.
    pub instructions: u64,
    /// Processor time of the thread.
    pub time: Duration,
    /// Bytes that scripts may use in all, beyond what the state itself needs. The garbage of earlier runs makes room first.
    pub memory: usize,
    /// Bytes that a run may hand out: text of the response, fields, messages.
    pub output: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            instructions: 2_000_000,
            time: Duration::from_millis(50),
            memory: 8 << 20,
            output: 8 << 20,
        }
    }
}

/// What a run that waits has left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left {
    instructions: u64,
    output: usize,
}

/// What is left of the limits of the run at hand.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: Limits,
    /// Processor time that the thread has used.
    cpu_time: fn() -> Duration,
    /// The budget has been checked in this run.
    is_long: Cell<bool>,
    began: Cell<Duration>,
    instructions: Cell<u64>,
    output: Cell<usize>,
    /// Why the run must end. From then on every check fails, so that a script cannot catch the error and go on.
    spent: RefCell<Option<String>>,
    /// Where the script was at the last check: an error for want of memory does not say where it happens.
    last: RefCell<Option<String>>,
}

impl Budget {
    pub(crate) fn new(limits: Limits, cpu_time: fn() -> Duration) -> Rc<Self> {
        Rc::new(Self {
            limits,
            cpu_time,
            is_long: Cell::default(),
            began: Cell::default(),
            instructions: Cell::new(limits.instructions),
            output: Cell::new(limits.output),
            spent: RefCell::default(),
            last: RefCell::default(),
        })
    }

    /// A run begins.
    pub(crate) fn begin(&self) {
        self.is_long.set(false);
        self.began.set(Duration::ZERO);
        self.instructions.set(self.limits.instructions);
        self.output.set(self.limits.output);
        self.spent.take();
        self.last.take();
    }

    /// A run waits: what it has left, for [`Self::go_on`].
    pub(crate) fn pause(&self) -> Left {
        Left { instructions: self.instructions.get(), output: self.output.get() }
    }

    /// A run goes on. Its clock begins anew, so that it may use its processor time between any two waits.
    pub(crate) fn go_on(&self, left: Left) {
        self.begin();
        self.instructions.set(left.instructions);
        self.output.set(left.output);
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// The script has run for [`CHECK_EVERY`] instructions. `place` says where it is; `None`: in the prelude.
    pub(crate) fn check(&self, place: impl FnOnce() -> Option<String>) -> Result<(), Error> {
        // Most scripts end before the second check, and reading the clock is a system call.
        if !self.is_long.replace(true) && self.take(CHECK_EVERY.into()).is_ok() {
            return Ok(());
        }
        let now = (self.cpu_time)();
        if self.began.get().is_zero() {
            self.began.set(now);
        }
        let place = place();
        if let Some(place) = &place {
            self.last.replace(Some(place.clone()));
        }
        let at = place.map(|place| format!("{place}: ")).unwrap_or_default();
        if now.saturating_sub(self.began.get()) > self.limits.time {
            let time = self.limits.time.as_millis();
            return Err(self.end(|| format!("{at}the script takes more than {time} ms")));
        }
        if self.spent.borrow().is_none() && self.take(CHECK_EVERY.into()).is_ok() {
            return Ok(());
        }
        let instructions = self.limits.instructions;
        Err(self.end(|| format!("{at}the script takes more than {instructions} steps")))
    }

    /// Steps of a library function.
    pub(crate) fn charge(&self, steps: u64) -> Result<(), Error> {
        let instructions = self.limits.instructions;
        let too_many = || self.end(|| format!("the script takes more than {instructions} steps"));
        self.take(steps).map_err(|()| too_many())
    }

    fn take(&self, steps: u64) -> Result<(), ()> {
        let left = self.instructions.get();
        self.instructions.set(left.saturating_sub(steps));
        if left >= steps { Ok(()) } else { Err(()) }
    }

    /// Bytes that leave the state.
    pub(crate) fn hand_out(&self, bytes: usize) -> Result<(), Error> {
        let left = self.output.get();
        if left < bytes {
            let limit = self.limits.output;
            return Err(self.end(|| format!("the script hands out more than {limit} bytes")));
        }
        self.output.set(left - bytes);
        Ok(())
    }

    /// A string of this length may be built outside of the state's memory.
    pub(crate) fn may_build(&self, bytes: usize) -> Result<(), Error> {
        if bytes <= self.limits.memory { Ok(()) } else { Err(self.out_of_memory()) }
    }

    /// The script has met the limit of memory. Each further attempt would collect all garbage first, so the run ends.
    pub(crate) fn out_of_memory(&self) -> Error {
        let limit = self.limits.memory;
        self.end(|| format!("the script takes more than {limit} bytes of memory"))
    }

    fn end(&self, why: impl FnOnce() -> String) -> Error {
        Error::runtime(self.spent.borrow_mut().get_or_insert_with(why))
    }

    /// Where the script was at the last check.
    pub(crate) fn last_place(&self) -> Option<String> {
        self.last.borrow().clone()
    }

    /// Why the run must end, if it must.
    pub(crate) fn spent(&self) -> Option<String> {
        self.spent.borrow().clone()
    }
}
