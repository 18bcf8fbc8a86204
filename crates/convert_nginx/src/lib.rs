//! The configuration of nginx.
//!
//! `tree` reads the files, `scope` knows which directives a block inherits, `choice` which location
//! nginx chooses, `text` the variables. `server` makes a site of a `server`, `answer` the routes of a
//! location, with the help of the modules for single directives.
//!
//! Each part takes the directives that it deals with: it converts them, or says in the result why
//! it does not. `leftover` names those that nothing has taken, so no directive is lost.
#![forbid(unsafe_code)]

mod access;
mod addresses;
mod again;
mod answer;
mod authorize;
mod choice;
mod common;
mod effect;
mod folder;
mod http;
mod known;
mod leftover;
mod listen;
mod location;
mod maps;
mod named;
mod pattern;
mod pool;
mod proxy;
mod public;
mod rewrite;
mod rules;
mod scope;
mod server;
mod site;
mod tested;
#[cfg(test)]
mod tests;
mod text;
mod tls;
mod tree;
mod tries;
mod units;
mod upstream;

use std::path::Path;

use sendoff_convert_document::{Conversion, Document, Files, Unreadable};

/// Converts a file of nginx: `nginx.conf`, or a file with `server` blocks as in Debian's
/// `sites-available`.
///
/// # Errors
/// A file cannot be read, or is not what the server would accept.
pub fn convert(path: &Path, files: &dyn Files) -> Result<Conversion, Unreadable> {
    let tree = tree::read(path, files)?;
    http::convert(&tree).map(Document::finish)
}
