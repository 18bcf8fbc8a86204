//! The log of the PHP master: standard error.

use std::fmt::Display;
use std::io::{self, Write as _};

use rustix::process::Pid;
use sendoff_sys::output::{LineLog, OutputStream};

/// Writes a line to the server's log.
pub(crate) fn log(line: impl Display) {
    // One write for the whole line, so that no other process writes into it. A failed write cannot
    // be reported anywhere.
    let _ = io::stderr().write_all(format!("sendoff-php: {line}\n").as_bytes());
}

/// Logs the lines that workers print, and processes that their scripts have started.
#[derive(Debug)]
pub(crate) struct WorkerLog<'a> {
    pub(crate) pool: &'a str,
}

impl LineLog for WorkerLog<'_> {
    fn line(&self, worker: Pid, _: OutputStream, text: &str) {
        log(format_args!("worker {} of pool {}: {text}", worker.as_raw_nonzero(), self.pool));
    }

    fn suppressed(&self, lines: u64) {
        let pool = self.pool;
        log(format_args!("{lines} more lines of pool {pool} within a second were not logged"));
    }
}
