//! The back end of web applications: this program once more, as a process of its own.

use super::{Daemon, Running};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Stdio;

/// Starts the back end; `dir` gets its messages.
pub(crate) fn start_back_end(dir: &Path) -> Result<Running> {
    let program = std::env::current_exe()?;
    let mut daemon = Daemon::spawn(&program, &["back-end"], dir, Stdio::piped())?;
    let line = daemon.first_line()?;
    let addr = line.trim().parse().with_context(|| format!("{line:?} is not an address"))?;
    Ok(Running { addr, daemons: vec![daemon.unmeasured()] })
}
