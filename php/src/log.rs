//! The log of the PHP master and of starting workers: standard error.

use std::fmt::Display;
use std::io::{self, Write as _};

/// Writes a line to the server's log.
pub(crate) fn log(line: impl Display) {
    // A failed write cannot be reported anywhere.
    let _ = writeln!(io::stderr(), "sendoff-php: {line}");
}
