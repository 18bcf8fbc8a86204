//! Places in the files that are converted.

use std::fmt::{self, Display};
use std::rc::Rc;

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// The path of the file, as it was named.
    pub file: Rc<str>,
    /// The number of the line, from 1.
    pub line: usize,
}

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}
