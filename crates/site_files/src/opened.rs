//! A file that a response field names and that the worker opened when the script set the field. In
//! the meantime the name may have disappeared, or may lead to another file.
//!
//! | the name leads to | the client gets |
//! |---|---|
//! | the same file | the file, if the rules for names allow it |
//! | no file, or another file | the open file, if the rules allow the name and its old place |
//! | a file that is not allowed | 403 |

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use http::StatusCode;
use percent_encoding::percent_decode;
use rustix::fs::OFlags;
use sendoff_message::request::decode_path;
use sendoff_static_files::{Entry, place};

use crate::sendable::{Denied, Sendable, is_private, path_of_uri};

/// The kernel's mark, in `/proc/self/fd`, on the name of a removed file.
const DELETED: &[u8] = b" (deleted)";

impl Sendable {
    /// Decides between the open file and `by_name`, the file that has the name now. `is_path`: the
    /// name is a path and not a URI. `may_leave`: checks that the routes allow the place at which
    /// the file was opened.
    pub fn opened(
        &self,
        is_path: bool,
        name: &[u8],
        opened: OwnedFd,
        by_name: Result<Entry, Denied>,
        may_leave: impl FnOnce(&Path) -> Result<(), Denied>,
    ) -> Result<Entry, Denied> {
        // Routes and folders were checked with a path without `..`, but the worker's kernel has
        // followed `..` from folder to folder.
        if !is_path && climbs(name) {
            return by_name;
        }
        let path = is_path.then(|| Path::new(OsStr::from_bytes(name)));
        match by_name {
            Ok(entry) if entry.is_same_file(&opened) => return Ok(entry),
            Err(denied) if denied.status != StatusCode::NOT_FOUND => {
                // The path of a missing file cannot be canonicalised, so a file in an alias of an
                // allowed folder seems to lie outside of it.
                if !path.is_some_and(|path| self.is_gone(path)) {
                    return Err(denied);
                }
            }
            Ok(_) | Err(_) => {}
        }
        let shown = String::from_utf8_lossy(name);
        let place = place_of(&opened).ok_or_else(|| {
            Denied::forbidden(format!("{shown} is no regular file, open for reading"))
        })?;
        let is_allowed =
            if is_path { self.allows_path(&place) } else { self.allows_uri(name, &place) };
        if !is_allowed {
            return Err(Denied::forbidden(format!(
                "{shown} was {}, which is outside of what may be sent",
                place.display()
            )));
        }
        may_leave(&place)?;
        Entry::of_descriptor(opened, place.as_os_str().as_bytes())
            .map_err(|refusal| Denied::refused(&shown, refusal))
    }

    /// True if the path leads to no file any more, and its name alone is not forbidden.
    fn is_gone(&self, path: &Path) -> bool {
        let climbs = path.components().any(|part| part == Component::ParentDir);
        let hidden =
            self.root.beneath(path).is_some_and(|rest| !self.in_folders(path) && is_private(rest));
        path.is_absolute() && !climbs && !hidden && path.symlink_metadata().is_err()
    }

    /// True if an option allows every path in the folder of `place`.
    fn in_folders(&self, place: &Path) -> bool {
        self.folders.iter().any(|folder| place.starts_with(&folder.path))
    }

    /// Applies the rules for paths to the place at which a file was opened.
    fn allows_path(&self, place: &Path) -> bool {
        self.in_folders(place) || self.allows_in_root(place)
    }

    /// Applies the rules for URIs to the place at which the file of this URI was opened.
    fn allows_uri(&self, uri: &[u8], place: &Path) -> bool {
        let Ok(path) = decode_path(path_of_uri(uri)) else { return false };
        match self.folder_of(&path) {
            Some((folder, _)) => place.starts_with(&folder.path) || folder.root.follows_to(place),
            None => self.allows_in_root(place),
        }
    }

    fn allows_in_root(&self, place: &Path) -> bool {
        self.root.beneath(place).is_some_and(|rest| !is_private(rest))
            || self.root.root.follows_to(place)
    }
}

/// True if a URI contains `..`.
fn climbs(uri: &[u8]) -> bool {
    let path: Vec<u8> = percent_decode(path_of_uri(uri)).collect();
    path.split(|&byte| byte == b'/').any(|name| name == b"..")
}

/// The place of an open file, or its last one; `None` if the descriptor is not open for reading
/// only.
fn place_of(opened: &OwnedFd) -> Option<PathBuf> {
    let flags = rustix::fs::fcntl_getfl(opened).ok()?;
    if flags & OFlags::RWMODE != OFlags::RDONLY || flags.contains(OFlags::PATH) {
        return None;
    }
    let place = place(opened).ok()?;
    // An existing file may really have this ending.
    if !place.as_os_str().as_bytes().ends_with(DELETED) || place.symlink_metadata().is_ok() {
        return Some(place);
    }
    let mut name = place.into_os_string().into_vec();
    name.truncate(name.len() - DELETED.len());
    Some(PathBuf::from(std::ffi::OsString::from_vec(name)))
}
