//! The configuration of nginx.
//!
//! `tree` reads the files, `scope` knows which directives a block inherits, `pattern` which location
//! nginx chooses, `text` the variables. `server` makes a site of a `server`; `location` and the
//! modules beside it make routes of its locations.

mod access;
mod http;
mod known;
mod listen;
mod location;
mod pattern;
mod proxy;
mod rewrite;
mod rules;
mod scope;
mod server;
#[cfg(test)]
mod tests;
mod text;
mod tree;
mod units;

use std::path::Path;

use crate::document::Document;
use crate::{Files, Unreadable};

/// Converts a file of nginx: `nginx.conf`, or a file with `server` blocks as in Debian's
/// `sites-available`.
pub(crate) fn convert(path: &Path, files: &dyn Files) -> Result<Document, Unreadable> {
    let tree = tree::read(path, files)?;
    http::convert(&tree)
}
