//! Problems with directives, and remarks about them for the log.

use std::fmt;

/// The consequence of a directive that cannot be obeyed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Problem {
    /// Apache would answer 500 for the whole folder, and so does this server.
    Broken(String),
    /// The directive may be about access: requests that it covers are answered with 403.
    Refused(String),
    /// The directive is not about access: it has no effect.
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

/// The severity of a remark.
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
    /// The consequence for requests.
    pub severity: Severity,
    /// The problem and the advice, as one sentence.
    pub text: String,
}

impl Severity {
    /// The consequence for requests, as the end of a sentence.
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
