//! The configuration of Apache: `apache2.conf` or `httpd.conf`, or a file of Debian's
//! `sites-available`.
//!
//! `tree` reads the files. `server` makes a site of a `<VirtualHost>`. `sections` puts the sections
//! that apply to it into Apache's order, `areas` knows the paths of each, and `mapping` the folders
//! of the file system behind them. The modules for single directives convert them, or say in the
//! result why they do not.
//!
//! Of several sections with rules about access, Apache obeys the last that a path is in. So the
//! route of a section excludes the paths of later ones. Where the paths of a section are not known
//! exactly, its own route holds for more of them, and it takes fewer from the routes of others.
#![forbid(unsafe_code)]

mod access;
mod areas;
mod clients;
mod fields;
mod folders;
mod handlers;
mod hosts;
mod index;
mod keys;
mod known;
mod listen;
mod mapping;
mod options;
mod php;
mod proxy;
mod redirect;
mod rewrite;
mod sections;
mod server;
mod tested;
mod tree;
mod users;

use std::path::Path;

use sendoff_convert_document::{Conversion, Document, Files, Unreadable};

/// Converts a file of Apache.
///
/// # Errors
/// A file cannot be read, or is not what Apache would accept.
pub fn convert(path: &Path, files: &dyn Files) -> Result<Conversion, Unreadable> {
    let tree = tree::read(path, files)?;
    server::all(&tree).map(Document::finish)
}
