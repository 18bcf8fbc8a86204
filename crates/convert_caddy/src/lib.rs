//! The configuration of Caddy: Caddyfiles.
//!
//! `tokens` and `tree` read the files, with their imports and snippets. `site` makes a site of a
//! block of addresses; `body` the routes of a block of directives, in the order that `order` has
//! from Caddy. `matcher` makes conditions of matchers. The modules for single directives convert
//! them, or say in the result why they do not.
//!
//! Blocks of `handle` exclude each other. If each of them answers whatever reaches it, the routes
//! follow each other. Otherwise `blocks` marks a request that has reached one: its path begins with
//! `/@caddy/NUMBER` up to the end of the block, and clients cannot name such paths.
#![forbid(unsafe_code)]

mod access;
mod address;
mod answer;
mod blocks;
mod body;
mod conditions;
mod fields;
mod files;
mod forwarded;
mod global;
mod matcher;
mod order;
mod path;
mod php;
mod proxy;
mod rewriting;
mod site;
mod sort;
mod text;
mod tls;
mod tokens;
mod tree;
mod tried;
mod units;

use std::path::Path;

use sendoff_convert_document::{Conversion, Document, Files, Unreadable};

/// Converts a Caddyfile.
///
/// # Errors
/// A file cannot be read, or is not what Caddy would accept.
pub fn convert(path: &Path, files: &dyn Files) -> Result<Conversion, Unreadable> {
    let tree = tree::read(path, files)?;
    site::all(&tree).map(Document::finish)
}
