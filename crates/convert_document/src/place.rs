//! Places in the files that are converted.

use std::fmt::{self, Display};
use std::rc::Rc;

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// The path of the file, as it was named.
    pub file: Rc<str>,
    /// The part of the file.
    pub part: Part,
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Part {
    /// The number of a line, from 1.
    Line(usize),
    /// The names and numbers that lead to a value of a JSON document, as in
    /// `routes/0/action/share`.
    Value(Rc<str>),
}

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.part {
            Part::Line(line) => write!(f, "{}:{line}", self.file),
            Part::Value(path) if path.is_empty() => f.write_str(&self.file),
            Part::Value(path) => write!(f, "{}: {path}", self.file),
        }
    }
}
