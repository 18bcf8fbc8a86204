//! What can be wrong with a directive, and what the reader of a log is told.

use std::fmt;

/// What becomes of a directive that is not obeyed as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Problem {
    /// Apache would answer 500 for the whole folder, and so do we.
    Broken(String),
    /// It may be about access: what it covers is answered with 403.
    Refused(String),
    /// It is not about access: nothing happens.
    Ignored(String),
}

impl From<String> for Problem {
    fn from(text: String) -> Self {
        Self::Broken(text)
    }
}

impl From<&str> for Problem {
    fn from(text: &str) -> Self {
        Self::Broken(text.to_owned())
    }
}

/// How much a remark matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Every request to the folder is answered with 500.
    Broken,
    /// The requests that the directive covers are answered with 403.
    Refused,
    /// The directive has no effect here.
    Ignored,
}

/// A remark about a line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The line, from 1.
    pub line: usize,
    /// What becomes of the requests.
    pub severity: Severity,
    /// A sentence: what was found, and what to do.
    pub text: String,
}

impl Severity {
    /// What happens to requests, as the end of a sentence.
    #[must_use]
    pub fn effect(self) -> &'static str {
        match self {
            Self::Broken => "requests to this folder are answered with 500",
            Self::Refused => "what it covers is answered with 403",
            Self::Ignored => "ignored",
        }
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {} ({})", self.line, self.text, self.severity.effect())
    }
}
