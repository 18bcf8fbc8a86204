//! Cache of compressed files: each file is compressed once with much effort, and its compressed
//! form is then sent as a file.
//!
//! ```text
//!            second request        compressed
//!  asked once ──────────▶ making ────────────▶ kept, or known to gain nothing
//!      ▲                     │
//!      └─────────────────────┘ the file has changed, or could not be read
//! ```
//!
//! Device, inode, size and times identify a file, so a changed file counts as another file. Blobs
//! are files, too. A store through a shared mapping need not change the times, so before the
//! compressed form is sent, the file is read and its digest compared ([`ContentsCheck`]): this
//! takes a hundredth of the time of compressing the file. Files that are guarded by a lease are not
//! cached.

use std::collections::hash_map::{DefaultHasher, RandomState};
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use lru::LruCache;
use rustix::fs::{SealFlags, fcntl_get_seals};
use sendoff_config::Coding;
use sendoff_delivery::segment::{FileSegment, FileState, OpenFile, Segment};
use sendoff_sys::memfd;
use sendoff_transport::descriptors;
use sendoff_transport::descriptors::Level;

use super::encoder::{Effort, compress};

/// The most bytes of all compressed files.
const LIMIT: usize = 64 << 20;

/// The most files in the table, with or without a compressed form: about 200 bytes each.
const MOST_FILES: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// Files above this size, in bytes, are compressed while they are sent: with much effort, a file of
/// this size takes a third of a second.
pub(super) const LARGEST: u64 = 4 << 20;

/// Up to this size, in bytes, the compressed form lies in ordinary memory: sending it costs no more
/// than `sendfile` (`delivery/snapshots.rs`).
const IN_MEMORY_LIMIT: usize = 64 * 1024;

/// Two changes within one tick of the kernel's clock can leave the same time stamp, so a file is
/// kept only if its last change is at least this old.
const SETTLED: Duration = Duration::from_millis(20);

/// The compressed form of a file.
#[derive(Debug, Clone)]
pub(super) enum CompressedFile {
    Memory(Bytes),
    /// A sealed file in memory.
    File(Arc<OwnedFd>, u64),
}

impl CompressedFile {
    fn of(contents: Vec<u8>) -> io::Result<Self> {
        let is_small = contents.len() <= IN_MEMORY_LIMIT;
        if is_small || descriptors::level() > Level::Plenty {
            return Ok(Self::Memory(contents.into()));
        }
        let len = contents.len() as u64;
        let sealed = memfd::sealed(c"sendoff-compressed", len, |file| {
            File::from(file.try_clone_to_owned()?).write_all(&contents)
        })?;
        descriptors::note(&sealed);
        Ok(Self::File(Arc::new(sealed), len))
    }

    pub(super) fn segment(&self) -> Segment {
        match self {
            Self::Memory(bytes) => Segment::Bytes(bytes.clone()),
            Self::File(file, len) => {
                let file = OpenFile::shared(Arc::clone(file));
                Segment::File(FileSegment { file, offset: 0, len: *len })
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::File(_, len) => usize::try_from(*len).unwrap_or(usize::MAX),
        }
    }
}

#[derive(Debug)]
enum CacheEntry {
    AskedOnce,
    Making,
    Kept(CompressedFile, Digest),
    /// The compressed form would not be shorter.
    Useless,
}

impl CacheEntry {
    fn len(&self) -> usize {
        if let Self::Kept(kept, _) = self { kept.len() } else { 0 }
    }
}

/// The state of a file's compressed form.
pub(super) enum Lookup {
    /// The compressed form is sent if the check passes.
    Kept(ContentsCheck),
    /// The file is sent as it is.
    Useless,
    /// The caller compresses the file, and calls [`Reservation::make`].
    Make(Reservation),
    /// The file is compressed while it is sent.
    Nothing,
}

type Key = (FileState, Coding);

/// A digest of a file's contents, which other processes cannot predict; `None` for a sealed file,
/// whose contents never change.
type Digest = Option<u64>;

/// Bytes that are read and digested before other connections get their turn: 0.1 ms.
const CHECKED_AT_ONCE: usize = 256 * 1024;

/// A comparison of a file's contents with those that were compressed.
#[derive(Debug)]
pub(super) struct ContentsCheck {
    cache: Arc<Cache>,
    key: Key,
    kept: CompressedFile,
    wanted: Digest,
    hasher: DefaultHasher,
    at: u64,
    buffer: Vec<u8>,
}

/// The progress of a check.
pub(super) enum Checked {
    /// The next call continues.
    Partly,
    /// The file has the contents that were compressed.
    Same(CompressedFile),
    /// The file has other contents, or cannot be read. Its compressed form is forgotten.
    Changed,
}

impl ContentsCheck {
    /// Compares a part of the file.
    pub(super) fn go_on(&mut self, file: &OwnedFd) -> Checked {
        let Some(wanted) = self.wanted else { return Checked::Same(self.kept.clone()) };
        let end = self.key.0.size();
        let mut turn = CHECKED_AT_ONCE;
        while self.at < end && turn > 0 {
            let want = usize::try_from(end - self.at).map_or(turn, |rest| rest.min(turn));
            self.buffer.resize(want.max(self.buffer.len()), 0);
            match rustix::io::pread(file, &mut self.buffer[..want], self.at) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(0) | Err(_) => return self.changed(),
                Ok(read) => {
                    self.hasher.write(&self.buffer[..read]);
                    self.at += read as u64;
                    turn -= read;
                }
            }
        }
        if self.at < end {
            Checked::Partly
        } else if self.hasher.finish() == wanted {
            Checked::Same(self.kept.clone())
        } else {
            self.changed()
        }
    }

    fn changed(&self) -> Checked {
        let mut inner = self.cache.lock();
        if let Some(CacheEntry::Kept(_, digest)) = inner.entries.peek(&self.key)
            && *digest == self.wanted
        {
            inner.put(self.key, CacheEntry::AskedOnce);
        }
        Checked::Changed
    }
}

/// The compressed files of a front. The lock is taken when a response begins and after a file has
/// been compressed.
#[derive(Debug)]
pub(super) struct Cache {
    inner: Mutex<CompressedFiles>,
    /// The random keys of the digests.
    digests: RandomState,
}

#[derive(Debug)]
struct CompressedFiles {
    entries: LruCache<Key, CacheEntry>,
    bytes: usize,
}

impl Default for Cache {
    fn default() -> Self {
        let inner = CompressedFiles { entries: LruCache::new(MOST_FILES), bytes: 0 };
        Self { inner: Mutex::new(inner), digests: RandomState::new() }
    }
}

impl Cache {
    pub(super) fn look(self: &Arc<Self>, file: FileState, coding: Coding) -> Lookup {
        let key = (file, coding);
        let mut inner = self.lock();
        match inner.entries.get_mut(&key) {
            Some(CacheEntry::Kept(kept, wanted)) => Lookup::Kept(ContentsCheck {
                cache: Arc::clone(self),
                key,
                kept: kept.clone(),
                wanted: *wanted,
                hasher: self.digests.build_hasher(),
                at: 0,
                buffer: Vec::new(),
            }),
            Some(CacheEntry::Useless) => Lookup::Useless,
            Some(CacheEntry::Making) => Lookup::Nothing,
            Some(entry @ CacheEntry::AskedOnce) => {
                if file.size() > LARGEST || !file.is_older_than(SETTLED) {
                    return Lookup::Nothing;
                }
                *entry = CacheEntry::Making;
                Lookup::Make(Reservation { cache: Arc::clone(self), key })
            }
            None => {
                inner.put(key, CacheEntry::AskedOnce);
                Lookup::Nothing
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, CompressedFiles> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CompressedFiles {
    fn put(&mut self, key: Key, entry: CacheEntry) {
        self.bytes += entry.len();
        // `push` returns the previous entry with this key, or the entry that was evicted.
        if let Some((_, gone)) = self.entries.push(key, entry) {
            self.bytes -= gone.len();
        }
        while self.bytes > LIMIT
            && let Some((_, gone)) = self.entries.pop_lru()
        {
            self.bytes -= gone.len();
        }
    }
}

/// The right to put the compressed form of a file into the cache.
#[derive(Debug)]
pub(super) struct Reservation {
    cache: Arc<Cache>,
    key: Key,
}

impl Reservation {
    /// Compresses the file. To be called on a thread that may block.
    pub(super) fn make(self, file: &OwnedFd) {
        let (state, coding) = self.key;
        match made(file, state, coding, self.cache.digests.build_hasher()) {
            Ok(Some((kept, digest))) => self.put(CacheEntry::Kept(kept, digest)),
            Ok(None) => self.put(CacheEntry::Useless),
            // The file has changed, or memory is full: later requests try again.
            Err(error) => tracing::debug!(%error, "a file was not compressed"),
        }
    }

    fn put(&self, entry: CacheEntry) {
        self.cache.lock().put(self.key, entry);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut inner = self.cache.lock();
        if let Some(entry @ CacheEntry::Making) = inner.entries.peek_mut(&self.key) {
            *entry = CacheEntry::AskedOnce;
        }
    }
}

/// The compressed form of a file in this state, and the digest of its contents; `None` if it would
/// not be shorter.
fn made(
    file: &OwnedFd,
    state: FileState,
    coding: Coding,
    mut hasher: DefaultHasher,
) -> io::Result<Option<(CompressedFile, Digest)>> {
    let contents = sendoff_delivery::copying::into_memory(file, state.size())?;
    if FileState::new(&rustix::fs::fstat(file.as_fd())?) != state {
        return Err(io::Error::other("it changed meanwhile"));
    }
    let compressed = compress(coding, Effort::Once, &contents)?;
    if compressed.len() >= contents.len() {
        return Ok(None);
    }
    let is_sealed = fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::WRITE));
    hasher.write(&contents);
    let digest = (!is_sealed).then(|| hasher.finish());
    Ok(Some((CompressedFile::of(compressed)?, digest)))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Instant;

    use super::*;

    fn file(folder: &tempfile::TempDir, name: &str, contents: &[u8]) -> (OwnedFd, FileState) {
        let path = folder.path().join(name);
        std::fs::write(&path, contents).unwrap();
        let file = OwnedFd::from(File::open(path).unwrap());
        let state = FileState::new(&rustix::fs::fstat(&file).unwrap());
        let began = Instant::now();
        while !state.is_older_than(SETTLED) {
            assert!(began.elapsed() < Duration::from_secs(5));
            std::thread::yield_now();
        }
        (file, state)
    }

    fn make(cache: &Arc<Cache>, state: FileState, coding: Coding, file: &OwnedFd) {
        assert!(matches!(cache.look(state, coding), Lookup::Nothing), "asked once");
        let Lookup::Make(reservation) = cache.look(state, coding) else { panic!("not to be made") };
        assert!(matches!(cache.look(state, coding), Lookup::Nothing), "being made");
        reservation.make(file);
    }

    #[test]
    fn a_file_is_compressed_at_its_second_request() {
        let (cache, folder) = (Arc::<Cache>::default(), tempfile::tempdir().unwrap());
        let (text, state) = file(&folder, "a", &b"all the same ".repeat(1000));
        make(&cache, state, Coding::Gzip, &text);
        let Lookup::Kept(mut check) = cache.look(state, Coding::Gzip) else { panic!("not kept") };
        let Checked::Same(kept) = check.go_on(&text) else { panic!("other contents") };
        assert!(kept.len() < 1000 && cache.lock().bytes == kept.len());
        assert!(matches!(cache.look(state, Coding::Zstd), Lookup::Nothing));
        let mut noise = vec![0; 100_000];
        File::open("/dev/urandom").unwrap().read_exact(&mut noise).unwrap();
        let (noise, state) = file(&folder, "b", &noise);
        make(&cache, state, Coding::Zstd, &noise);
        assert!(matches!(cache.look(state, Coding::Zstd), Lookup::Useless));
    }

    #[test]
    fn a_file_that_changes_meanwhile_is_not_kept() {
        let (cache, folder) = (Arc::<Cache>::default(), tempfile::tempdir().unwrap());
        let (text, state) = file(&folder, "a", &b"before ".repeat(1000));
        std::fs::write(folder.path().join("a"), b"after, ".repeat(1000)).unwrap();
        make(&cache, state, Coding::Gzip, &text);
        let again = cache.look(state, Coding::Gzip);
        assert!(matches!(again, Lookup::Make(_)), "the old state is not known");
    }

    #[test]
    fn the_least_recently_used_go_first() {
        let (cache, folder) = (Arc::<Cache>::default(), tempfile::tempdir().unwrap());
        let states: Vec<FileState> =
            (0..5).map(|n| file(&folder, &n.to_string(), b"x").1).collect();
        let third = || CacheEntry::Kept(CompressedFile::Memory(vec![0; LIMIT / 3].into()), None);
        for state in &states[..3] {
            cache.lock().put((*state, Coding::Gzip), third());
        }
        assert!(matches!(cache.look(states[0], Coding::Gzip), Lookup::Kept(_)));
        cache.lock().put((states[3], Coding::Gzip), third());
        let kept = |n: usize| matches!(cache.look(states[n], Coding::Gzip), Lookup::Kept(_));
        assert_eq!([0, 1, 2, 3].map(kept), [true, false, true, true]);
        assert!(cache.lock().bytes <= LIMIT);
    }
}
