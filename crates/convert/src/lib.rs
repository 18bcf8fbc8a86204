//! Reads the configuration of another server and writes one for Sendoff.
//!
//! ```text
//!   nginx.conf ──▶ convert_nginx ──▶ Document ──▶ sendoff.toml
//!   Unit's JSON ──▶ convert_unit ───▶
//! ```
//!
//! The result has a comment at each directive that has no equal. An access rule that cannot be
//! expressed becomes a route that refuses. The crate reads files only through [`Files`].
#![forbid(unsafe_code)]

use std::path::Path;

pub use sendoff_convert_document::{Conversion, Files, Part, Place, Unreadable};

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
    match Origin::of(path, &text) {
        Origin::Nginx => sendoff_convert_nginx::convert(path, files),
        Origin::Unit => sendoff_convert_unit::convert(path, files),
    }
}
