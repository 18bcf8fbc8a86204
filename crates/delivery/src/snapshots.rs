//! Copies of handed-over files, shared by all event loops of the front.
//!
//! A worker hands a file over under a read lease (`docs/handover.md` §3). A copy cannot change, and
//! one copy serves all links on which the file is handed over.
//!
//! # When a file may be sent from an existing copy
//! Time stamps are no proof: a store through a shared mapping of a file on tmpfs changes none. So a
//! copy has *witnesses*: the descriptor that it was read from, and descriptors that joined it
//! later. A newly opened file may join if
//!
//! 1. `fstat` returns the same for both: device, inode, size, modification and change time;
//! 2. the lease of a witness is intact. A lease that has ended cannot come back, so no process has
//!    written since the copy was made: the file has the contents of the copy now;
//! 3. the lease of the new descriptor is intact: the file has the contents that its worker handed
//!    over.
//!
//! A copy is stored only if the lease was intact after the reading. (A sealed file counts as a file
//! with an intact lease.)
//!
//! # Lifetime
//! A file that has joined keeps the copy and may close its own descriptor: a `SEGMENT` means the
//! bytes that the file had under its lease, and the copy has these bytes even after the lease has
//! ended. [`WITNESSES`] descriptors stay open. The files that brought them own them, and the table
//! has weak references, because an open descriptor of a dead worker would block writers. So memory
//! is freed when the table has dropped a copy *and* no file uses it. The table drops the least
//! recently used copy first and skips copies in use; workers release files that they have not used
//! for a minute. If the limits leave no room for a copy, the file is read for each response.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use lru::LruCache;
use rustix::fs::Stat;
use sendoff_sys::lease::{self, Lease};
use sendoff_sys::memfd;
use sendoff_transport::descriptors;
pub use sendoff_transport::descriptors::Level;

/// The largest copy, in bytes, that lies in ordinary memory and is made at the first request.
/// Sending it costs no more CPU than `sendfile` (per response: 10 KB 8 % less, 32 KB 10 % less, 60
/// KB equal).
const IN_MEMORY_LIMIT: u64 = 64 * 1024;

/// [`IN_MEMORY_LIMIT`] while few descriptors are left.
const IN_MEMORY_LIMIT_IF_SHORT: u64 = 256 * 1024;

/// The current size limit, in bytes, of copies in ordinary memory.
pub fn in_memory_limit() -> u64 {
    let is_short = descriptors::level() > Level::Plenty;
    if is_short { IN_MEMORY_LIMIT_IF_SHORT } else { IN_MEMORY_LIMIT }
}

/// The largest file, in bytes, that is copied; larger ones are read for each response. Copying a
/// file of this size takes about 5 ms.
pub(crate) const LARGEST: u64 = 8 << 20;

/// Descriptors of a file that stay open as proof that its copy is current. With only one, the copy
/// would have to be made again as soon as one worker releases the file.
const WITNESSES: usize = 3;

/// Entries of the table, with a copy or requested once; some 200 bytes each.
const MOST_FILES: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// Bound on the least recently used entries that are examined to make room for a copy.
const LOOKS_FOR_ROOM: usize = 32;

/// Limits for all copies together.
#[derive(Debug, Clone, Copy)]
pub struct SnapshotLimits {
    /// Bytes of contents.
    pub bytes: u64,
    /// Descriptors of copies that are too large for ordinary memory.
    pub descriptors: usize,
}

impl Default for SnapshotLimits {
    fn default() -> Self {
        Self { bytes: 64 << 20, descriptors: 512 }
    }
}

/// Current use, for a status page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotUsage {
    /// Bytes of contents.
    pub bytes: u64,
    /// Descriptors of copies.
    pub descriptors: usize,
    /// Responses that were cut because their file changed, since the front started.
    pub cuts: u64,
    /// Files that workers called back because another process was about to write to them, since the
    /// front started.
    pub recalls: u64,
}

/// One version of one file, as reported by `fstat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl Identity {
    /// The identity of a file in this state.
    pub fn new(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// True if the last change of the file is at least `age` ago.
    pub fn is_older_than(&self, age: Duration) -> bool {
        let (Ok(seconds), Ok(nanoseconds)) =
            (u64::try_from(self.changed.0), u32::try_from(self.changed.1))
        else {
            return true;
        };
        let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        SystemTime::now().duration_since(changed).is_ok_and(|since| since >= age)
    }
}

/// The contents that a file had under its lease. No process can change them.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) contents: Contents,
    charge: Charge,
}

/// The place of a copy's contents.
#[derive(Debug)]
pub enum Contents {
    /// Bytes in memory.
    Memory(Bytes),
    /// A file without a name: a sealed memory file or, if only one file uses the copy, a file on
    /// disk.
    File(Arc<OwnedFd>),
}

/// The copies and their counters. The lock is taken when a file is opened, looked up or dropped,
/// never while sending.
#[derive(Debug)]
pub struct Snapshots {
    limits: SnapshotLimits,
    taken: Arc<Taken>,
    entries: Mutex<LruCache<Identity, Entry>>,
    cuts: AtomicU64,
    recalls: AtomicU64,
}

/// ```text
///              second request       copied, the lease stands
///  AskedOnce ────────────────▶ Making ───────▶ Ready ───▶ dropped: room needed, or no witness left
///      ▲                          │
///      └──────────────────────────┘ not copied
/// ```
#[derive(Debug)]
enum Entry {
    AskedOnce,
    Making,
    Ready { snapshot: Arc<Snapshot>, witnesses: Vec<Weak<OwnedFd>> },
}

#[derive(Debug, Default)]
struct Taken {
    bytes: AtomicU64,
    descriptors: AtomicUsize,
}

/// A share of the limits; returned when dropped.
#[derive(Debug)]
struct Charge {
    taken: Arc<Taken>,
    bytes: u64,
    descriptors: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.taken.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.taken.descriptors.fetch_sub(self.descriptors, Ordering::Relaxed);
    }
}

/// The advised way of sending a file.
#[derive(Debug)]
pub enum Advice {
    /// From this copy. Without `is_witness` the caller may close its descriptor.
    Join {
        /// The copy.
        snapshot: Arc<Snapshot>,
        /// The caller's descriptor must stay open as proof that the file has not changed.
        is_witness: bool,
    },
    /// From a copy that the caller is to make.
    Copy(Reservation),
    /// From the file itself.
    Read,
}

impl Snapshots {
    /// An empty table.
    #[must_use]
    pub fn new(limits: SnapshotLimits) -> Arc<Self> {
        let entries = Mutex::new(LruCache::new(MOST_FILES));
        Arc::new(Self {
            limits,
            taken: Arc::default(),
            entries,
            cuts: AtomicU64::new(0),
            recalls: AtomicU64::new(0),
        })
    }

    /// The current use by copies, and the number of responses cut.
    #[must_use]
    pub fn usage(&self) -> SnapshotUsage {
        SnapshotUsage {
            bytes: self.taken.bytes.load(Ordering::Relaxed),
            descriptors: self.taken.descriptors.load(Ordering::Relaxed),
            cuts: self.cuts.load(Ordering::Relaxed),
            recalls: self.recalls.load(Ordering::Relaxed),
        }
    }

    /// Counts a response that was cut because its file changed.
    pub(crate) fn count_cut(&self) {
        self.cuts.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a file that its worker calls back.
    pub fn count_recall(&self) {
        self.recalls.fetch_add(1, Ordering::Relaxed);
    }

    /// The way to send `file`, which was handed over under a lease or is sealed. `identity` is the
    /// result of `fstat` when the file arrived.
    pub fn ask(self: &Arc<Self>, identity: Identity, file: &Arc<OwnedFd>) -> Advice {
        if identity.size == 0 || identity.size > LARGEST {
            return Advice::Read;
        }
        // Declared before the lock is taken, so that copies are freed after it is released.
        let mut dropped = Vec::new();
        let mut entries = self.entries();
        let is_first = match entries.get_mut(&identity) {
            None => true,
            Some(Entry::AskedOnce) => false,
            Some(Entry::Making) => return Advice::Read,
            Some(Entry::Ready { snapshot, witnesses }) => {
                if still_vouched(witnesses) {
                    return join(snapshot, witnesses, file);
                }
                false
            }
        };
        if is_first && identity.size > in_memory_limit() {
            // A copy for a single response costs more than it saves.
            dropped.extend(entries.push(identity, Entry::AskedOnce));
            return Advice::Read;
        }
        match self.make_room(&mut entries, identity.size, &mut dropped) {
            None => Advice::Read,
            Some(charge) => {
                dropped.extend(entries.push(identity, Entry::Making));
                Advice::Copy(Reservation {
                    snapshots: Arc::clone(self),
                    identity,
                    charge: Some(charge),
                })
            }
        }
    }

    /// Reserves room for a copy that only one file will use: it counts towards the limits but is
    /// not in the table. `None`: there is no room.
    pub fn reserve_unshared(self: &Arc<Self>, identity: Identity) -> Option<Reservation> {
        let mut dropped = Vec::new();
        let charge = self.make_room(&mut self.entries(), identity.size, &mut dropped)?;
        Some(Reservation { snapshots: Arc::clone(self), identity, charge: Some(charge) })
    }

    /// To be called when a file that may have been a witness is given up: drops its copy from the
    /// table if the copy has no witness with an intact lease.
    pub(crate) fn drop_if_stale(&self, identity: &Identity) {
        let mut entries = self.entries();
        let stale = match entries.peek_mut(identity) {
            Some(Entry::Ready { witnesses, .. }) => !still_vouched(witnesses),
            _ => false,
        };
        let dropped = stale.then(|| entries.pop(identity));
        drop(entries);
        // Dropped after the lock is released, because this may free megabytes.
        drop(dropped);
    }

    fn make_room(
        &self,
        entries: &mut LruCache<Identity, Entry>,
        bytes: u64,
        dropped: &mut Vec<(Identity, Entry)>,
    ) -> Option<Charge> {
        let descriptors = usize::from(bytes > in_memory_limit());
        let mut freed = (0, 0);
        for _ in 0..LOOKS_FOR_ROOM {
            let bytes_taken = self.taken.bytes.load(Ordering::Relaxed) - freed.0;
            let descriptors_taken = self.taken.descriptors.load(Ordering::Relaxed) - freed.1;
            if bytes_taken + bytes <= self.limits.bytes
                && descriptors_taken + descriptors <= self.limits.descriptors
            {
                self.taken.bytes.fetch_add(bytes, Ordering::Relaxed);
                self.taken.descriptors.fetch_add(descriptors, Ordering::Relaxed);
                return Some(Charge { taken: Arc::clone(&self.taken), bytes, descriptors });
            }
            let (identity, entry) = entries.pop_lru()?;
            match &entry {
                Entry::Ready { snapshot, .. } if Arc::strong_count(snapshot) == 1 => {
                    freed.0 += snapshot.charge.bytes;
                    freed.1 += snapshot.charge.descriptors;
                    dropped.push((identity, entry));
                }
                Entry::AskedOnce => {}
                // The copy is in use: make it the most recently used.
                Entry::Ready { .. } | Entry::Making => {
                    entries.push(identity, entry);
                }
            }
        }
        None
    }

    fn entries(&self) -> MutexGuard<'_, LruCache<Identity, Entry>> {
        // No code under the lock panics while the table is inconsistent.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn join(
    snapshot: &Arc<Snapshot>,
    witnesses: &mut Vec<Weak<OwnedFd>>,
    file: &Arc<OwnedFd>,
) -> Advice {
    if !stands(file) {
        return Advice::Read;
    }
    let most = if descriptors::level() == Level::Plenty { WITNESSES } else { 1 };
    let is_witness = witnesses.len() < most;
    if is_witness {
        witnesses.push(Arc::downgrade(file));
    }
    Advice::Join { snapshot: Arc::clone(snapshot), is_witness }
}

/// Removes the witnesses whose leases have ended. Returns true if one is left.
fn still_vouched(witnesses: &mut Vec<Weak<OwnedFd>>) -> bool {
    witnesses.retain(|witness| witness.upgrade().is_some_and(|file| stands(&file)));
    !witnesses.is_empty()
}

/// True if the file's lease is intact and not being broken, or if the file is sealed.
fn stands(file: &OwnedFd) -> bool {
    lease::look(file.as_fd()) == Lease::Stands || memfd::is_final(file)
}

/// Permission to make a copy. If it is dropped without a copy, the next request may make one.
#[derive(Debug)]
pub struct Reservation {
    snapshots: Arc<Snapshots>,
    identity: Identity,
    charge: Option<Charge>,
}

impl Reservation {
    /// Makes a snapshot of the bytes read from `file`; `None` if the lease has ended, so that the
    /// contents may be mixed. Other files may join only if the lease is intact: while it is being
    /// broken, the contents are right for this file only.
    pub fn fulfil(mut self, file: &Arc<OwnedFd>, contents: Contents) -> Option<Arc<Snapshot>> {
        let state = lease::look(file.as_fd());
        if state == Lease::Ended && !memfd::is_final(file) {
            return None;
        }
        let charge = self.charge.take()?;
        let snapshot = Arc::new(Snapshot { contents, charge });
        let mut dropped = None;
        let mut entries = self.snapshots.entries();
        if matches!(entries.peek(&self.identity), Some(Entry::Making)) {
            dropped = if state == Lease::Breaking {
                entries.pop_entry(&self.identity)
            } else {
                let witnesses = vec![Arc::downgrade(file)];
                let ready = Entry::Ready { snapshot: Arc::clone(&snapshot), witnesses };
                entries.push(self.identity, ready)
            };
        }
        drop(entries);
        drop(dropped);
        Some(snapshot)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.charge.is_some() {
            let mut entries = self.snapshots.entries();
            if let Some(entry @ Entry::Making) = entries.peek_mut(&self.identity) {
                *entry = Entry::AskedOnce;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;

    use rustix::fs::fstat;

    use super::*;

    struct CopyFolder(tempfile::TempDir);

    impl CopyFolder {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn file(&self, name: &str, size: usize) -> std::path::PathBuf {
            let path = self.0.path().join(name);
            std::fs::write(&path, vec![b'x'; size]).unwrap();
            path
        }
    }

    /// A file as a worker hands it over.
    fn leased(path: &Path) -> (Identity, Arc<OwnedFd>) {
        let file = OwnedFd::from(File::open(path).unwrap());
        lease::take(file.as_fd(), rustix::thread::gettid()).unwrap();
        (Identity::new(&fstat(&file).unwrap()), Arc::new(file))
    }

    fn copy(advice: Advice, file: &Arc<OwnedFd>) -> Option<Arc<Snapshot>> {
        let Advice::Copy(reservation) = advice else { panic!("{advice:?}") };
        reservation.fulfil(file, Contents::Memory(Bytes::from_static(b"copied")))
    }

    fn snapshots(bytes: u64) -> Arc<Snapshots> {
        Snapshots::new(SnapshotLimits { bytes, descriptors: 2 })
    }

    /// A table with a copy of the file, and its witness.
    fn with_copy(path: &Path) -> (Arc<Snapshots>, Arc<Snapshot>, Arc<OwnedFd>) {
        let snapshots = snapshots(1 << 20);
        let (identity, file) = leased(path);
        let snapshot = copy(snapshots.ask(identity, &file), &file).unwrap();
        (snapshots, snapshot, file)
    }

    #[test]
    fn small_files_are_copied_at_once_and_larger_ones_the_second_time() {
        let (folder, snapshots) = (CopyFolder::new(), snapshots(1 << 20));
        let (small, small_file) = leased(&folder.file("small", 64 * 1024));
        let (large, large_file) = leased(&folder.file("large", 64 * 1024 + 1));
        assert!(matches!(snapshots.ask(small, &small_file), Advice::Copy(_)));
        assert!(matches!(snapshots.ask(large, &large_file), Advice::Read));
        let second = snapshots.ask(large, &large_file);
        assert!(matches!(second, Advice::Copy(_)));
        assert!(matches!(snapshots.ask(large, &large_file), Advice::Read), "it is being copied");
        drop(second);
        assert!(matches!(snapshots.ask(large, &large_file), Advice::Copy(_)), "it was not");
        let (empty, file) = leased(&folder.file("empty", 0));
        assert!(matches!(snapshots.ask(empty, &file), Advice::Read));
    }

    #[test]
    fn one_copy_serves_every_descriptor_of_the_same_file() {
        let folder = CopyFolder::new();
        let path = folder.file("f", 100);
        let (snapshots, snapshot, first) = with_copy(&path);
        let mut kept = Vec::new();
        for number in 0..5 {
            let (identity, file) = leased(&path);
            let advice = snapshots.ask(identity, &file);
            let Advice::Join { snapshot: joined, is_witness } = advice else {
                panic!("{advice:?}")
            };
            assert!(Arc::ptr_eq(&joined, &snapshot));
            assert_eq!(is_witness, number + 1 < WITNESSES);
            kept.extend(is_witness.then_some(file));
        }
        assert_eq!(
            snapshots.usage(),
            SnapshotUsage { bytes: 100, descriptors: 0, cuts: 0, recalls: 0 }
        );
        // Later witnesses prove its contents after the first has gone.
        drop(first);
        let (identity, file) = leased(&path);
        assert!(matches!(snapshots.ask(identity, &file), Advice::Join { is_witness: true, .. }));
    }

    /// The time stamps are equal in all these cases.
    #[test]
    fn without_leases_on_both_sides_no_file_joins() {
        let folder = CopyFolder::new();
        let path = folder.file("f", 100);
        let (snapshots, _snapshot, witness) = with_copy(&path);
        let (identity, file) = leased(&path);
        lease::give_up(file.as_fd()).unwrap();
        assert!(matches!(snapshots.ask(identity, &file), Advice::Read), "its own lease ended");
        lease::give_up(witness.as_fd()).unwrap();
        let (identity, file) = leased(&path);
        assert!(
            matches!(snapshots.ask(identity, &file), Advice::Copy(_)),
            "the witness' lease ended"
        );
        let (snapshots, _snapshot, witness) = with_copy(&path);
        drop(witness);
        assert!(matches!(snapshots.ask(identity, &file), Advice::Copy(_)), "the witness is closed");
    }

    #[test]
    fn a_changed_file_is_another_one() {
        let folder = CopyFolder::new();
        let path = folder.file("f", 100);
        let (snapshots, _snapshot, witness) = with_copy(&path);
        lease::give_up(witness.as_fd()).unwrap();
        folder.file("f", 101);
        let (identity, file) = leased(&path);
        assert!(matches!(snapshots.ask(identity, &file), Advice::Copy(_)));
    }

    #[test]
    fn what_was_read_under_a_lease_that_has_ended_is_not_stored() {
        let (folder, snapshots) = (CopyFolder::new(), snapshots(1 << 20));
        let (identity, file) = leased(&folder.file("f", 100));
        let advice = snapshots.ask(identity, &file);
        lease::give_up(file.as_fd()).unwrap();
        assert!(copy(advice, &file).is_none());
        assert_eq!(snapshots.usage().bytes, 0);
    }

    #[test]
    fn a_copy_whose_last_witness_is_given_up_is_dropped() {
        let folder = CopyFolder::new();
        let path = folder.file("f", 100);
        let (snapshots, snapshot, witness) = with_copy(&path);
        let (identity, _) = leased(&path);
        drop(snapshot);
        snapshots.drop_if_stale(&identity);
        assert_eq!(snapshots.usage().bytes, 100);
        drop(witness);
        snapshots.drop_if_stale(&identity);
        assert_eq!(snapshots.usage().bytes, 0);
    }

    #[test]
    fn the_least_recently_used_copy_makes_room_unless_it_is_in_use() {
        let (folder, snapshots) = (CopyFolder::new(), snapshots(300));
        let files: Vec<_> =
            ["a", "b", "c", "d"].iter().map(|name| leased(&folder.file(name, 100))).collect();
        let ask = |number: usize| snapshots.ask(files[number].0, &files[number].1);
        let a = copy(ask(0), &files[0].1).unwrap();
        drop(copy(ask(1), &files[1].1));
        drop(copy(ask(2), &files[2].1));
        assert!(matches!(ask(1), Advice::Join { .. }));
        drop(copy(ask(3), &files[3].1));
        assert_eq!(snapshots.usage().bytes, 300);
        assert!(matches!(ask(0), Advice::Join { .. }), "in use");
        assert!(matches!(ask(1), Advice::Join { .. }), "used lately");
        let (large, file) = leased(&folder.file("e", 201));
        assert!(
            matches!(snapshots.ask(large, &file), Advice::Read),
            "there is no room while a is used"
        );
        drop(a);
        assert!(matches!(snapshots.ask(large, &file), Advice::Copy(_)));
    }

    #[test]
    fn descriptors_are_bounded() {
        let (folder, snapshots) = (CopyFolder::new(), snapshots(1 << 20));
        let mut copies = Vec::new();
        for name in ["a", "b", "c"] {
            let (identity, file) = leased(&folder.file(name, 100_000));
            assert!(matches!(snapshots.ask(identity, &file), Advice::Read));
            match snapshots.ask(identity, &file) {
                Advice::Copy(reservation) => {
                    let contents = Contents::File(Arc::clone(&file));
                    copies.push(reservation.fulfil(&file, contents).unwrap());
                }
                advice => assert!(name == "c" && matches!(advice, Advice::Read), "{advice:?}"),
            }
        }
        assert_eq!((copies.len(), snapshots.usage().descriptors), (2, 2));
        drop(copies);
        assert_eq!(snapshots.usage().descriptors, 2, "kept for the next request");
    }
}
