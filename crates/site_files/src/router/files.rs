//! Files for routes and rules that run no scripts, and the entries of folders.

use std::rc::Rc;

use sendoff_static_files::{Entry, Found, Refusal};

use super::{PathTarget, Router};
use crate::never_served::is_source;

/// The kind of an entry of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListKind {
    /// A folder.
    Folder,
    /// A regular file of this size in bytes.
    File(u64),
}

impl Router {
    /// The file at a path, for a route that runs no scripts.
    pub fn file(&self, path: &[u8]) -> PathTarget {
        match self.file_or_script(path) {
            PathTarget::Script(script) if script.name == path => {
                PathTarget::forbidden("the route serves files, and this is a script")
            }
            PathTarget::Script(_) => PathTarget::NOT_FOUND,
            other => other,
        }
    }

    /// The file at a path, for a route that runs no scripts and lists folders without an index file.
    pub fn file_or_listing(&self, path: &[u8]) -> PathTarget {
        let is_listed = path.ends_with(b"/")
            && self.exceptions.hidden(path).is_none()
            && self.exceptions.protected(path).is_none()
            && self.is_folder(path)
            && self.index_of(path).is_none();
        if is_listed { PathTarget::Listing } else { self.file(path) }
    }

    /// The names in a folder, at most this number.
    pub fn names_in(&self, folder: &[u8], most: usize) -> Result<Vec<Vec<u8>>, Refusal> {
        self.mounts.place(folder).names(most)
    }

    /// Kind and last modification of an entry of a folder; `None`: it is not served as a file or a
    /// folder.
    pub fn listed(&self, path: &[u8]) -> Option<(ListKind, u64)> {
        let is_refused = self.exceptions.hidden(path).is_some()
            || self.exceptions.protected(path).is_some()
            || is_source(path)
            || self.is_script(path);
        let identity = if is_refused { None } else { self.mounts.place(path).identity().ok() }?;
        let kind = match identity.is_regular_file() {
            true => ListKind::File(identity.size),
            false => ListKind::Folder,
        };
        Some((kind, identity.modified().0))
    }

    /// The static file with this absolute name, served at `path`.
    pub fn at(&self, file: &[u8], path: &[u8]) -> PathTarget {
        if is_source(file) {
            return PathTarget::forbidden("it looks like a script, and the rules do not run it");
        }
        let Some(place) = self.mounts.place_of_file(file) else {
            return PathTarget::forbidden(
                "the rules lead to a file outside the folders of the site",
            );
        };
        let refused = self.exceptions.hidden(place.path()).map(|why| why.to_string());
        let protected = || self.exceptions.protected(place.path()).map(|why| why.to_string());
        if let Some(why) = refused.or_else(protected) {
            return PathTarget::forbidden(why);
        }
        match place.lookup() {
            Ok(Found::File(entry)) => PathTarget::File(entry),
            Ok(Found::Directory) => self.folder(path),
            Err(Refusal::NotFound) => PathTarget::NOT_FOUND,
            Err(refusal) => self.missing(path, &refusal),
        }
    }

    /// The compressed variant of a file, which lies beside it with this ending. The variant must be
    /// a file that may be served, and must not be older than the original.
    pub fn ready_made(&self, entry: &Entry, ending: &str) -> Option<Rc<Entry>> {
        let (path, found) = self.mounts.beside(entry, ending)?;
        let Ok(Found::File(ready)) = found else { return None };
        let is_refused = self.exceptions.hidden(&path).is_some()
            || self.exceptions.protected(&path).is_some()
            || is_source(&path);
        (!is_refused && ready.modified >= entry.modified).then_some(ready)
    }
}
