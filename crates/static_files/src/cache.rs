//! Open files of an event loop, and what is derived from them: ETag, media type, fields.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use sendoff_delivery::segment::{FileSegment, OpenFile, SMALL, Segment};
use sendoff_message::response::Field;
use sendoff_transport::descriptors;

use super::refusal::{Forbidden, Refusal};
use super::resolve::{Identity, Resolved, Root};
use super::types;

/// Data derived from a file's contents is kept only if the file's last change is at least this old.
/// Two changes within one tick of the kernel's clock (at most 10 ms) can leave the same time stamp,
/// so the second would go unnoticed.
pub const SETTLED: Duration = Duration::from_millis(20);

/// The limits of a cache.
#[derive(Debug, Clone, Copy)]
pub struct CacheLimits {
    /// Paths, each with at most one open descriptor.
    pub entries: usize,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { entries: 1024 }
    }
}

/// A file ready to be sent, with the data for its head. Its contents are read when they are sent
/// and not before: a store through a shared mapping changes them without changing a time stamp of
/// the file.
#[derive(Debug, Clone)]
pub struct Entry {
    file: Rc<OpenFile>,
    /// The place at which a cache has found it; `None`: it was opened without a cache.
    home: Option<Home>,
    /// The size in bytes.
    pub size: u64,
    /// The strong validator, with its quotes.
    pub etag: Bytes,
    /// The last modification in whole seconds since 1970, not in the future.
    pub modified: SystemTime,
    /// The media type: from the name, unless an application has set another one.
    pub content_type: Bytes,
    pub(crate) fields: Rc<FileFields>,
}

/// The fields of a response with the file, written once: a sixth of the instructions for a small
/// file went into writing them for each response.
#[derive(Debug, Clone)]
pub(crate) struct FileFields {
    pub(crate) last_modified: Field,
    pub(crate) etag: Field,
    pub(crate) content_type: Field,
    pub(crate) accept_ranges: Field,
}

/// The place of a file.
#[derive(Debug, Clone)]
pub struct Home {
    /// The number of the cache among the site's caches.
    pub cache: usize,
    /// The path relative to the root of the cache.
    pub path: Box<[u8]>,
}

impl Entry {
    /// The place at which a cache has found it; `None`: it was opened without a cache.
    pub fn home(&self) -> Option<&Home> {
        self.home.as_ref()
    }

    /// The same file with another media type.
    #[must_use]
    pub fn with_type(mut self, content_type: Bytes) -> Self {
        self.content_type = content_type.clone();
        let field = Field::shared("Content-Type", content_type);
        Rc::make_mut(&mut self.fields).content_type = field;
        self
    }

    /// The whole file.
    pub fn as_file(&self) -> FileSegment {
        FileSegment { file: Rc::clone(&self.file), offset: 0, len: self.size }
    }

    /// `len` bytes of the file from `offset` on; the range must lie inside it.
    #[must_use]
    pub fn segment(&self, offset: u64, len: u64) -> Segment {
        Segment::File(FileSegment { file: Rc::clone(&self.file), offset, len })
    }

    /// As [`segment`](Self::segment), for a part of a body that may consist of thousands of files.
    /// A short part is read at once, so that it occupies no descriptor while it waits for the
    /// client.
    pub fn part(&self, offset: u64, len: u64) -> Segment {
        let mut part = FileSegment { file: Rc::clone(&self.file), offset, len };
        let short = usize::try_from(len).ok().filter(|_| len <= SMALL);
        match short.map(|len| (len, part.read(len))) {
            Some((len, Ok(bytes))) if bytes.len() == len => Segment::Bytes(bytes),
            // If a read fails here, it is repeated, and the error is noticed, when the part is
            // sent.
            _ => self.segment(offset, len),
        }
    }

    /// Opens the file at `path` beneath `root` without a cache, so that the space of a removed file
    /// is freed once it has been sent.
    ///
    /// # Errors
    /// The file does not exist or must not be sent.
    pub fn open(root: &Root, path: &[u8]) -> Result<Self, Refusal> {
        match open(root, path, &MediaTypes::new())? {
            Opened::File(entry, _) => Ok(entry),
            Opened::Directory(_) => Err(Refusal::Forbidden(Forbidden::NoFile)),
        }
    }

    /// The entry of a file that another process has opened for reading; the name in `path`
    /// determines the media type.
    ///
    /// # Errors
    /// It is not a regular file.
    pub fn of_descriptor(file: OwnedFd, path: &[u8]) -> Result<Self, Refusal> {
        let identity = Identity::of_descriptor(&file)?;
        if !identity.is_regular_file() {
            return Err(Refusal::Forbidden(Forbidden::NoFile));
        }
        Ok(Self::new(path, &MediaTypes::new(), &identity, file))
    }

    /// True if `other` refers to the same file.
    #[must_use]
    pub fn is_same_file(&self, other: &OwnedFd) -> bool {
        let ours = self.file.descriptor().and_then(|file| Identity::of_descriptor(&*file).ok());
        let theirs = Identity::of_descriptor(other).ok();
        ours.zip(theirs).is_some_and(|(ours, theirs)| ours.is_same_file(&theirs))
    }

    fn new(path: &[u8], types: &MediaTypes, identity: &Identity, file: OwnedFd) -> Self {
        let (seconds, nanoseconds) = identity.modified();
        // RFC 9110 §8.8.2.1: not later than the response.
        let modified = SystemTime::UNIX_EPOCH
            .checked_add(Duration::from_secs(seconds))
            .map_or_else(SystemTime::now, |modified| modified.min(SystemTime::now()));
        let mut etag = String::with_capacity(48);
        // With nanoseconds, because two versions within one second may have the same size.
        let _ = write!(etag, "\"{seconds:x}.{nanoseconds:x}-{:x}\"", identity.size);
        let etag = Bytes::from(etag);
        let content_type = media_type(&String::from_utf8_lossy(path), types);
        let fields = Rc::new(FileFields {
            last_modified: Field::shared("Last-Modified", httpdate::fmt_http_date(modified)),
            etag: Field::shared("ETag", etag.clone()),
            content_type: Field::shared("Content-Type", content_type.clone()),
            accept_ranges: Field::shared("Accept-Ranges", "bytes"),
        });
        let (file, size) = (OpenFile::new(file), identity.size);
        Self { file, home: None, size, etag, modified, content_type, fields }
    }
}

fn media_type(name: &str, own: &MediaTypes) -> Bytes {
    let ending = name.rsplit('/').next().and_then(|last| last.rsplit_once('.')).map(|(_, end)| end);
    let ending = ending.unwrap_or_default().to_ascii_lowercase();
    let built_in = || types::of_ending(&ending).unwrap_or(types::UNKNOWN).as_bytes();
    own.get(&ending).cloned().unwrap_or_else(|| Bytes::from_static(built_in()))
}

/// The contents of a path.
#[derive(Debug, Clone)]
pub enum Found {
    /// A regular file, open.
    File(Rc<Entry>),
    /// A directory.
    Directory,
}

/// The kind of a path's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// A regular file; possibly not readable.
    File,
    /// A directory.
    Directory,
}

/// The common limits of an event loop's caches, and the number of entries that they keep together.
#[derive(Debug)]
pub struct CacheShare {
    limits: CacheLimits,
    entries: Cell<usize>,
}

impl CacheShare {
    /// Limits for caches that are still empty.
    #[must_use]
    pub fn new(limits: CacheLimits) -> Rc<Self> {
        Rc::new(Self { limits, entries: Cell::new(0) })
    }

    fn is_exceeded(&self) -> bool {
        self.entries.get() > self.limits.entries
    }

    fn add(&self, slots: usize) {
        self.entries.set(self.entries.get() + slots);
    }

    fn subtract(&self, slots: usize) {
        self.entries.set(self.entries.get() - slots);
    }
}

/// Media types by the ending of a name, in lower case and without its dot. They take precedence
/// over the built-in ones.
pub type MediaTypes = HashMap<String, Bytes>;

/// Keeps files of one root open, for one event loop. Each look-up costs one `statx`, which notices
/// every change; missing files are not remembered.
#[derive(Debug)]
pub struct FileCache {
    root: Root,
    /// Its number among the site's caches.
    number: usize,
    types: Rc<MediaTypes>,
    share: Rc<CacheShare>,
    slots: HashMap<Box<[u8]>, CacheSlot>,
    clock: u64,
    /// The clock at the last [`close_unused`](Self::close_unused).
    closed: u64,
}

#[derive(Debug)]
struct CacheSlot {
    identity: Identity,
    known: CachedKind,
    used: u64,
}

#[derive(Debug, Clone)]
enum CachedKind {
    Directory,
    /// May be served, but is not open.
    File,
    Open(Rc<Entry>),
}

impl FileCache {
    /// An empty cache.
    #[must_use]
    pub fn new(root: Root, types: Rc<MediaTypes>, share: Rc<CacheShare>) -> Self {
        Self { root, number: 0, types, share, slots: HashMap::new(), clock: 0, closed: 0 }
    }

    /// Sets its number among the site's caches.
    pub fn set_number(&mut self, number: usize) {
        self.number = number;
    }

    /// The number of paths that all caches with the same limits keep at present.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.share.entries.get()
    }

    /// The root folder.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// The current contents of `path` (relative to the root, decoded). A file is opened.
    ///
    /// # Errors
    /// There is no file or folder, or it must not be served.
    pub fn lookup(&mut self, path: &[u8]) -> Result<Found, Refusal> {
        match self.current(path) {
            Some(CachedKind::Directory) => return Ok(Found::Directory),
            Some(CachedKind::Open(entry)) => return Ok(Found::File(entry)),
            Some(CachedKind::File) | None => {}
        }
        Ok(match open(&self.root, path, &self.types)? {
            Opened::Directory(identity) => {
                self.keep(path, identity, CachedKind::Directory);
                Found::Directory
            }
            Opened::File(mut entry, identity) => {
                entry.home = Some(Home { cache: self.number, path: path.into() });
                let entry = Rc::new(entry);
                self.keep(path, identity, CachedKind::Open(Rc::clone(&entry)));
                Found::File(entry)
            }
        })
    }

    /// The current kind of `path`'s contents; nothing is opened.
    ///
    /// # Errors
    /// There is no file or folder, or it must not be served.
    pub fn kind(&mut self, path: &[u8]) -> Result<PathKind, Refusal> {
        if let Some(known) = self.current(path) {
            return Ok(match known {
                CachedKind::Directory => PathKind::Directory,
                CachedKind::File | CachedKind::Open(_) => PathKind::File,
            });
        }
        let (identity, known, kind) = match self.root.resolve(path)? {
            Resolved::Directory(identity) => (identity, CachedKind::Directory, PathKind::Directory),
            Resolved::File(_, identity) => (identity, CachedKind::File, PathKind::File),
        };
        self.keep(path, identity, known);
        Ok(kind)
    }

    /// The kind of `path` if the slot is up to date; an outdated slot is removed.
    fn current(&mut self, path: &[u8]) -> Option<CachedKind> {
        let slot = self.slots.get_mut(path)?;
        let known = slot.identity;
        let same =
            self.root.identify(path).is_ok_and(|now| now == known || now.is_same_directory(&known));
        if !same {
            self.forget(path);
            return None;
        }
        self.clock += 1;
        slot.used = self.clock;
        Some(slot.known.clone())
    }

    /// Drops the entries that were not used since the last call. Open files keep the space of
    /// deleted ones occupied, and their file system mounted.
    pub fn close_unused(&mut self) {
        let (before, last) = (self.slots.len(), std::mem::replace(&mut self.closed, self.clock));
        self.slots.retain(|_, slot| slot.used > last);
        self.share.subtract(before - self.slots.len());
    }

    fn forget(&mut self, path: &[u8]) {
        if self.slots.remove(path).is_some() {
            self.share.subtract(1);
        }
    }

    fn keep(&mut self, path: &[u8], identity: Identity, known: CachedKind) {
        self.forget(path);
        self.clock += 1;
        let slot = CacheSlot { identity, known, used: self.clock };
        self.share.add(1);
        self.slots.insert(path.into(), slot);
        self.evict();
    }

    /// Drops the least recently used eighth of the entries until the limits are kept. Dropping many
    /// at once makes the search cheap per entry. The cache that grows drops its own entries, even
    /// if other caches share the limits.
    fn evict(&mut self) {
        while self.share.is_exceeded() && !self.slots.is_empty() {
            let mut uses: Vec<u64> = self.slots.values().map(|slot| slot.used).collect();
            let last = uses.len() / 8;
            let (_, &mut oldest, _) = uses.select_nth_unstable(last);
            let before = self.slots.len();
            self.slots.retain(|_, slot| slot.used > oldest);
            self.share.subtract(before - self.slots.len());
        }
    }
}

impl Drop for FileCache {
    fn drop(&mut self) {
        self.share.subtract(self.slots.len());
    }
}

enum Opened {
    Directory(Identity),
    File(Entry, Identity),
}

fn open(root: &Root, path: &[u8], types: &MediaTypes) -> Result<Opened, Refusal> {
    Ok(match root.resolve(path)? {
        Resolved::Directory(identity) => Opened::Directory(identity),
        Resolved::File(unopened, identity) => {
            let file = unopened.open()?;
            descriptors::note(&file);
            Opened::File(Entry::new(path, types, &identity, file), identity)
        }
    })
}
