//! The file system and its rules.

use std::sync::Arc;

use crate::file::File;
use crate::request::Look;

/// The file system and its rules.
pub trait Files: Look {
    /// The rules of a folder: its `.htaccess`, parsed. The path does not end with a slash.
    fn rules(&self, folder: &[u8]) -> Option<Arc<File>>;
    /// The length of the path of the outermost folder whose rules apply to this folder. A walk
    /// begins there. `folder` leads to the root or to the folder of an alias.
    fn outermost(&self, folder: &[u8]) -> usize {
        folder.len()
    }
    /// The alias that contains a path of the site: the length of its prefix, and its folder.
    /// `None`: the root.
    fn alias(&self, path: &[u8]) -> Option<(usize, Vec<u8>)> {
        let _ = path;
        None
    }
}
