//! The log of a program's processes.

use rustix::process::Pid;
use sendoff_sys::output::{LineLog, OutputStream};

/// Logs the lines of a pool's processes with the pool's name.
#[derive(Debug)]
pub(super) struct PoolLog<'a> {
    pub(super) pool: &'a str,
}

impl LineLog for PoolLog<'_> {
    fn line(&self, process: Pid, stream: OutputStream, text: &str) {
        let (pool, process) = (self.pool, process.as_raw_nonzero());
        match stream {
            OutputStream::Output => tracing::info!(pool, process, "{text}"),
            OutputStream::Error => tracing::warn!(pool, process, "{text}"),
        }
    }

    fn suppressed(&self, lines: u64) {
        tracing::warn!(pool = self.pool, "{lines} more lines within a second were not logged");
    }
}
