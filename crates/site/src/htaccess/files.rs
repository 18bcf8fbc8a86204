//! The site's folders as rules see them. Everything that was looked at is watched from then on.

use std::cell::{Cell, Ref, RefCell};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Access, AtFlags, CWD, FileType, Statx, StatxFlags};
use rustix::io::Errno;
use rustix::time::ClockId;
use sendoff_htaccess as apache;
use sendoff_htaccess::{CacheLines, FileInfo, Files, Look};
use sendoff_site_files::router::Router;
use sendoff_static_files::{Root, read_regular};

use super::compiled;
use super::watcher::{Inode, Watch, Watcher};

const NAME: &[u8] = b".htaccess";

/// The largest file with groups, in bytes.
const MAX_GROUP_FILE: usize = 1 << 20;

/// The folders of a site, as looked at for one request.
#[derive(Debug)]
pub(super) struct SiteFiles<'a> {
    router: &'a Router,
    watcher: &'a Watcher,
    watches: RefCell<Vec<Watch>>,
    /// Something was looked at that is not watched.
    unwatched: Cell<bool>,
    cache_lines: CacheLines,
}

/// A place in the file system: an open folder, and a path relative to it.
struct PathInFolder<'a> {
    /// `None`: the path is absolute and is in none of the site's folders.
    root: Option<Ref<'a, Root>>,
    path: &'a [u8],
}

impl PathInFolder<'_> {
    fn folder(&self) -> BorrowedFd<'_> {
        self.root.as_ref().map_or(CWD, |root| root.directory().as_fd())
    }

    fn name(&self) -> &OsStr {
        OsStr::from_bytes(if self.path.is_empty() { b"." } else { self.path })
    }

    fn stat(&self, flags: AtFlags) -> Result<Statx, Errno> {
        rustix::fs::statx(self.folder(), self.name(), flags, StatxFlags::BASIC_STATS)
    }
}

fn kind(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

impl<'a> SiteFiles<'a> {
    pub(super) fn new(router: &'a Router, watcher: &'a Watcher) -> Self {
        let (watches, unwatched) = (RefCell::default(), Cell::new(false));
        Self { router, watcher, watches, unwatched, cache_lines: CacheLines::Skipped }
    }

    /// The files with this treatment of lines for LiteSpeed's page cache.
    pub(super) fn with_cache_lines(self, cache_lines: CacheLines) -> Self {
        Self { cache_lines, ..self }
    }

    /// All watches of the places that were looked at; `None` if some of them are not watched.
    pub(super) fn watches(self) -> Option<Vec<Watch>> {
        (!self.unwatched.get()).then(|| self.watches.into_inner())
    }

    /// True if a `.htaccess` file is in one of the existing folders that a path of the site leads
    /// through.
    pub(super) fn are_on_the_way(&self, path: &[u8]) -> bool {
        let (length, folder) = self.router.alias(path).unwrap_or((0, self.router.root_bytes()));
        let (outermost, inner) = folder.split_at(self.router.outermost(folder));
        let mut here = outermost.to_vec();
        let names = inner.split(|byte| *byte == b'/').chain(path[length..].split(|b| *b == b'/'));
        let mut names = names.filter(|name| !name.is_empty());
        loop {
            if self.has_rules(&[&here, &b"/"[..], NAME].concat()) {
                return true;
            }
            let Some(name) = names.next() else { return false };
            here.push(b'/');
            here.extend_from_slice(name);
            if self.look(&here).is_none_or(|found| found.kind != apache::Kind::Folder) {
                return false;
            }
        }
    }

    /// True if there is a file with rules.
    fn has_rules(&self, path: &[u8]) -> bool {
        self.find_rules(&self.place(path)).is_some()
    }

    /// The file with rules: its properties, if they can be read; `None` if there is no file.
    fn find_rules(&self, place: &PathInFolder<'_>) -> Option<Option<Statx>> {
        self.watch(place);
        match place.stat(AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT | Errno::NOTDIR) => None,
            found => Some(found.ok()),
        }
    }

    fn place<'p>(&'p self, path: &'p [u8]) -> PathInFolder<'p> {
        match self.router.root_of(path) {
            Some((root, path)) => PathInFolder { root: Some(root), path },
            None => PathInFolder { root: None, path },
        }
    }

    /// Watches the folders that lead to a place. Must be called before the place is looked at.
    fn watch(&self, place: &PathInFolder<'_>) {
        let watched = place.root.as_ref().is_some_and(|root| self.watch_beneath(root, place.path));
        if !watched {
            self.unwatched.set(true);
        }
    }

    fn watch_beneath(&self, root: &Root, path: &[u8]) -> bool {
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let mut end = 0;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let stat = |path: &[u8]| {
            let place = PathInFolder { root: None, path };
            rustix::fs::statx(root.directory(), place.name(), flags, StatxFlags::BASIC_STATS)
        };
        let Ok(mut here) = stat(b"") else { return false };
        loop {
            let folder = self.watcher.folder(root, &path[..end], Inode::of(&here));
            let Some(watch) = folder else { return false };
            self.note(watch);
            let start = if end == 0 { 0 } else { end + 1 };
            let Some(rest) = path.get(start..).filter(|rest| !rest.is_empty()) else { return true };
            let length = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            if matches!(&rest[..length], b"" | b"." | b"..") {
                return false;
            }
            end = start + length;
            let found = stat(&path[..end]);
            match found.map(|stat| (kind(&stat), stat)) {
                Ok((FileType::Symlink, _)) => return false,
                Ok((FileType::Directory, stat)) if end < path.len() => here = stat,
                // The watch of the folder above reports a change.
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return true,
                Err(_) => return false,
            }
        }
    }

    fn note(&self, watch: Watch) {
        let mut watches = self.watches.borrow_mut();
        if !watches.contains(&watch) {
            watches.push(watch);
        }
    }
}

impl Look for SiteFiles<'_> {
    fn look(&self, path: &[u8]) -> Option<FileInfo> {
        let place = self.place(path);
        self.watch(&place);
        let stat = place.stat(AtFlags::empty()).ok()?;
        let kind = match kind(&stat) {
            FileType::RegularFile => apache::Kind::File,
            FileType::Directory => apache::Kind::Folder,
            _ => apache::Kind::Other,
        };
        let may_execute = || {
            let flags = AtFlags::EACCESS;
            rustix::fs::accessat(place.folder(), place.name(), Access::EXEC_OK, flags).is_ok()
        };
        let executable = stat.stx_mode & 0o111 != 0 && may_execute();
        Some(FileInfo { kind, size: stat.stx_size, executable })
    }

    fn is_link(&self, path: &[u8]) -> bool {
        let place = self.place(path);
        self.watch(&place);
        place.stat(AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| kind(&stat) == FileType::Symlink)
    }

    fn is_foreign_link(&self, path: &[u8]) -> bool {
        let place = self.place(path);
        self.watch(&place);
        let link = place.stat(AtFlags::SYMLINK_NOFOLLOW);
        let Ok(link) = link else { return false };
        let leads_to = || place.stat(AtFlags::empty()).map(|target| target.stx_uid);
        kind(&link) == FileType::Symlink && leads_to() != Ok(link.stx_uid)
    }

    fn groups(&self, path: &[u8]) -> Option<Vec<u8>> {
        // The contents are not watched: users are known only in requests whose outcome is not kept.
        self.unwatched.set(true);
        let name = OsStr::from_bytes(path);
        let contents = read_regular(CWD, name, MAX_GROUP_FILE).inspect_err(|error| {
            tracing::warn!("AuthGroupFile {}: {error}: it names no members", name.display());
        });
        contents.ok()
    }

    fn processor_time(&self) -> Duration {
        let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
        time.try_into().unwrap_or_default()
    }
}

impl Files for SiteFiles<'_> {
    fn rules(&self, folder: &[u8]) -> Option<Arc<apache::File>> {
        let path = [folder, b"/", NAME].concat();
        let place = self.place(&path);
        let inode = self.find_rules(&place)?.as_ref().map(Inode::of);
        let watch = place.root.as_ref().zip(inode);
        let watch = watch.and_then(|(root, inode)| self.watcher.file(root, place.path, inode));
        match watch {
            Some(watch) => self.note(watch),
            None => self.unwatched.set(true),
        }
        let name = Path::new(OsStr::from_bytes(&path));
        compiled::rules(name, place.folder(), place.name(), self.cache_lines)
    }

    fn outermost(&self, folder: &[u8]) -> usize {
        self.router.outermost(folder)
    }

    fn alias(&self, path: &[u8]) -> Option<(usize, Vec<u8>)> {
        let (length, folder) = self.router.alias(path)?;
        Some((length, folder.to_vec()))
    }
}
