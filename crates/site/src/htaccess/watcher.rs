//! Notices changes of folders and of `.htaccess` files, so that the files need not be evaluated for
//! each request.
//!
//! The kernel queues an event (inotify(7)) during the system call that makes a change. If the
//! server checks after the arrival of a request whether events wait, which takes one system call,
//! it learns of every change that was finished before the request was sent. So a new rule applies
//! at once, as with Apache, which looks at each file.
//!
//! Places without events are not watched, and outcomes that depend on them are not kept: file
//! systems other than those in [`TELLS_CHANGES`], unreadable folders, symbolic links. Three changes
//! never have events: writes through a mapping, mounting another file system over a folder, and
//! renaming a folder above the root. An outcome is therefore evaluated again after
//! [`super::outcomes::MAX_AGE`].

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::Statx;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use sendoff_static_files::{Identity, Root};

/// Most folders and files that an event loop watches; each costs the kernel about 1 KB. Beyond that
/// all watches are dropped and watching begins anew.
const MAX_WATCHED: usize = 4096;

/// Most events that are read at once: more than the kernel queues.
const MAX_EVENTS: usize = 20_000;

/// File systems all of whose changes have events: ext, xfs, btrfs, tmpfs, overlayfs, f2fs, zfs,
/// bcachefs. A network file system may be changed by another machine.
const TELLS_CHANGES: [i64; 8] = [
    0xEF53,
    0x5846_5342,
    0x9123_683E,
    0x0102_1994,
    0x794C_7630,
    0xF2F5_2010,
    0x2FC1_2FC1,
    0xCA45_1A4E,
];

/// Events of a folder: changes of its entries and of its permissions.
const OF_FOLDER: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::DONT_FOLLOW);

/// Events of a file: changes of its contents and its permissions.
const OF_FILE: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::DONT_FOLLOW);

/// After these events, paths may lead elsewhere, or events are missing.
const FORGETTING: ReadFlags = ReadFlags::QUEUE_OVERFLOW
    .union(ReadFlags::UNMOUNT)
    .union(ReadFlags::IGNORED)
    .union(ReadFlags::DELETE_SELF)
    .union(ReadFlags::MOVE_SELF);

/// The watches of one event loop.
#[derive(Debug)]
pub(super) struct Watcher(Option<RefCell<Watched>>);

/// The number of a watched folder or file.
pub(super) type Watch = i32;

/// The folder or file at a path. If the name now leads to another one, the old one has no event of
/// that while it lives on: a file under another name, a folder as a process's working directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Inode {
    device: (u32, u32),
    number: u64,
}

impl Inode {
    pub(super) fn of(stat: &Statx) -> Self {
        Self { device: (stat.stx_dev_major, stat.stx_dev_minor), number: stat.stx_ino }
    }
}

/// A root, and a path beneath it.
type Key = (Identity, Box<[u8]>);

#[derive(Debug)]
struct Watched {
    inotify: OwnedFd,
    /// Watches, each with the folder or file that was at the path.
    paths: HashMap<Key, (Inode, Watch)>,
    /// Last change of each watch, as a value of `changes`.
    changed: HashMap<Watch, u64>,
    changes: u64,
    /// Last time that paths were forgotten, as a value of `changes`.
    forgotten: u64,
}

impl Watcher {
    /// A watcher without watches. If the kernel gives no inotify descriptor, it stays without.
    pub(super) fn new() -> Self {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC);
        Self(inotify.ok().map(|inotify| {
            let (paths, changed) = (HashMap::new(), HashMap::new());
            RefCell::new(Watched { inotify, paths, changed, changes: 0, forgotten: 0 })
        }))
    }

    /// Reads all events up to now. Returns the count of changes, which grows with each; `None` if
    /// changes cannot be noticed.
    pub(super) fn now(&self) -> Option<u64> {
        let watched = &mut *self.0.as_ref()?.borrow_mut();
        match rustix::io::ioctl_fionread(&watched.inotify) {
            Ok(0) => {}
            Ok(_) | Err(_) => watched.read_events(),
        }
        Some(watched.changes)
    }

    /// True if none of these has changed since `count`, a result of [`now`](Self::now).
    pub(super) fn are_unchanged(&self, watches: &[Watch], count: u64) -> bool {
        let Some(watched) = &self.0 else { return false };
        let watched = watched.borrow();
        let is_unchanged = |watch| watched.changed.get(watch).is_some_and(|at| *at <= count);
        watched.forgotten <= count && watches.iter().all(is_unchanged)
    }

    /// Watches a folder beneath a root, which has just been found there. `None` if that is not
    /// possible, or if the path leads to a link or not to a folder.
    pub(super) fn folder(&self, root: &Root, path: &[u8], inode: Inode) -> Option<Watch> {
        self.0.as_ref()?.borrow_mut().watch(root, path, inode, OF_FOLDER)
    }

    /// Watches a file beneath a root, which has just been found there.
    pub(super) fn file(&self, root: &Root, path: &[u8], inode: Inode) -> Option<Watch> {
        self.0.as_ref()?.borrow_mut().watch(root, path, inode, OF_FILE)
    }
}

impl Watched {
    /// Watches a folder or file. If its name later leads to another one, the folder above has an
    /// event.
    fn watch(
        &mut self,
        root: &Root,
        path: &[u8],
        inode: Inode,
        events: WatchFlags,
    ) -> Option<Watch> {
        let key = (root.identity(), path.into());
        if let Some((known, watch)) = self.paths.get(&key)
            && *known == inode
        {
            return Some(*watch);
        }
        if self.paths.len().max(self.changed.len()) >= MAX_WATCHED {
            self.begin_anew();
        }
        let mut name = String::new();
        let _ = write!(name, "/proc/self/fd/{}/", root.directory().as_raw_fd());
        let name = [name.as_bytes(), if path.is_empty() { b"." } else { path }].concat();
        let system = rustix::fs::statfs(&name[..]).ok()?;
        if !TELLS_CHANGES.contains(&system.f_type) {
            return None;
        }
        let watch = inotify::add_watch(&self.inotify, &name[..], events).ok()?;
        self.paths.insert(key, (inode, watch));
        self.changed.entry(watch).or_insert(self.changes);
        Some(watch)
    }

    #[cold]
    fn read_events(&mut self) {
        let events = self.pending();
        for (watch, what) in &events {
            // The kernel confirms a removed watch.
            if !self.changed.contains_key(watch) && !what.contains(ReadFlags::QUEUE_OVERFLOW) {
                continue;
            }
            self.changes += 1;
            if what.intersects(FORGETTING) {
                self.forget();
            }
            if what.contains(ReadFlags::IGNORED) {
                self.changed.remove(watch);
            } else {
                self.changed.entry(*watch).and_modify(|at| *at = self.changes);
            }
        }
        if events.len() >= MAX_EVENTS {
            // The remaining events add nothing: everything is looked at again.
            self.forget();
        }
    }

    fn pending(&self) -> Vec<(Watch, ReadFlags)> {
        let (mut buffer, mut pending) = ([MaybeUninit::uninit(); 4096], Vec::new());
        let mut events = Reader::new(&self.inotify, &mut buffer);
        while pending.len() < MAX_EVENTS || !events.is_buffer_empty() {
            match events.next() {
                Ok(event) => pending.push((event.wd(), event.events())),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        pending
    }

    /// Forgets all paths, because they may lead elsewhere.
    fn forget(&mut self) {
        self.changes += 1;
        self.forgotten = self.changes;
        self.paths.clear();
    }

    fn begin_anew(&mut self) {
        for (watch, _) in self.changed.drain() {
            let _ = inotify::remove_watch(&self.inotify, watch);
        }
        self.forget();
    }
}
