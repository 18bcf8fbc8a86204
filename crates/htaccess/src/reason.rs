//! Why an outcome is what it is.

use std::fmt;

/// What of a request was looked at. With the same method, target, host, port and scheme, the same values of these fields
/// and the same files, the outcome is the same, unless `more` was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DependsOn {
    /// Names of request fields.
    pub fields: Vec<Vec<u8>>,
    /// The address of the client, without its port.
    pub client: bool,
    /// More of the client, the user, the time, all fields, the size of a file.
    pub more: bool,
}

/// A rule that decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The file.
    pub file: String,
    /// The line, from 1; 0: the whole file.
    pub line: usize,
    /// What the rule did.
    pub text: String,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.text),
            line => write!(f, "{}:{line}: {}", self.file, self.text),
        }
    }
}
