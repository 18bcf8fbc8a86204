//! The folders of a site: its root, and folders elsewhere that are mounted at a path of the site
//! (aliases).

use std::cell::{Ref, RefCell};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;

use sendoff_config::url_path::contains;
use sendoff_message::configured::shared;
use sendoff_static_files::{
    CacheShare, Entry, FileCache, Found, Identity, MediaTypes, PathKind, Refusal, Root, WritingUser,
};

/// All folders of a site, longest path first. The root is the last.
#[derive(Debug)]
pub(crate) struct Mounts {
    all: Vec<Mount>,
    types: Rc<MediaTypes>,
}

/// A folder and the path at which it is mounted.
#[derive(Debug)]
struct Mount {
    /// Without a trailing slash: the root's prefix is empty.
    prefix: Vec<u8>,
    folder: Vec<u8>,
    files: RefCell<FileCache>,
}

/// A path in one of the folders.
pub(crate) struct MountedPath<'m, 'p> {
    mount: &'m Mount,
    /// Relative to the folder.
    path: &'p [u8],
}

impl Mounts {
    /// Opens the folders.
    ///
    /// # Errors
    /// One of them cannot be opened; the error names it.
    pub(crate) fn open(config: &sendoff_config::Site, share: &Rc<CacheShare>) -> io::Result<Self> {
        let types = config.media_types.iter();
        let types =
            types.map(|(ending, media_type)| (ending.to_ascii_lowercase(), shared(media_type)));
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
        for (number, mount) in all.iter_mut().enumerate() {
            mount.files.get_mut().set_number(number);
        }
        Ok(Self { all, types })
    }

    /// The place of a decoded and normalised path.
    pub(crate) fn place<'p>(&self, path: &'p [u8]) -> MountedPath<'_, 'p> {
        let found = self.all.iter().find_map(|mount| {
            let rest = path.strip_prefix(&mount.prefix[..])?;
            let path = rest.strip_prefix(b"/").or(rest.is_empty().then_some(rest))?;
            Some(MountedPath { mount, path })
        });
        found.expect("every path begins with a slash, and the root's prefix is empty")
    }

    /// The site's path and the contents of the file that has `entry`'s name plus this ending.
    pub(crate) fn beside(
        &self,
        entry: &Entry,
        ending: &str,
    ) -> Option<(Vec<u8>, Result<Found, Refusal>)> {
        let MountedPath { mount, path } = self.place_of(entry)?;
        let path = [path, ending.as_bytes()].concat();
        let found = mount.files.borrow_mut().lookup(&path);
        Some(([&mount.prefix[..], b"/", &path].concat(), found))
    }

    /// The place at which a cache has found a file; `None`: it was opened without a cache.
    pub(crate) fn place_of<'e>(&self, entry: &'e Entry) -> Option<MountedPath<'_, 'e>> {
        let home = entry.home()?;
        Some(MountedPath { mount: self.all.get(home.cache)?, path: &home.path })
    }

    /// The folder of the site that contains an absolute path, and the rest of the path; `None`: no
    /// folder contains it.
    pub(crate) fn root_of<'p>(&self, path: &'p [u8]) -> Option<(Ref<'_, Root>, &'p [u8])> {
        self.all.iter().find_map(|mount| {
            let rest = path.strip_prefix(&mount.folder[..])?;
            let rest = rest.strip_prefix(b"/").or(rest.is_empty().then_some(rest))?;
            Some((Ref::map(mount.files.borrow(), FileCache::root), rest))
        })
    }

    /// The alias that contains a path: the length of its prefix, and its folder.
    pub(crate) fn alias(&self, path: &[u8]) -> Option<(usize, &[u8])> {
        let mut aliases = self.all.iter().filter(|mount| !mount.prefix.is_empty());
        let found = aliases.find(|mount| contains(&mount.prefix, path))?;
        Some((found.prefix.len(), &found.folder))
    }

    /// The length of the path of the site's outermost folder that contains this folder of the site,
    /// or is the same.
    pub(crate) fn outermost(&self, folder: &[u8]) -> usize {
        let folders = self.all.iter().map(|mount| &mount.folder);
        let above = folders.filter(|above| contains(above, folder));
        above.map(Vec::len).min().unwrap_or(folder.len()).min(folder.len())
    }

    /// Closes files that no request has used since the last call.
    pub(super) fn close_unused(&self) {
        self.all.iter().for_each(|mount| mount.files.borrow_mut().close_unused());
    }

    /// The media types that the operator has set.
    pub(crate) fn media_types(&self) -> &MediaTypes {
        &self.types
    }

    /// The place of a file with this absolute name; `None`: it is in none of the folders.
    pub(crate) fn place_of_file<'p>(&self, file: &'p [u8]) -> Option<MountedPath<'_, 'p>> {
        self.all.iter().find_map(|mount| {
            let path = file.strip_prefix(&mount.folder[..])?.strip_prefix(b"/")?;
            Some(MountedPath { mount, path })
        })
    }
}

impl MountedPath<'_, '_> {
    /// The path relative to the folder.
    pub(crate) fn path(&self) -> &[u8] {
        self.path
    }

    /// The current contents. A file is opened.
    pub(crate) fn lookup(&self) -> Result<Found, Refusal> {
        self.mount.files.borrow_mut().lookup(self.path)
    }

    /// The current kind of the contents; nothing is opened.
    pub(crate) fn kind(&self) -> Result<PathKind, Refusal> {
        self.mount.files.borrow_mut().kind(self.path)
    }

    /// The state of a file that this process may read, or a folder that it may search; nothing is
    /// opened.
    pub(crate) fn identity(&self) -> Result<Identity, Refusal> {
        self.mount.files.borrow().root().identity_of(self.path)
    }

    /// The names in the folder, at most this number.
    pub(crate) fn names(&self, most: usize) -> Result<Vec<Vec<u8>>, Refusal> {
        self.mount.files.borrow().root().names(self.path, most)
    }

    pub(crate) fn is_file(&self) -> bool {
        matches!(self.kind(), Ok(PathKind::File))
    }

    /// The path in the site's URIs.
    pub(crate) fn site_path(&self) -> Vec<u8> {
        [&self.mount.prefix[..], b"/", self.path].concat()
    }

    /// The absolute path in the file system.
    pub(crate) fn filename(&self) -> Vec<u8> {
        [&self.mount.folder[..], b"/", self.path].concat()
    }

    /// The first folder on the way from the site's folder to the place, or the file itself, that
    /// this user may write to.
    pub(crate) fn writable_above(&self, user: &WritingUser) -> Result<Option<PathBuf>, Refusal> {
        self.mount.files.borrow().root().writable_above(self.path, user)
    }
}
