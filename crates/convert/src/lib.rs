//! Reads the configuration of another server and writes one for Sendoff.
//!
//! ```text
//!   nginx.conf ──tree──▶ directives with file and line ──nginx──▶ Document ──▶ sendoff.toml
//!   Unit's JSON ──json──▶ values with their paths ───────unit──▶
//! ```
//!
//! The result has a comment at each directive that has no equal. An access rule that cannot be
//! expressed becomes a route that refuses. The crate reads files only through [`Files`].
#![forbid(unsafe_code)]

mod document;
mod host;
mod nginx;
#[cfg(test)]
mod one_file;
mod place;
mod unit;

use std::fmt::{self, Display};
use std::io;
use std::path::{Path, PathBuf};

pub use place::{Part, Place};

/// The files that a configuration consists of.
pub trait Files {
    /// The contents of a file.
    ///
    /// # Errors
    /// The file cannot be read.
    fn read(&self, path: &Path) -> io::Result<String>;

    /// The files whose paths match a pattern with `*`, `?` and `[`, in alphabetical order.
    fn matching(&self, pattern: &Path) -> Vec<PathBuf>;
}

/// A converted configuration.
#[derive(Debug)]
pub struct Conversion {
    /// The text of the `sendoff.toml`.
    pub text: String,
    /// The number of directives that were left out.
    pub left_out: usize,
}

/// The configuration cannot be read at all.
#[derive(Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The place of the mistake; `None` if a file as a whole is the problem.
    pub place: Option<Place>,
    /// The mistake, and what to do.
    pub says: String,
}

impl Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.says),
            None => f.write_str(&self.says),
        }
    }
}

impl std::error::Error for Unreadable {}

/// The server that a configuration is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Nginx,
    Unit,
}

impl Origin {
    /// The server whose configuration has this name and this text.
    fn of(path: &Path, text: &str) -> Self {
        let is_json = path.extension().is_some_and(|ending| ending == "json");
        if is_json || text.trim_start_matches('\u{feff}').trim_start().starts_with('{') {
            return Self::Unit;
        }
        Self::Nginx
    }
}

/// Converts the configuration in `path`, and the files that it includes.
///
/// # Errors
/// A file cannot be read, or is not what its server would accept.
pub fn convert(path: &Path, files: &dyn Files) -> Result<Conversion, Unreadable> {
    let text = files.read(path).unwrap_or_default();
    let document = match Origin::of(path, &text) {
        Origin::Nginx => nginx::convert(path, files),
        Origin::Unit => unit::convert(path, files),
    };
    document.map(document::Document::finish)
}
