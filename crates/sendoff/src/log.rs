//! What the processes of the server write: to standard error, and to the files of logs.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use sendoff_config::LogTarget;

/// Opens the file of a log for appending.
///
/// # Errors
/// The system refuses.
fn open_log(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// Opens what the lines of an access log are written to.
///
/// # Errors
/// The system refuses.
pub(crate) fn open_target(target: &LogTarget) -> io::Result<File> {
    match target {
        LogTarget::Stdout => rustix::stdio::stdout().try_clone_to_owned().map(File::from),
        LogTarget::File(path) => open_log(path),
    }
}

/// Writes events that pass `filter` (`tracing_subscriber::EnvFilter`) to standard error from now on.
///
/// The HTTP/2 library is silent unless the filter names it: its warnings are about single frames, so a client could fill the disk with
/// them. What matters of its errors is told by the connection that gets them.
pub(crate) fn start(filter: &str) {
    let names_library = filter.contains("h2=");
    let filter = if names_library { filter.to_owned() } else { format!("{filter},h2=off") };
    let filter = tracing_subscriber::EnvFilter::try_new(filter);
    tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|_| "info,h2=off".into()))
        .with_writer(io::stderr)
        .with_target(false)
        // They go to standard error too; if that is what is broken, it would panic.
        .log_internal_errors(false)
        .init();
}

/// Writes a sentence for the operator.
#[allow(clippy::print_stderr, reason = "the last words of a process")]
pub(crate) fn say(sentence: &impl std::fmt::Display) {
    eprintln!("sendoff: {sentence}");
}
