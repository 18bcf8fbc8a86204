//! The cost limits of one evaluation. When one is reached, the request is refused: no rule is
//! skipped.

use std::cell::Cell;
use std::time::{Duration, Instant};

use sendoff_apache_expression::MatchBudget;
pub(crate) use sendoff_apache_expression::TooCostly;

use crate::limits;
use crate::request::Look;

/// The rest of the limits for a request.
pub(crate) struct Budget<'a> {
    clock: &'a dyn Look,
    started: Instant,
    /// The elapsed time at which the processor time is read again.
    next_look: Cell<Duration>,
    /// The thread's processor time when it was read first.
    processor_time: Cell<Option<Duration>>,
    steps: Cell<usize>,
    lookups: Cell<usize>,
    bytes: Cell<usize>,
    exceeded: Cell<Option<&'static str>>,
}

impl<'a> Budget<'a> {
    pub(crate) fn new(clock: &'a dyn Look) -> Self {
        Self {
            clock,
            started: Instant::now(),
            next_look: Cell::new(limits::TIME / 10),
            processor_time: Cell::new(None),
            steps: Cell::new(limits::RULE_STEPS),
            lookups: Cell::new(limits::LOOKUPS),
            bytes: Cell::new(limits::MADE),
            exceeded: Cell::new(None),
        }
    }

    /// The limit that was reached, for the log.
    pub(crate) fn exceeded(&self) -> Option<&'static str> {
        self.exceeded.get()
    }

    /// Counts one more rule.
    pub(crate) fn step(&self) -> Result<(), TooCostly> {
        self.take(&self.steps, "too many rules were tried")?;
        self.time()
    }

    /// Counts one more path that is looked up.
    pub(crate) fn lookup(&self) -> Result<(), TooCostly> {
        self.take(&self.lookups, "too many paths were looked up")?;
        self.time()
    }

    /// Checks the processor time: before each match of an expression, and in each loop over rules.
    pub(crate) fn time(&self) -> Result<(), TooCostly> {
        if self.exceeded.get().is_some() {
            return Err(TooCostly);
        }
        let elapsed = self.started.elapsed();
        if elapsed < self.next_look.get() {
            return Ok(());
        }
        // The thread may have waited for a processor: only the time that it used counts.
        self.next_look.set(elapsed + limits::TIME / 10);
        let now = self.clock.processor_time();
        let first = self.processor_time.get().unwrap_or(now);
        self.processor_time.set(Some(first));
        if now.saturating_sub(first) > limits::TIME {
            return self.exceed("the rules took too long");
        }
        Ok(())
    }

    /// Cuts a value that a directive made to the bytes that are left.
    pub(crate) fn cut(&self, value: &mut Vec<u8>) {
        value.truncate(limits::VALUE.min(self.bytes.get()));
        self.bytes.set(self.bytes.get() - value.len());
    }

    fn take(&self, left: &Cell<usize>, text: &'static str) -> Result<(), TooCostly> {
        match left.get().checked_sub(1) {
            Some(less) => {
                left.set(less);
                Ok(())
            }
            None => self.exceed(text),
        }
    }

    fn exceed(&self, text: &'static str) -> Result<(), TooCostly> {
        self.exceeded.set(self.exceeded.get().or(Some(text)));
        Err(TooCostly)
    }
}

impl MatchBudget for Budget<'_> {
    fn time(&self) -> Result<(), TooCostly> {
        Budget::time(self)
    }
}
