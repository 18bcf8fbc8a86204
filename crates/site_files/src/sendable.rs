//! The files that applications may name in `X-Sendfile` and similar fields, and the rules for these
//! names.

use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use http::StatusCode;
use sendoff_config::{Accel, Symlinks};
use sendoff_message::request::{decode_path, normalise};
use sendoff_static_files::{Entry, Refusal, Root, canonical, refuses};

use crate::never_served::is_source;

/// The files that applications may name.
#[derive(Debug)]
pub struct Sendable {
    pub(crate) root: SendableFolder,
    /// The folders of `sendfile_from`.
    pub(crate) folders: Vec<SendableFolder>,
    /// The URI prefixes of `accel`, longest first, with their folders.
    pub(crate) prefixes: Vec<(Vec<u8>, SendableFolder)>,
}

#[derive(Debug)]
pub(crate) struct SendableFolder {
    pub(crate) path: PathBuf,
    pub(crate) root: Root,
}

impl SendableFolder {
    fn open(path: &Path, symlinks: Symlinks, follow: &[PathBuf]) -> io::Result<Self> {
        let path = canonical(path)?;
        Ok(Self { root: Root::open(&path, symlinks, follow)?, path })
    }

    /// The rest of `path`, if it is beneath the folder.
    pub(crate) fn beneath<'a>(&self, path: &'a Path) -> Option<&'a [u8]> {
        path.strip_prefix(&self.path).ok().map(|rest| rest.as_os_str().as_bytes())
    }
}

/// The reason why a file is not sent.
#[derive(Debug)]
pub struct Denied {
    /// The status of the response.
    pub status: StatusCode,
    /// The reason, for the log.
    pub why: String,
}

impl Denied {
    pub(crate) fn forbidden(why: String) -> Self {
        Self { status: StatusCode::FORBIDDEN, why }
    }

    pub(crate) fn refused(name: &dyn fmt::Display, refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotFound => {
                Self { status: StatusCode::NOT_FOUND, why: format!("{name} is not there") }
            }
            Refusal::Forbidden(why) => Self::forbidden(format!("{name} may not be sent: {why}")),
            Refusal::Failed(error) => Self {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                why: format!("{name} cannot be opened: {error}"),
            },
        }
    }
}

impl Sendable {
    /// The files beneath the site's root and in the folders of the options.
    ///
    /// # Errors
    /// One of the folders cannot be opened.
    pub fn open(site: &sendoff_config::Site) -> io::Result<Self> {
        let sendoff_config::Site { root, symlinks, follow, sendfile_from, accel, .. } = site;
        // A link may be an upload unpacked from an archive, and its owner may also own the
        // application's secrets. So, unlike for files that clients ask for, the owner of a link
        // does not count here.
        let symlinks = match symlinks {
            Symlinks::Any => Symlinks::Any,
            Symlinks::Owner | Symlinks::Inside => Symlinks::Inside,
        };
        let follow = [&follow[..], sendfile_from].concat();
        let in_folder = |folder: &Path| SendableFolder::open(folder, symlinks, &follow);
        let mut prefixes = Vec::new();
        for Accel { prefix, folder } in accel {
            prefixes.push((prefix.as_bytes().to_vec(), in_folder(folder)?));
        }
        prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        let folders =
            sendfile_from.iter().map(|folder| in_folder(folder)).collect::<Result<_, _>>()?;
        Ok(Self { root: in_folder(root)?, folders, prefixes })
    }

    /// True if `sendfile_from` is set. Only then are frameworks asked to name files. Otherwise
    /// files outside the root would be refused, although the framework could have sent them itself.
    pub fn is_set_up(&self) -> bool {
        !self.folders.is_empty()
    }

    /// The URI prefixes of `accel`, longest first, with their folders.
    pub fn accel(&self) -> impl Iterator<Item = (&[u8], &Path)> {
        self.prefixes.iter().map(|(prefix, folder)| (&prefix[..], &*folder.path))
    }

    /// The site's path of a file with this absolute path, if clients may ask for it there; `None`:
    /// it is in a folder that the operator has listed, or in no folder of the site.
    pub fn site_path(&self, path: &Path) -> Option<Vec<u8>> {
        let path_in = |path: &Path| {
            if self.folders.iter().any(|folder| folder.beneath(path).is_some()) {
                return Some(None);
            }
            let rest = self.root.beneath(path)?;
            Some(normalise(&[b"/", rest].concat()).ok())
        };
        path_in(path).or_else(|| path_in(&path.canonicalize().ok()?)).flatten()
    }

    /// The path of the site by which the `accel` prefix of a URI, or the root if it has none, leads
    /// to `place`; `None`: no path leads there, or the operator has listed its folder.
    pub fn path_beside(&self, uri: &[u8], place: &Path) -> Option<Vec<u8>> {
        let path = decode_path(path_of_uri(uri)).ok()?;
        let Some((folder, rest)) = self.folder_of(&path) else { return self.site_path(place) };
        let prefix = &path[..path.len() - rest.len()];
        normalise(&[prefix, folder.beneath(place)?].concat()).ok()
    }

    /// The folder of an `accel` prefix that contains a decoded path of a URI, and the rest of the
    /// path.
    pub(crate) fn folder_of<'p>(&self, path: &'p [u8]) -> Option<(&SendableFolder, &'p [u8])> {
        self.prefixes.iter().find_map(|(prefix, folder)| {
            let rest = path.strip_prefix(&prefix[..])?;
            let is_beneath = prefix.ends_with(b"/") || rest.starts_with(b"/");
            is_beneath.then(|| (folder, rest.strip_prefix(b"/").unwrap_or(rest)))
        })
    }

    /// Opens the file of a URI.
    pub fn by_uri(&self, uri: &[u8]) -> Result<Entry, Denied> {
        let name = String::from_utf8_lossy(uri);
        let path = decode_path(path_of_uri(uri))
            .map_err(|bad| Denied::forbidden(format!("{name}: {}", bad.0)))?;
        if let Some((folder, rest)) = self.folder_of(&path) {
            return open(&folder.root, rest, &name);
        }
        self.in_root(&path[1..], &name).map_err(|mut denied| {
            denied.why += "; accel (--accel /PREFIX=DIR) sends URIs from elsewhere";
            denied
        })
    }

    /// Opens a path beneath one of the folders or the root; `None` if it is beneath none of them.
    fn beneath(&self, path: &Path, name: &dyn fmt::Display) -> Option<Result<Entry, Denied>> {
        for folder in &self.folders {
            if let Some(rest) = folder.beneath(path) {
                return Some(open(&folder.root, rest, name));
            }
        }
        self.root.beneath(path).map(|rest| self.in_root(rest, name))
    }

    /// Opens a file beneath the root. Hidden files and scripts are refused, as for clients, unless
    /// an option lists their folder.
    fn in_root(&self, path: &[u8], name: &dyn fmt::Display) -> Result<Entry, Denied> {
        if is_private(path) {
            return Err(Denied::forbidden(format!(
                "{name} is a hidden file or a script; --sendfile-from with its folder, or sendfile_from of the site, would allow it"
            )));
        }
        open(&self.root.root, path, name)
    }
}

/// The path of a URI, still encoded.
pub(crate) fn path_of_uri(uri: &[u8]) -> &[u8] {
    uri.split(|&b| b == b'?').next().unwrap_or_default()
}

/// Opens files that applications name by their absolute paths.
pub trait ByPath {
    /// Opens the file with this absolute path.
    ///
    /// # Errors
    /// The file may not be sent, or cannot be opened.
    fn by_path(&self, path: &[u8]) -> Result<Entry, Denied>;
}

impl ByPath for Sendable {
    fn by_path(&self, path: &[u8]) -> Result<Entry, Denied> {
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        let name = path.display();
        if !path.is_absolute() {
            return Err(Denied::forbidden(format!("{name} is no absolute path")));
        }
        // The application may use another name of the folder, so the canonical path is tried as
        // well.
        let found = self.beneath(path, &name);
        found.or_else(|| self.beneath(&path.canonicalize().ok()?, &name)).unwrap_or_else(|| {
            let folder = path.parent().unwrap_or(path).display();
            Err(Denied::forbidden(format!(
                "{name} is outside of what may be sent; --sendfile-from {folder}, or sendfile_from of the site, would allow it"
            )))
        })
    }
}

/// True for the path of a hidden file or a script beneath the root.
pub(crate) fn is_private(path: &[u8]) -> bool {
    refuses(path) || is_source(path)
}

fn open(root: &Root, path: &[u8], name: &dyn fmt::Display) -> Result<Entry, Denied> {
    Entry::open(root, path).map_err(|refusal| Denied::refused(name, refusal))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A site with allowed and forbidden files.
    fn site() -> (tempfile::TempDir, Sendable) {
        let dir = tempfile::tempdir().unwrap();
        for (name, contents) in [
            ("root/a", "A"),
            ("root/x.php", "<?php"),
            ("root/.env", "secret"),
            ("more/b", "BB"),
            ("more/.c", "CCC"),
            ("accel/d e", "DDDD"),
            ("out/f", "no"),
        ] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, contents).unwrap();
        }
        std::os::unix::fs::symlink("../out/f", dir.path().join("more/link")).unwrap();
        std::os::unix::fs::symlink("more", dir.path().join("alias")).unwrap();
        let accel = Accel { prefix: "/protected".to_owned(), folder: dir.path().join("accel") };
        let site = sendoff_config::Site {
            symlinks: Symlinks::Inside,
            sendfile_from: vec![dir.path().join("more")],
            accel: vec![accel],
            ..sendoff_config::Site::new(dir.path().join("root"))
        };
        let sendable = Sendable::open(&site).unwrap();
        (dir, sendable)
    }

    fn result(opened: Result<Entry, Denied>) -> u64 {
        opened.map_or_else(|denied| denied.status.as_u16().into(), |entry| entry.size)
    }

    #[test]
    fn only_files_of_the_named_folders_are_opened() {
        let (dir, sendable) = site();
        for (name, expected) in [
            ("root/a", 1),
            ("root/x.php", 403),
            ("root/.env", 403),
            ("root/none", 404),
            ("root", 403),
            ("more/b", 2),
            ("more/.c", 3),
            ("alias/b", 2),
            ("more/link", 403),
            ("out/f", 403),
            ("more/../out/f", 403),
            ("root/../more/b", 403),
            ("moreover", 403),
        ] {
            let path = dir.path().join(name);
            let got = result(sendable.by_path(path.as_os_str().as_bytes()));
            assert_eq!(got, expected, "{name}");
        }
        assert_eq!(result(sendable.by_path(b"root/a")), 403);
        assert_eq!(result(sendable.by_path(b"/etc/passwd")), 403);
        assert_eq!(result(sendable.by_path(b"/etc/\0passwd")), 403);
        for (uri, expected) in [
            ("/a", 1),
            ("/a?x=1", 1),
            ("/x.php", 403),
            ("/protected/d%20e", 4),
            ("/protected/../a", 1),
            ("/protected", 404),
            ("/protectedd%20e", 404),
            ("/../out/f", 403),
            ("a", 403),
            ("/%2e%2e/out/f", 403),
        ] {
            assert_eq!(result(sendable.by_uri(uri.as_bytes())), expected, "{uri}");
        }
    }
}
