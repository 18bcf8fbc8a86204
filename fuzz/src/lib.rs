//! Tests codecs with arbitrary bytes. Each target is a function of bytes that panics if a promise
//! is broken.
//!
//! libFuzzer calls the targets with a nightly compiler (`fuzz_targets/`); `make test` calls them
//! for some seconds, with any compiler, with inputs made from valid ones by random changes (`run`).
#![forbid(unsafe_code)]

pub mod convert;
pub mod esi;
pub mod fastcgi;
mod heads;
pub mod htaccess;
pub mod http1;
pub mod http2;
pub mod http3;
pub mod lua;
mod mutate;
pub mod proxies;
pub mod records;
pub mod region;
pub mod responses;
pub mod ring;
pub mod settings;

pub use mutate::Case;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// A function that gets arbitrary bytes.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Panics if a promise is broken.
    pub check: fn(&[u8]),
    /// Inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Strings that inputs are likely to contain.
    pub words: &'static [&'static [u8]],
}

/// A promise was broken.
#[derive(Debug)]
pub struct Failure {
    /// The case, which generates the input again.
    pub case: Case,
    /// The input.
    pub input: Vec<u8>,
    /// The message of the panic.
    pub message: String,
}

impl Target {
    /// Tries one case.
    ///
    /// # Errors
    /// The target panicked.
    pub fn try_case(&self, case: Case) -> Result<(), Box<Failure>> {
        self.try_input(case, mutate::input(&(self.seeds)(), self.words, case))
    }

    fn try_input(&self, case: Case, input: Vec<u8>) -> Result<(), Box<Failure>> {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.check)(&input))) else {
            return Ok(());
        };
        let message = panic.downcast_ref::<String>().cloned();
        let message =
            message.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Box::new(Failure { case, input, message: message.unwrap_or_default() }))
    }

    /// Tries cases one after the other for the given time. Returns their number.
    ///
    /// # Errors
    /// The first case for which the target panicked.
    pub fn run(&self, seed: u64, time: Duration) -> Result<u64, Box<Failure>> {
        let (seeds, end) = ((self.seeds)(), Instant::now() + time);
        for number in 0.. {
            let case = Case { seed, number };
            self.try_input(case, mutate::input(&seeds, self.words, case))?;
            if Instant::now() >= end {
                return Ok(number + 1);
            }
        }
        Ok(0)
    }
}
