//! Fragments of pages, in memory that the processes of a pool share: the first process that asks for
//! a fragment makes it, and all send it (`docs/fragments.md`).
//!
//! ```text
//!   slots   a hash table of places in the log
//!   log     fragments, one behind the other; at the end it begins anew over the oldest ones
//!   seats   permits: the process that makes a fragment holds a seat, others wait for the seat
//! ```
//!
//! A place is the number of bytes written to the log before it, so no two fragments ever have the
//! same one, and a fragment has been overwritten once the log is a whole size ahead of it.
//!
//! Locks are robust mutexes: the kernel releases them when their owner dies. If it died while it
//! changed the table, all fragments are forgotten. If it died while it made a fragment, another
//! process makes it. A process of the pool could write nonsense; every number from the memory is
//! checked against its bounds, so it spoils fragments of its own pool only.

use std::hash::Hasher;
use std::mem::offset_of;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, io, ptr};

use fnv::FnvHasher;
use libc::pthread_mutex_t;
use rustix::fs::fstat;
use rustix::io::Errno;

use self::layout::{
    ALIGNMENT, Head, LOG_AT, Labels, MOST_LABELS, Record, SEATS, SIZES, SLOTS, Seat, Slot,
};
use self::locks::{lock_until, make_lock, millis, now};
use self::seats::Permit;
use crate::memfd;
use crate::purges::{EVERYTHING, PurgeCounters, TOTAL, counter_of};
use crate::shared::Map;

pub use self::layout::{LARGEST, LONGEST_KEY, MOST_TAGS};

mod layout;
mod locks;
mod seats;
mod table;
#[cfg(test)]
mod tests;

/// The environment variable by which a process inherits the fragments of its pool: the numbers of
/// the descriptors of the memory and of the counters.
pub const INHERITED: &str = "SENDOFF_FRAGMENTS";

/// Longest wait for the table: a stopped process may hold it.
const TABLE_WAIT: Duration = Duration::from_millis(100);
/// An old fragment is sent for at most this time while a new one is made.
const MOST_STALE: Duration = Duration::from_secs(60);
/// The longest lifetime: ten years.
const LONGEST_LIFE: Duration = Duration::from_secs(10 * 365 * 86400);

/// The fragments of a pool.
#[derive(Debug)]
pub struct Fragments {
    map: Map,
    counters: PurgeCounters,
    /// The counter of purges of all these fragments.
    everything: usize,
}

/// The answer to a request for a fragment.
#[derive(Debug)]
pub enum Asked<'f> {
    /// The fragment is kept.
    Kept {
        /// Its bytes.
        bytes: Vec<u8>,
        /// Its place, which no other fragment of this memory ever has.
        place: u64,
    },
    /// The caller makes it.
    Make(Making<'f>),
}

/// A fragment that is being made. Others wait for it until this is dropped.
#[derive(Debug)]
pub struct Making<'f> {
    fragments: &'f Fragments,
    key: Vec<u8>,
    labels: Box<Labels>,
    seat: Option<usize>,
}

/// A kept fragment.
#[derive(Debug)]
struct Found {
    bytes: Vec<u8>,
    place: u64,
    is_fresh: bool,
}

/// The table, locked.
struct Table<'f>(&'f Fragments);

impl Drop for Table<'_> {
    fn drop(&mut self) {
        // SAFETY: this thread holds the lock.
        unsafe { libc::pthread_mutex_unlock(self.0.lock_at()) };
    }
}

impl Fragments {
    /// Makes memory for fragments of `size` bytes in all, and descriptors of the memory and of the
    /// counters of purges for other processes. Pages cost nothing until they are used.
    ///
    /// # Errors
    /// `EINVAL`: the size is below 8 MiB or above 4 GiB. Also errors of `memfd_create(2)`,
    /// `ftruncate(2)` and `mmap(2)`.
    pub fn create(size: usize) -> io::Result<(Self, [OwnedFd; 2])> {
        Self::purged_by(None, size)
    }

    /// The same with counters that processes with other memory may share; `None`: new ones.
    ///
    /// # Errors
    /// As of [`create`](Self::create) and [`PurgeCounters::open`].
    pub fn purged_by(counters: Option<OwnedFd>, size: usize) -> io::Result<(Self, [OwnedFd; 2])> {
        if !SIZES.contains(&size) {
            return Err(Errno::INVAL.into());
        }
        let len = LOG_AT + size.next_multiple_of(4096);
        let memory = memfd::of_fixed_size("sendoff-fragments", len as u64)?;
        let (counters, of_counters) = match counters {
            Some(shared) => (PurgeCounters::open(&shared)?, shared),
            None => PurgeCounters::create()?,
        };
        let made = Self { map: map(&memory, len)?, counters, everything: EVERYTHING };
        made.make_locks()?;
        // SAFETY: in the memory, which no other process has yet.
        unsafe { (*made.head()).written = made.log_len() };
        Ok((made, [memory, of_counters]))
    }

    /// The same fragments, of which this tag purges all: their counters are also for others. Call it
    /// before the first one is kept.
    #[must_use]
    pub fn purged_by_tag(self, tag: &[u8]) -> Self {
        Self { everything: counter_of(tag), ..self }
    }

    /// The fragments of the pool that has started this process, from the descriptors that it has
    /// inherited. `None`: the pool keeps none, or they were taken before.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn inherited() -> Option<io::Result<Self>> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        let numbers = env::var(INHERITED).ok()?;
        let (memory, counters) = numbers.split_once(',')?;
        let number = |text: &str| text.parse().ok().filter(|fd| *fd > libc::STDERR_FILENO);
        let numbers = [number(memory)?, number(counters)?];
        if TAKEN.swap(true, Ordering::Relaxed) {
            return None;
        }
        // SAFETY: the pool's master has opened them for this process, and they are taken once.
        let [memory, counters] = numbers.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        Some(Self::open(&memory, &counters))
    }

    /// Maps the memory of another process.
    ///
    /// # Errors
    /// `EINVAL`: these are no such memory and counters. Also errors of `mmap(2)`.
    pub fn open(memory: &OwnedFd, counters: &OwnedFd) -> io::Result<Self> {
        let len = usize::try_from(fstat(memory)?.st_size).unwrap_or_default();
        if !memfd::has_fixed_size(memory)? || len < LOG_AT + SIZES.start() {
            return Err(Errno::INVAL.into());
        }
        let (map, counters) = (map(memory, len)?, PurgeCounters::open(counters)?);
        Ok(Self { map, counters, everything: EVERYTHING })
    }

    /// The fragment with this key; or the caller makes it, with these tags. If another process makes
    /// it, the caller gets the old one, or waits for at most `patience` and then makes it for
    /// itself. `None`: the key is too long, or there are too many tags, so it is not kept.
    #[must_use]
    pub fn ask(&self, key: &[u8], tags: &[&[u8]], patience: Duration) -> Option<Asked<'_>> {
        if key.len() > LONGEST_KEY || tags.len() > MOST_TAGS {
            return None;
        }
        let deadline = now() + millis(patience);
        let mut seat = None;
        loop {
            let found = self.find(key);
            if let Some(Found { bytes, place, is_fresh: true }) = found {
                seat.inspect(|seat| self.release(*seat));
                return Some(Asked::Kept { bytes, place });
            }
            if seat.is_some() {
                break;
            }
            match self.take(key) {
                // It may have been made since it was looked up.
                Permit::Taken(taken) => seat = Some(taken),
                Permit::Busy(other) => {
                    if let Some(Found { bytes, place, .. }) = found {
                        return Some(Asked::Kept { bytes, place });
                    }
                    if !self.wait(other, key, deadline) {
                        break;
                    }
                }
                Permit::None => break,
            }
        }
        let (labels, key) = (self.label(key, tags), key.to_vec());
        Some(Asked::Make(Making { fragments: self, key, labels, seat }))
    }

    /// The kept fragment, if it is fresh.
    #[must_use]
    pub fn fetch(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.find(key).filter(|found| found.is_fresh).map(|found| found.bytes)
    }

    /// The number of purges so far.
    #[must_use]
    pub fn purges(&self) -> u64 {
        self.counters.value(TOTAL)
    }

    /// Keeps a fragment that was made with the knowledge of this number of purges. False: it does
    /// not fit, or something was purged meanwhile.
    #[must_use]
    pub fn store(
        &self,
        key: &[u8],
        tags: &[&[u8]],
        life: Duration,
        bytes: &[u8],
        purges: u64,
    ) -> bool {
        if key.len() > LONGEST_KEY || tags.len() > MOST_TAGS {
            return false;
        }
        let labels = self.label(key, tags);
        self.purges() == purges && self.keep(key, &labels, life, bytes)
    }

    /// Purges the fragments with this tag, or all; a key is a tag of its fragment. It counts at once,
    /// for all processes.
    pub fn purge(&self, tag: Option<&[u8]>) {
        match tag {
            Some(tag) => self.counters.purge(tag),
            None => self.counters.count(self.everything),
        }
    }

    fn head(&self) -> *mut Head {
        self.map.start().cast()
    }

    fn lock_at(&self) -> *mut pthread_mutex_t {
        // SAFETY: in the memory.
        unsafe { &raw mut (*self.head()).lock }
    }

    fn seat_at(&self, seat: usize) -> *mut Seat {
        assert!(seat < SEATS);
        // SAFETY: in the memory.
        unsafe { (&raw mut (*self.head()).seats).cast::<Seat>().add(seat) }
    }

    fn slot_at(&self, slot: usize) -> *mut Slot {
        // SAFETY: in the memory.
        unsafe { (&raw mut (*self.head()).slots).cast::<Slot>().add(slot % SLOTS) }
    }

    fn log_len(&self) -> u64 {
        (self.map.len - LOG_AT) as u64
    }

    fn make_locks(&self) -> io::Result<()> {
        make_lock(self.lock_at())?;
        for seat in 0..SEATS {
            // SAFETY: in the memory.
            make_lock(unsafe { &raw mut (*self.seat_at(seat)).held })?;
        }
        Ok(())
    }

    /// Locks the table. `None`: a stopped process holds it.
    fn table(&self) -> Option<Table<'_>> {
        let result = lock_until(self.lock_at(), now() + millis(TABLE_WAIT));
        if result == libc::EOWNERDEAD {
            // SAFETY: this thread holds the lock.
            unsafe {
                ptr::write_bytes(&raw mut (*self.head()).slots, 0, 1);
                if libc::pthread_mutex_consistent(self.lock_at()) != 0 {
                    return None;
                }
            }
        } else if result != 0 {
            return None;
        }
        Some(Table(self))
    }

    fn label(&self, key: &[u8], tags: &[&[u8]]) -> Box<Labels> {
        let mut labels =
            Box::new(Labels { count: 0, counters: [0; MOST_LABELS], seen: [0; MOST_LABELS] });
        let own = [self.everything, counter_of(key)];
        for (at, number) in
            own.into_iter().chain(tags.iter().map(|tag| counter_of(tag))).enumerate()
        {
            labels.counters[at] = u32::try_from(number).unwrap_or_default();
            labels.seen[at] = self.counters.value(number);
            labels.count += 1;
        }
        labels
    }

    fn is_purged(&self, labels: &Labels) -> bool {
        let count = usize::try_from(labels.count).unwrap_or(MOST_LABELS).min(MOST_LABELS);
        labels.counters.iter().zip(&labels.seen).take(count).any(|(number, seen)| {
            self.counters.value(usize::try_from(*number).unwrap_or_default()) != *seen
        })
    }

    fn find(&self, key: &[u8]) -> Option<Found> {
        let table = self.table()?;
        let slot = table.slot_of(key)?;
        // SAFETY: in the memory, under the lock.
        let at = unsafe { (*slot).at };
        let (record, start) = table.record(at)?;
        let now = now();
        if record.stale_until <= now || self.is_purged(&record.labels) {
            // SAFETY: as above.
            unsafe { (*slot).at = 0 };
            return None;
        }
        let key_len = usize::try_from(record.key_len).ok()?;
        let bytes = table.bytes(start + size_of::<Record>() + key_len, record.len)?;
        Some(Found { bytes, place: at, is_fresh: record.fresh_until > now })
    }

    fn keep(&self, key: &[u8], labels: &Labels, life: Duration, bytes: &[u8]) -> bool {
        if bytes.len() > LARGEST || life.is_zero() || self.is_purged(labels) {
            return false;
        }
        let Some(table) = self.table() else { return false };
        let life = millis(life.min(LONGEST_LIFE));
        let fresh_until = now() + life;
        let record = Record {
            fresh_until,
            stale_until: fresh_until + life.min(millis(MOST_STALE)),
            key_len: key.len() as u64,
            len: bytes.len() as u64,
            labels: *labels,
        };
        let slot = table.slot_for(key);
        let (at, start) = table.allocate(size_of::<Record>() + key.len() + bytes.len());
        // SAFETY: `allocate` has found room for all of it, inside the mapping and aligned. Other
        // processes look at it under the lock only.
        unsafe {
            (*slot).at = 0;
            let to = self.map.start().add(start);
            to.cast::<Record>().write(record);
            let to = to.add(size_of::<Record>());
            ptr::copy_nonoverlapping(key.as_ptr(), to, key.len());
            ptr::copy_nonoverlapping(bytes.as_ptr(), to.add(key.len()), bytes.len());
            *slot = Slot { hash: hash(key), at };
        }
        true
    }
}

impl Making<'_> {
    /// Keeps the fragment for this time, unless it was purged since it was begun. False: it is not
    /// kept.
    pub fn keep(&self, life: Duration, bytes: &[u8]) -> bool {
        self.fragments.keep(&self.key, &self.labels, life, bytes)
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.seat.take().inspect(|seat| self.fragments.release(*seat));
    }
}

fn map(memory: &OwnedFd, len: usize) -> io::Result<Map> {
    // The head is at the start, where a page begins.
    const _: () = assert!(offset_of!(Head, lock) == 0 && align_of::<Record>() <= ALIGNMENT);
    Map::new(memory.as_fd(), 0, len, libc::PROT_READ | libc::PROT_WRITE)
}

/// The hash of a key; never 0.
fn hash(key: &[u8]) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(key);
    hasher.finish().max(1)
}
