//! Reasons for an outcome.

use std::fmt;

/// The inputs of an evaluation. The same method, target, host, port and scheme, the same values of
/// these fields and the same files lead to the same outcome, unless `more` is true.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DependsOn {
    /// Names of request fields.
    pub fields: Vec<Vec<u8>>,
    /// The address of the client, without its port.
    pub client: bool,
    /// Other inputs: the client's port, the user, the time, all fields, or the size of a file.
    pub more: bool,
}

/// A rule that decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The file.
    pub file: String,
    /// The line, from 1; 0 stands for the whole file.
    pub line: usize,
    /// The effect of the rule.
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
