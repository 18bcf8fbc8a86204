//! The common part of the converters: the files that they read, the places in them, and the
//! `sendoff.toml` that they write.
//!
//! A [`Document`] consists of sections with keys and remarks. A remark names the file and the line
//! of a directive that has no equal, or that differs.
#![forbid(unsafe_code)]

mod directive;
mod document;
pub mod expression;
mod groups;
pub mod host;
pub mod network;
mod one_file;
mod place;
pub mod pool;
pub mod sources;

use std::fmt::{self, Display};
use std::io;
use std::path::{Path, PathBuf};

pub use directive::Directive;
pub use document::{Document, Section};
pub use one_file::OneFile;
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
