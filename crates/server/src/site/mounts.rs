//! The folders of a site: its root, and folders elsewhere that stand at a path of it (aliases).

use std::cell::{Ref, RefCell};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use bytes::Bytes;

use super::matching::contains;
use crate::static_files::{CacheShare, FileCache, Found, Kind, MediaTypes, Refusal, Root};

/// All folders of a site, the longest path first. The last is the root.
#[derive(Debug)]
pub(super) struct Mounts {
    all: Vec<Mount>,
    types: Rc<MediaTypes>,
}

/// A folder and the path at which it stands.
#[derive(Debug)]
struct Mount {
    /// Without a slash at its end: the root's is empty.
    prefix: Vec<u8>,
    folder: Vec<u8>,
    files: RefCell<FileCache>,
}

/// A place in one of the folders.
pub(super) struct Place<'m, 'p> {
    mount: &'m Mount,
    /// Relative to the folder.
    path: &'p [u8],
}

impl Mounts {
    /// Opens the folders.
    ///
    /// # Errors
    /// One of them cannot be opened; the error names it.
    pub(super) fn open(config: &sendoff_config::Site, share: &Rc<CacheShare>) -> io::Result<Self> {
        let types = config.media_types.iter();
        let types = types.map(|(ending, media_type)| {
            (ending.to_ascii_lowercase(), Bytes::from(media_type.clone()))
        });
        let types: Rc<MediaTypes> = Rc::new(types.collect());
        let aliases = config.aliases.iter().map(|alias| (&*alias.prefix, &*alias.folder));
        let mut all = Vec::new();
        for (prefix, folder) in aliases.chain([("", &*config.root)]) {
            let root = Root::open(folder, config.symlinks, &config.follow)?;
            all.push(Mount {
                prefix: prefix.as_bytes().to_vec(),
                folder: folder.as_os_str().as_bytes().to_vec(),
                files: RefCell::new(FileCache::new(root, Rc::clone(&types), Rc::clone(share))),
            });
        }
        all.sort_by_key(|mount| std::cmp::Reverse(mount.prefix.len()));
        Ok(Self { all, types })
    }

    /// Where a decoded and normalised path lies.
    pub(super) fn place<'p>(&self, path: &'p [u8]) -> Place<'_, 'p> {
        let found = self.all.iter().find_map(|mount| {
            let rest = path.strip_prefix(&mount.prefix[..])?;
            let path = rest.strip_prefix(b"/").or(rest.is_empty().then_some(rest))?;
            Some(Place { mount, path })
        });
        found.expect("every path begins with a slash, and the root's prefix is empty")
    }

    /// The root of the site's folder that an absolute path leads to, and the rest of the path; `None`: it leads to none of them.
    pub(super) fn root_of<'p>(&self, path: &'p [u8]) -> Option<(Ref<'_, Root>, &'p [u8])> {
        self.all.iter().find_map(|mount| {
            let rest = path.strip_prefix(&mount.folder[..])?;
            let rest = rest.strip_prefix(b"/").or(rest.is_empty().then_some(rest))?;
            Some((Ref::map(mount.files.borrow(), FileCache::root), rest))
        })
    }

    /// The alias that a path is below: the length of its prefix, and its folder.
    pub(super) fn alias(&self, path: &[u8]) -> Option<(usize, &[u8])> {
        let mut aliases = self.all.iter().filter(|mount| !mount.prefix.is_empty());
        let found = aliases.find(|mount| contains(&mount.prefix, path))?;
        Some((found.prefix.len(), &found.folder))
    }

    /// The media types that the operator has set.
    pub(super) fn media_types(&self) -> &MediaTypes {
        &self.types
    }

    /// Where a file with this absolute name lies; `None`: in none of the folders.
    pub(super) fn place_of_file<'p>(&self, file: &'p [u8]) -> Option<Place<'_, 'p>> {
        self.all.iter().find_map(|mount| {
            let path = file.strip_prefix(&mount.folder[..])?.strip_prefix(b"/")?;
            Some(Place { mount, path })
        })
    }
}

impl Place<'_, '_> {
    /// The path relative to the folder.
    pub(super) fn path(&self) -> &[u8] {
        self.path
    }

    /// What is there now, opened if it is a file.
    pub(super) fn lookup(&self) -> Result<Found, Refusal> {
        self.mount.files.borrow_mut().lookup(self.path)
    }

    /// What kind of thing is there now.
    pub(super) fn kind(&self) -> Result<Kind, Refusal> {
        self.mount.files.borrow_mut().kind(self.path)
    }

    pub(super) fn is_file(&self) -> bool {
        matches!(self.kind(), Ok(Kind::File))
    }

    /// The path in the file system.
    pub(super) fn filename(&self) -> Vec<u8> {
        [&self.mount.folder[..], b"/", self.path].concat()
    }

    /// The outermost path that this user may write to: the site's folder, a folder on the way to the place, or the place itself.
    pub(super) fn writable_above(&self, uid: u32, gid: u32) -> Option<Vec<u8>> {
        let files = self.mount.files.borrow();
        let folder = files.root().writable_above(self.path, uid, gid)?;
        Some([&self.mount.folder[..], b"/", folder].concat())
    }
}
