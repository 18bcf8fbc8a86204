//! The log of the PHP master and of workers that start: standard error.

use std::fmt::Display;
use std::io::{self, Write as _};

/// A line for the server's log.
pub(crate) fn log(line: impl Display) {
    // Nothing can be done about a log that cannot be written.
    let _ = writeln!(io::stderr(), "sendoff-php: {line}");
}
