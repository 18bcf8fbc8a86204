//! The budget of one run of a script: instructions, processor time, memory.
//!
//! Lua counts instructions, in the main coroutine only once a run is long (`lua_sys/hook.rs`). But
//! a single instruction may copy megabytes, and a library function may work for long within one
//! instruction. So each check of the count also checks the processor time. Library functions that
//! could work for long are replaced by functions that charge the same budget, which looks at the
//! clock every [`LOOK_EVERY`] steps (`strings.rs`, `prelude.lua`), or are checked before they begin
//! (`lua_sys/work.rs`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use mlua::Error;
use sendoff_lua_sys::CHECK_EVERY;

/// Steps of library functions between two looks at the clock. A step takes at least 5 ns, a look
/// about 0.3 µs.
const LOOK_EVERY: u64 = 1000;

/// The limits of one run.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum number of instructions of the virtual machine and steps of pattern matching.
    pub instructions: u64,
    /// Maximum processor time of the thread.
    pub time: Duration,
    /// Maximum number of bytes that scripts may use, beyond the state's own needs. Garbage of
    /// earlier runs is collected first.
    pub memory: usize,
    /// Maximum number of bytes that a run may output: text of the response, fields, messages.
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

/// The unused part of a waiting run's budget.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left {
    instructions: u64,
    output: usize,
}

/// The budget of the current run.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: Limits,
    /// Clock of the thread's processor time.
    cpu_time: fn() -> Duration,
    /// True once the budget has been checked in this run.
    is_long: Cell<bool>,
    began: Cell<Duration>,
    instructions: Cell<u64>,
    output: Cell<usize>,
    /// Steps of library functions since the last look at the clock.
    unlooked: Cell<u64>,
    /// The reason why the run must end. Once it is set every check fails, so that a script cannot
    /// catch the error and go on.
    spent: RefCell<Option<String>>,
    /// The script's place at the last check: a memory error does not contain its place.
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
            unlooked: Cell::default(),
            spent: RefCell::default(),
            last: RefCell::default(),
        })
    }

    /// Begins a run.
    pub(crate) fn begin(&self) {
        self.is_long.set(false);
        self.began.set(Duration::ZERO);
        self.instructions.set(self.limits.instructions);
        self.output.set(self.limits.output);
        self.unlooked.set(0);
        self.spent.take();
        self.last.take();
    }

    /// Pauses a run that waits. Returns the rest of its budget, for [`Self::go_on`].
    pub(crate) fn pause(&self) -> Left {
        Left { instructions: self.instructions.get(), output: self.output.get() }
    }

    /// Continues a run. Its clock starts anew, so the limit on processor time is per wait.
    pub(crate) fn go_on(&self, left: Left) {
        self.begin();
        self.instructions.set(left.instructions);
        self.output.set(left.output);
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Checks the budget, every [`CHECK_EVERY`] instructions. `place` returns the script's place;
    /// `None`: in the prelude.
    pub(crate) fn check(&self, place: impl FnOnce() -> Option<String>) -> Result<(), Error> {
        // Most scripts end before the second check, and reading the clock is a system call.
        if !self.is_long.replace(true) && self.take(CHECK_EVERY.into()).is_ok() {
            return Ok(());
        }
        let place = place();
        if let Some(place) = &place {
            self.last.replace(Some(place.clone()));
        }
        let at = place.map(|place| format!("{place}: ")).unwrap_or_default();
        if self.is_too_late() {
            return Err(self.end_too_late(&at));
        }
        if self.spent.borrow().is_none() && self.take(CHECK_EVERY.into()).is_ok() {
            return Ok(());
        }
        let instructions = self.limits.instructions;
        Err(self.end(|| format!("{at}the script takes more than {instructions} steps")))
    }

    /// Charges steps of a library function, and looks at the clock from time to time.
    pub(crate) fn charge(&self, steps: u64) -> Result<(), Error> {
        let instructions = self.limits.instructions;
        let too_many = || self.end(|| format!("the script takes more than {instructions} steps"));
        self.take(steps).map_err(|()| too_many())?;
        self.work(steps)
    }

    /// Looks at the clock if a library function has worked for long; its steps are not charged.
    pub(crate) fn work(&self, steps: u64) -> Result<(), Error> {
        let unlooked = self.unlooked.get().saturating_add(steps);
        if unlooked < LOOK_EVERY {
            self.unlooked.set(unlooked);
            return Ok(());
        }
        self.unlooked.set(0);
        if self.is_too_late() { Err(self.end_too_late("")) } else { Ok(()) }
    }

    /// True once the run has had its time. The first look starts the clock.
    fn is_too_late(&self) -> bool {
        let now = (self.cpu_time)();
        if self.began.get().is_zero() {
            self.began.set(now);
        }
        now.saturating_sub(self.began.get()) > self.limits.time
    }

    fn end_too_late(&self, at: &str) -> Error {
        let time = self.limits.time.as_millis();
        self.end(|| format!("{at}the script takes more than {time} ms"))
    }

    fn take(&self, steps: u64) -> Result<(), ()> {
        let left = self.instructions.get();
        self.instructions.set(left.saturating_sub(steps));
        if left >= steps { Ok(()) } else { Err(()) }
    }

    /// Charges bytes that leave the state.
    pub(crate) fn hand_out(&self, bytes: usize) -> Result<(), Error> {
        let left = self.output.get();
        if left < bytes {
            let limit = self.limits.output;
            return Err(self.end(|| format!("the script hands out more than {limit} bytes")));
        }
        self.output.set(left - bytes);
        Ok(())
    }

    /// Checks that a string of this length may be built outside of the state's memory.
    pub(crate) fn may_build(&self, bytes: usize) -> Result<(), Error> {
        if bytes <= self.limits.memory { Ok(()) } else { Err(self.out_of_memory()) }
    }

    /// Ends the run at the memory limit: each further allocation would first collect all garbage.
    pub(crate) fn out_of_memory(&self) -> Error {
        let limit = self.limits.memory;
        self.end(|| format!("the script takes more than {limit} bytes of memory"))
    }

    fn end(&self, why: impl FnOnce() -> String) -> Error {
        Error::runtime(self.spent.borrow_mut().get_or_insert_with(why))
    }

    /// The script's place at the last check.
    pub(crate) fn last_place(&self) -> Option<String> {
        self.last.borrow().clone()
    }

    /// The reason why the run must end, if it must.
    pub(crate) fn spent(&self) -> Option<String> {
        self.spent.borrow().clone()
    }
}
