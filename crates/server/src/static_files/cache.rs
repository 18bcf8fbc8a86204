use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Write;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::refusal::{Forbidden, Refusal};
use super::resolve::{Identity, Resolved, Root};
use super::types;
use crate::segment::{FileSegment, OpenFile, Segment};

/// A file is kept only if its last change is at least this old: two changes within one tick of the kernel's clock (at most
/// 10 ms) can leave the same time stamp, so the second would go unnoticed.
pub const SETTLED: Duration = Duration::from_millis(20);

/// Up to this size, in bytes, contents are kept and sent from memory (`docs/measurements.md`, "Small files and pages in
/// memory").
pub(super) const IN_MEMORY_LIMIT: u64 = 32 * 1024;

/// How many times a small file is read if it changes meanwhile.
const READ_ATTEMPTS: u8 = 4;

/// The limits of a cache.
#[derive(Debug, Clone, Copy)]
pub struct CacheLimits {
    /// Paths, each with at most one open descriptor.
    pub entries: usize,
    /// Bytes of file contents.
    pub contents: usize,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { entries: 1024, contents: 16 << 20 }
    }
}

/// A file ready to be sent, in one state: a changed file becomes a new entry.
#[derive(Debug, Clone)]
pub struct Entry {
    file: Rc<OpenFile>,
    contents: Option<Bytes>,
    /// Where a cache has found it.
    home: Option<Home>,
    /// Bytes.
    pub size: u64,
    /// The strong validator, with its quotes.
    pub etag: Bytes,
    /// The last modification in whole seconds since 1970, not in the future.
    pub modified: SystemTime,
    /// The same as an HTTP date.
    pub last_modified: Bytes,
    /// The media type: from the name, unless an application has set another one.
    pub content_type: Bytes,
}

/// Where a file lies.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    /// The number of its cache among those of the site.
    pub(crate) cache: usize,
    /// Relative to the root of the cache.
    pub(crate) path: Box<[u8]>,
}

impl Entry {
    /// Where a cache has found it; `None`: it comes from no cache.
    pub(crate) fn home(&self) -> Option<&Home> {
        self.home.as_ref()
    }

    /// The same file under another media type.
    pub(crate) fn with_type(&self, content_type: &Bytes) -> Self {
        Self { content_type: content_type.clone(), ..self.clone() }
    }

    /// The whole file as a range of a file, even if its contents lie in memory.
    pub(crate) fn as_file(&self) -> FileSegment {
        FileSegment { file: Rc::clone(&self.file), offset: 0, len: self.size }
    }

    /// `len` bytes of the file from `offset` on; the range must lie inside it.
    #[must_use]
    pub fn segment(&self, offset: u64, len: u64) -> Segment {
        match &self.contents {
            Some(contents) => {
                // Contents in memory are far smaller than the address space.
                #[expect(clippy::cast_possible_truncation, reason = "at most IN_MEMORY_LIMIT")]
                let range = offset as usize..(offset + len) as usize;
                Segment::Bytes(contents.slice(range))
            }
            None => Segment::File(FileSegment { file: Rc::clone(&self.file), offset, len }),
        }
    }

    /// Opens the file at `path` beneath `root` without a cache, so that the space of a removed file is freed when it has been sent.
    ///
    /// # Errors
    /// There is no file that may be sent.
    pub fn open(root: &Root, path: &[u8]) -> Result<Self, Refusal> {
        match open(root, path, &MediaTypes::new())? {
            Opened::File(entry, _) => Ok(entry),
            Opened::Directory(_) => Err(Refusal::Forbidden(Forbidden::NoFile)),
        }
    }

    /// The entry of a file that another process has opened for reading; the name in `path` determines the media type.
    ///
    /// # Errors
    /// It is not a regular file, or changes faster than it can be read.
    pub fn of_descriptor(file: OwnedFd, path: &[u8]) -> Result<Self, Refusal> {
        for _ in 0..READ_ATTEMPTS {
            let identity = Identity::of_descriptor(&file)?;
            if !identity.is_regular_file() {
                return Err(Refusal::Forbidden(Forbidden::NoFile));
            }
            if let Ok(contents) = read(&file, &identity) {
                return Ok(Self::new(path, &MediaTypes::new(), &identity, file, contents));
            }
        }
        Err(Refusal::Failed(io::Error::other("the file changes while it is read")))
    }

    /// Whether `other` refers to the same file.
    #[must_use]
    pub fn is_same_file(&self, other: &OwnedFd) -> bool {
        let ours = self.file.descriptor().and_then(|file| Identity::of_descriptor(&*file).ok());
        let theirs = Identity::of_descriptor(other).ok();
        ours.zip(theirs).is_some_and(|(ours, theirs)| ours.is_same_file(&theirs))
    }

    fn new(
        path: &[u8],
        types: &MediaTypes,
        identity: &Identity,
        file: OwnedFd,
        contents: Option<Bytes>,
    ) -> Self {
        let (seconds, nanoseconds) = identity.modified();
        // RFC 9110 §8.8.2.1: not later than the response.
        let modified = SystemTime::UNIX_EPOCH
            .checked_add(Duration::from_secs(seconds))
            .map_or_else(SystemTime::now, |modified| modified.min(SystemTime::now()));
        let mut etag = String::with_capacity(48);
        // With nanoseconds, because two versions within a second may have the same size.
        let _ = write!(etag, "\"{seconds:x}.{nanoseconds:x}-{:x}\"", identity.size);
        let name = String::from_utf8_lossy(path);
        Self {
            file: OpenFile::new(file),
            contents,
            home: None,
            size: identity.size,
            etag: etag.into(),
            modified,
            last_modified: httpdate::fmt_http_date(modified).into(),
            content_type: media_type(&name, types),
        }
    }
}

fn media_type(name: &str, own: &MediaTypes) -> Bytes {
    let ending = name.rsplit('/').next().and_then(|last| last.rsplit_once('.')).map(|(_, end)| end);
    let ending = ending.unwrap_or_default().to_ascii_lowercase();
    let built_in = || types::of_ending(&ending).unwrap_or(types::UNKNOWN).as_bytes();
    own.get(&ending).cloned().unwrap_or_else(|| Bytes::from_static(built_in()))
}

/// What is at a path.
#[derive(Debug, Clone)]
pub enum Found {
    /// A regular file, open.
    File(Rc<Entry>),
    /// A directory.
    Directory,
}

/// What kind of thing is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file; perhaps it cannot be read.
    File,
    /// A directory.
    Directory,
}

/// What the caches of an event loop keep together, and their common limits.
#[derive(Debug)]
pub struct CacheShare {
    limits: CacheLimits,
    entries: Cell<usize>,
    contents: Cell<usize>,
}

impl CacheShare {
    /// Nothing is kept yet.
    #[must_use]
    pub fn new(limits: CacheLimits) -> Rc<Self> {
        Rc::new(Self { limits, entries: Cell::new(0), contents: Cell::new(0) })
    }

    fn is_exceeded(&self) -> bool {
        self.entries.get() > self.limits.entries || self.contents.get() > self.limits.contents
    }

    fn add(&self, slot: &Slot) {
        self.entries.set(self.entries.get() + 1);
        self.contents.set(self.contents.get() + slot.contents());
    }

    fn subtract(&self, slot: &Slot) {
        self.entries.set(self.entries.get() - 1);
        self.contents.set(self.contents.get() - slot.contents());
    }
}

/// Media types by the ending of a name, in lower case and without its dot. They precede the built-in ones.
pub type MediaTypes = HashMap<String, Bytes>;

/// Keeps files of one root open, for one event loop. Each lookup costs one `statx`, which notices every
/// change; missing files are not remembered.
#[derive(Debug)]
pub struct FileCache {
    root: Root,
    /// Its number among the caches of the site.
    number: usize,
    types: Rc<MediaTypes>,
    share: Rc<CacheShare>,
    slots: HashMap<Box<[u8]>, Slot>,
    clock: u64,
}

#[derive(Debug)]
struct Slot {
    identity: Identity,
    known: Known,
    used: u64,
}

#[derive(Debug)]
enum Known {
    Directory,
    /// May be served, but was not opened yet.
    File,
    Open(Rc<Entry>),
}

impl Slot {
    fn contents(&self) -> usize {
        match &self.known {
            Known::Open(entry) => entry.contents.as_ref().map_or(0, Bytes::len),
            _ => 0,
        }
    }
}

impl FileCache {
    /// An empty cache.
    #[must_use]
    pub fn new(root: Root, types: Rc<MediaTypes>, share: Rc<CacheShare>) -> Self {
        Self { root, number: 0, types, share, slots: HashMap::new(), clock: 0 }
    }

    /// Sets its number among the caches of the site.
    pub(crate) fn set_number(&mut self, number: usize) {
        self.number = number;
    }

    /// What all caches that share its limits keep at present: the number of paths, and bytes of contents.
    #[must_use]
    pub fn kept(&self) -> (usize, usize) {
        (self.share.entries.get(), self.share.contents.get())
    }

    /// The folder.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// What is at `path` (relative to the root, decoded) now, opened if it is a file.
    ///
    /// # Errors
    /// There is nothing that may be served.
    pub fn lookup(&mut self, path: &[u8]) -> Result<Found, Refusal> {
        if let Some(slot) = self.current(path) {
            match &slot.known {
                Known::Directory => return Ok(Found::Directory),
                Known::Open(entry) => return Ok(Found::File(Rc::clone(entry))),
                Known::File => {}
            }
        }
        Ok(match open(&self.root, path, &self.types)? {
            Opened::Directory(identity) => {
                self.keep(path, identity, Known::Directory);
                Found::Directory
            }
            Opened::File(mut entry, identity) => {
                entry.home = Some(Home { cache: self.number, path: path.into() });
                let entry = Rc::new(entry);
                self.keep(path, identity, Known::Open(Rc::clone(&entry)));
                Found::File(entry)
            }
        })
    }

    /// What kind of thing is at `path` now, without opening it.
    ///
    /// # Errors
    /// There is nothing that may be served.
    pub fn kind(&mut self, path: &[u8]) -> Result<Kind, Refusal> {
        if let Some(slot) = self.current(path) {
            return Ok(match slot.known {
                Known::Directory => Kind::Directory,
                Known::File | Known::Open(_) => Kind::File,
            });
        }
        let (identity, known, kind) = match self.root.resolve(path)? {
            Resolved::Directory(identity) => (identity, Known::Directory, Kind::Directory),
            Resolved::File(_, identity) => (identity, Known::File, Kind::File),
        };
        self.keep(path, identity, known);
        Ok(kind)
    }

    /// The slot for `path`, if it still describes the file there; removes it otherwise.
    fn current(&mut self, path: &[u8]) -> Option<&Slot> {
        let known = self.slots.get(path)?.identity;
        let same =
            self.root.identify(path).is_ok_and(|now| now == known || now.is_same_directory(&known));
        if !same {
            self.forget(path);
            return None;
        }
        self.clock += 1;
        let slot = self.slots.get_mut(path)?;
        slot.used = self.clock;
        Some(slot)
    }

    fn forget(&mut self, path: &[u8]) {
        if let Some(slot) = self.slots.remove(path) {
            self.share.subtract(&slot);
        }
    }

    fn keep(&mut self, path: &[u8], identity: Identity, known: Known) {
        self.forget(path);
        if matches!(known, Known::Open(_)) && !identity.is_older_than(SETTLED, SystemTime::now()) {
            return;
        }
        self.clock += 1;
        let slot = Slot { identity, known, used: self.clock };
        self.share.add(&slot);
        self.slots.insert(path.into(), slot);
        self.evict();
    }

    /// Drops the least recently used eighth, until the limits are kept. A larger part at once makes the search cheap per entry.
    /// A cache gives up what it has itself: the one that grows makes room.
    fn evict(&mut self) {
        while self.share.is_exceeded() && !self.slots.is_empty() {
            let mut uses: Vec<u64> = self.slots.values().map(|slot| slot.used).collect();
            let last = uses.len() / 8;
            let (_, &mut oldest, _) = uses.select_nth_unstable(last);
            self.slots.retain(|_, slot| {
                let stays = slot.used > oldest;
                if !stays {
                    self.share.subtract(slot);
                }
                stays
            });
        }
    }
}

impl Drop for FileCache {
    fn drop(&mut self) {
        self.slots.values().for_each(|slot| self.share.subtract(slot));
    }
}

enum Opened {
    Directory(Identity),
    File(Entry, Identity),
}

fn open(root: &Root, path: &[u8], types: &MediaTypes) -> Result<Opened, Refusal> {
    for _ in 0..READ_ATTEMPTS {
        let (file, identity) = match root.resolve(path)? {
            Resolved::Directory(identity) => return Ok(Opened::Directory(identity)),
            Resolved::File(unopened, identity) => (unopened.open()?, identity),
        };
        if let Ok(contents) = read(&file, &identity) {
            let entry = Entry::new(path, types, &identity, file, contents);
            return Ok(Opened::File(entry, identity));
        }
    }
    Err(Refusal::Failed(io::Error::other("the file changes while it is read")))
}

/// The file has changed since it was found.
struct Changed;

/// The complete contents of a small file, in the state that `identity` describes; `None` for larger files.
fn read(file: &OwnedFd, identity: &Identity) -> Result<Option<Bytes>, Changed> {
    let Some(size) =
        usize::try_from(identity.size).ok().filter(|_| identity.size <= IN_MEMORY_LIMIT)
    else {
        return Ok(None);
    };
    // One more than expected, to notice a file that grew.
    let mut contents = vec![0; size + 1];
    let mut filled = 0;
    while filled < contents.len() {
        match rustix::io::pread(file, &mut contents[filled..], filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Err(Changed),
        }
    }
    contents.truncate(filled);
    if filled == size && Identity::of_descriptor(file).is_ok_and(|now| now == *identity) {
        Ok(Some(contents.into()))
    } else {
        Err(Changed)
    }
}
