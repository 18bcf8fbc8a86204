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
use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use fnv::FnvHasher;
use libc::{
    CLOCK_MONOTONIC, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ROBUST, PTHREAD_PROCESS_SHARED,
    clockid_t, pthread_mutex_t, timespec,
};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::io::Errno;

use crate::purges::{EVERYTHING, PurgeCounters, TOTAL, counter_of};
use crate::shared::Map;

/// Fragments that can be found.
const SLOTS: usize = 4096;
/// Slots in which a fragment may stand.
const PROBES: usize = 8;
/// Fragments that can be made at a time with others waiting for them.
const SEATS: usize = 128;
/// The largest fragment, in bytes: copying it takes the lock for 0.1 ms.
pub const LARGEST: usize = 1 << 20;
/// The longest key in bytes.
pub const LONGEST_KEY: usize = 4096;
/// The most tags of a fragment.
pub const MOST_TAGS: usize = 64;
/// Labels of a fragment: its tags, its key, and the label of all fragments.
const MOST_LABELS: usize = MOST_TAGS + 2;
/// Bounds of the size of the log. Several fragments of the largest size fit.
const SIZES: std::ops::RangeInclusive<usize> = 8 << 20..=1 << 32;
/// Longest wait for the table: a stopped process may hold it.
const TABLE_WAIT: Duration = Duration::from_millis(100);
/// An old fragment is sent for at most this time while a new one is made.
const MOST_STALE: Duration = Duration::from_secs(60);
/// The longest lifetime: ten years.
const LONGEST_LIFE: Duration = Duration::from_secs(10 * 365 * 86400);
/// Records begin at multiples of this.
const ALIGNMENT: usize = 16;

unsafe extern "C" {
    /// POSIX.1-2024; in glibc since 2.30.
    fn pthread_mutex_clocklock(
        lock: *mut pthread_mutex_t,
        clock: clockid_t,
        until: *const timespec,
    ) -> i32;
}

/// The counters of a fragment's tags when it was begun.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Labels {
    count: u32,
    counters: [u32; MOST_LABELS],
    seen: [u64; MOST_LABELS],
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Slot {
    hash: u64,
    /// 0: the slot is free.
    at: u64,
}

#[repr(C)]
struct Seat {
    held: pthread_mutex_t,
    /// Hash of the key whose fragment its holder makes; 0: none. Changed under the table's lock.
    hash: u64,
}

/// The beginning of a fragment in the log; the key and the bytes follow.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Record {
    /// Milliseconds of `CLOCK_MONOTONIC`.
    fresh_until: u64,
    stale_until: u64,
    key_len: u64,
    len: u64,
    labels: Labels,
}

/// The beginning of the memory; the log follows at the next page.
#[repr(C)]
struct Head {
    lock: pthread_mutex_t,
    /// Bytes written to the log so far. Begins with its size, so that no place is 0.
    written: u64,
    slots: [Slot; SLOTS],
    seats: [Seat; SEATS],
}

/// Start of the log.
const LOG_AT: usize = size_of::<Head>().next_multiple_of(4096);

/// The fragments of a pool.
#[derive(Debug)]
pub struct Fragments {
    map: Map,
    counters: PurgeCounters,
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

/// The permit to make a fragment.
enum Permit {
    Taken(usize),
    /// The process that holds this seat makes it.
    Busy(usize),
    /// All seats are taken.
    None,
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
        if !SIZES.contains(&size) {
            return Err(Errno::INVAL.into());
        }
        let len = LOG_AT + size.next_multiple_of(4096);
        crate::memfd::fits(len as u64)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = memfd_create("sendoff-fragments", flags)?;
        ftruncate(&memory, len as u64)?;
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let (counters, of_counters) = PurgeCounters::create()?;
        let made = Self { map: map(&memory, len)?, counters };
        made.make_locks()?;
        // SAFETY: in the memory, which no other process has yet.
        unsafe { (*made.head()).written = made.log_len() };
        Ok((made, [memory, of_counters]))
    }

    /// Maps the memory of another process.
    ///
    /// # Errors
    /// `EINVAL`: these are no such memory and counters. Also errors of `mmap(2)`.
    pub fn open(memory: &OwnedFd, counters: &OwnedFd) -> io::Result<Self> {
        let is_sealed = fcntl_get_seals(memory)?.contains(SealFlags::SHRINK | SealFlags::GROW);
        let len = usize::try_from(fstat(memory)?.st_size).unwrap_or_default();
        if !is_sealed || len < LOG_AT + SIZES.start() {
            return Err(Errno::INVAL.into());
        }
        Ok(Self { map: map(memory, len)?, counters: PurgeCounters::open(counters)? })
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
            None => self.counters.purge_everything(),
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
        let own = [EVERYTHING, counter_of(key)];
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

    /// Takes the seat for making a fragment.
    fn take(&self, key: &[u8]) -> Permit {
        let Some(_table) = self.table() else { return Permit::None };
        let hash = hash(key);
        // SAFETY: in the memory, under the lock.
        let hash_at = |seat| unsafe { (*self.seat_at(seat)).hash };
        let known = (0..SEATS).find(|seat| hash_at(*seat) == hash);
        let mut candidates = match known {
            Some(seat) => seat..seat + 1,
            None => 0..SEATS,
        };
        let taken = candidates.find(|seat| self.try_seat(*seat));
        if let Some(seat) = taken {
            // SAFETY: as above.
            unsafe { (*self.seat_at(seat)).hash = hash };
            return Permit::Taken(seat);
        }
        known.map_or(Permit::None, Permit::Busy)
    }

    /// Locks a seat if no thread holds it.
    fn try_seat(&self, seat: usize) -> bool {
        // SAFETY: a mutex in the memory.
        unsafe {
            let held = &raw mut (*self.seat_at(seat)).held;
            match libc::pthread_mutex_trylock(held) {
                0 => true,
                libc::EOWNERDEAD => libc::pthread_mutex_consistent(held) == 0,
                _ => false,
            }
        }
    }

    /// Waits for the process that makes a fragment. False: it takes too long, or this thread itself
    /// makes it.
    fn wait(&self, seat: usize, key: &[u8], deadline: u64) -> bool {
        // SAFETY: a mutex in the memory.
        let held = unsafe { &raw mut (*self.seat_at(seat)).held };
        match lock_until(held, deadline) {
            0 => {}
            // SAFETY: this thread holds the seat.
            libc::EOWNERDEAD if unsafe { libc::pthread_mutex_consistent(held) } == 0 => {}
            _ => return false,
        }
        let _table = self.table();
        // SAFETY: this thread holds the seat. Its last holder has made its fragment, or has died.
        unsafe {
            let seat = self.seat_at(seat);
            if (*seat).hash == hash(key) {
                (*seat).hash = 0;
            }
            libc::pthread_mutex_unlock(held);
        }
        true
    }

    fn release(&self, seat: usize) {
        let _table = self.table();
        // SAFETY: this thread holds the seat.
        unsafe {
            let seat = self.seat_at(seat);
            (*seat).hash = 0;
            libc::pthread_mutex_unlock(&raw mut (*seat).held);
        }
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

impl Table<'_> {
    /// The record at this place, and its start in the mapping; `None`: it has been overwritten, or
    /// there is none.
    fn record(&self, at: u64) -> Option<(Record, usize)> {
        let size = self.0.log_len();
        // SAFETY: in the memory, under the lock.
        let written = unsafe { (*self.0.head()).written };
        let is_there = at > 0 && at < written && at.checked_add(size)? >= written;
        let start = usize::try_from(at % size).ok().filter(|at| at.is_multiple_of(ALIGNMENT))?;
        let end = start.checked_add(size_of::<Record>())?;
        if !is_there || end as u64 > size {
            return None;
        }
        let start = LOG_AT + start;
        // SAFETY: inside the mapping and aligned; any bytes are a record.
        Some((unsafe { self.0.map.start().add(start).cast::<Record>().read() }, start))
    }

    /// A copy of bytes of the log.
    fn bytes(&self, start: usize, len: u64) -> Option<Vec<u8>> {
        let len = usize::try_from(len).ok()?;
        if start.checked_add(len)? > self.0.map.len {
            return None;
        }
        let mut bytes = Vec::with_capacity(len);
        // SAFETY: inside the mapping; the vector has room for them.
        unsafe {
            ptr::copy_nonoverlapping(self.0.map.start().add(start), bytes.as_mut_ptr(), len);
            bytes.set_len(len);
        }
        Some(bytes)
    }

    /// The slot of a key's fragment.
    fn slot_of(&self, key: &[u8]) -> Option<*mut Slot> {
        let hash = hash(key);
        self.slots_near(hash).find(|slot| {
            // SAFETY: in the memory, under the lock.
            let slot = unsafe { **slot };
            slot.hash == hash
                && self.record(slot.at).is_some_and(|(record, start)| {
                    record.key_len == key.len() as u64
                        && self.bytes(start + size_of::<Record>(), record.key_len).as_deref()
                            == Some(key)
                })
        })
    }

    /// The slot for a new fragment: the key's own, a free one, or the one with the oldest fragment.
    fn slot_for(&self, key: &[u8]) -> *mut Slot {
        // SAFETY: in the memory, under the lock.
        let at = |slot: &*mut Slot| unsafe { (**slot).at };
        let hash = hash(key);
        self.slot_of(key)
            .or_else(|| self.slots_near(hash).find(|slot| self.record(at(slot)).is_none()))
            .or_else(|| self.slots_near(hash).min_by_key(at))
            .unwrap_or_else(|| self.0.slot_at(0))
    }

    fn slots_near(&self, hash: u64) -> impl Iterator<Item = *mut Slot> + '_ {
        let first = usize::try_from(hash % SLOTS as u64).unwrap_or_default();
        (first..first + PROBES).map(|slot| self.0.slot_at(slot))
    }

    /// Room for `len` bytes in the log, which do not pass its end: the place, and its start in the
    /// mapping.
    fn allocate(&self, len: usize) -> (u64, usize) {
        let (size, len) = (self.0.log_len(), len.next_multiple_of(ALIGNMENT) as u64);
        // SAFETY: in the memory, under the lock.
        let written = unsafe { &mut (*self.0.head()).written };
        // A process that writes nonsense could have spoilt it.
        let mut at = written.next_multiple_of(ALIGNMENT as u64);
        let left = size - at % size;
        if len > left {
            at += left;
        }
        *written = at + len;
        (at, LOG_AT + usize::try_from(at % size).unwrap_or_default())
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

/// Milliseconds of `CLOCK_MONOTONIC`.
fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or_default();
    u64::try_from(now.tv_sec).unwrap_or_default() * 1000 + nanos / 1_000_000
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 4)
}

fn make_lock(lock: *mut pthread_mutex_t) -> io::Result<()> {
    let mut kind = MaybeUninit::uninit();
    let kind = kind.as_mut_ptr();
    // SAFETY: the attributes are initialised before they are used, and the mutex is in memory that
    // no other process has yet.
    let made = unsafe {
        libc::pthread_mutexattr_init(kind) == 0
            && libc::pthread_mutexattr_setpshared(kind, PTHREAD_PROCESS_SHARED) == 0
            && libc::pthread_mutexattr_setrobust(kind, PTHREAD_MUTEX_ROBUST) == 0
            && libc::pthread_mutexattr_settype(kind, PTHREAD_MUTEX_ERRORCHECK) == 0
            && libc::pthread_mutex_init(lock, kind) == 0
    };
    // SAFETY: as above.
    unsafe { libc::pthread_mutexattr_destroy(kind) };
    if made { Ok(()) } else { Err(Errno::NOTSUP.into()) }
}

/// Locks a mutex of the memory before `deadline`. Returns the result of
/// `pthread_mutex_clocklock(3)`.
fn lock_until(lock: *mut pthread_mutex_t, deadline: u64) -> i32 {
    let seconds = libc::time_t::try_from(deadline / 1000).unwrap_or(libc::time_t::MAX);
    let nanos = libc::c_long::try_from(deadline % 1000).unwrap_or_default() * 1_000_000;
    let until = timespec { tv_sec: seconds, tv_nsec: nanos };
    // SAFETY: a mutex in the memory.
    unsafe {
        match libc::pthread_mutex_trylock(lock) {
            libc::EBUSY => pthread_mutex_clocklock(lock, CLOCK_MONOTONIC, &raw const until),
            result => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::process::{Forked, exit_now, fork};

    const LIFE: Duration = Duration::from_secs(60);
    const PATIENCE: Duration = Duration::from_secs(5);

    fn fragments() -> Fragments {
        Fragments::create(*SIZES.start()).unwrap().0
    }

    fn make<'f>(all: &'f Fragments, key: &[u8], tags: &[&[u8]]) -> Making<'f> {
        match all.ask(key, tags, PATIENCE) {
            Some(Asked::Make(making)) => making,
            _ => panic!("it is kept already"),
        }
    }

    fn keep(all: &Fragments, key: &[u8], tags: &[&[u8]], bytes: &[u8]) {
        assert!(make(all, key, tags).keep(LIFE, bytes));
    }

    #[test]
    fn a_fragment_is_made_once_and_found_by_its_key() {
        let (all, [memory, counters]) = Fragments::create(*SIZES.start()).unwrap();
        let other = Fragments::open(&memory, &counters).unwrap();
        keep(&all, b"menu", &[], b"one");
        keep(&all, b"foot", &[], b"");
        assert_eq!(other.fetch(b"menu").as_deref(), Some(&b"one"[..]));
        assert_eq!(other.fetch(b"foot").as_deref(), Some(&b""[..]));
        assert_eq!(other.fetch(b"men"), None);
        assert!(matches!(other.ask(b"menu", &[], PATIENCE), Some(Asked::Kept { .. })));
        assert!(other.ask(&[0; LONGEST_KEY + 1], &[], PATIENCE).is_none());
        assert!(!make(&all, b"large", &[]).keep(LIFE, &vec![0; LARGEST + 1]));
        assert!(!make(&all, b"none", &[]).keep(Duration::ZERO, b"x"));
    }

    #[test]
    fn purges_count_for_fragments_that_are_being_made() {
        let all = fragments();
        keep(&all, b"a", &[b"post-1", b"x"], b"1");
        keep(&all, b"b", &[b"post-2"], b"1");
        all.purge(Some(b"post-1"));
        assert_eq!(all.fetch(b"a"), None);
        assert!(all.fetch(b"b").is_some());
        all.purge(Some(b"b"));
        assert_eq!(all.fetch(b"b"), None, "a key is a tag");
        let making = make(&all, b"a", &[b"post-1"]);
        all.purge(None);
        assert!(!making.keep(LIFE, b"old"));
        let purges = all.purges();
        assert!(all.store(b"c", &[], LIFE, b"1", purges));
        all.purge(Some(b"other"));
        assert!(!all.store(b"c", &[], LIFE, b"2", purges), "something was purged meanwhile");
    }

    #[test]
    fn others_wait_or_get_the_old_one() {
        let all = fragments();
        let making = make(&all, b"k", &[]);
        let asked = all.ask(b"k", &[], PATIENCE);
        assert!(matches!(asked, Some(Asked::Make(Making { seat: None, .. }))), "its own maker");
        thread::scope(|scope| {
            let impatient = scope.spawn(|| all.ask(b"k", &[], Duration::from_millis(1)));
            let soon = impatient.join().unwrap();
            assert!(matches!(soon, Some(Asked::Make(Making { seat: None, .. }))));
            drop(soon);
            let waits = scope.spawn(|| all.ask(b"k", &[], PATIENCE));
            assert!(making.keep(LIFE, b"one"));
            drop(making);
            assert!(matches!(waits.join().unwrap(), Some(Asked::Kept { .. })));
        });
        assert!(make(&all, b"old", &[]).keep(Duration::from_secs(1), b"old"));
        while all.fetch(b"old").is_some() {
            thread::yield_now();
        }
        let again = make(&all, b"old", &[]);
        thread::scope(|scope| {
            let old = scope.spawn(|| all.ask(b"old", &[], PATIENCE)).join().unwrap();
            assert!(matches!(old, Some(Asked::Kept { bytes, .. }) if bytes == b"old"));
        });
        drop(again);
    }

    #[test]
    fn a_permit_dies_with_its_process() {
        let all = fragments();
        let Forked::Parent(child) = fork().unwrap() else {
            let _making = make(&all, b"k", &[]);
            exit_now(0);
        };
        rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap();
        assert!(make(&all, b"k", &[]).seat.is_some());
        let Forked::Parent(child) = fork().unwrap() else {
            let _table = all.table();
            exit_now(0);
        };
        keep(&all, b"k", &[], b"1");
        rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap();
        // It may have died while it changed the table.
        let _forgotten = all.fetch(b"k");
        keep(&all, b"other", &[], b"2");
        assert_eq!(all.fetch(b"other").as_deref(), Some(&b"2"[..]));
    }

    #[test]
    fn new_fragments_take_the_place_of_the_oldest() {
        let all = fragments();
        let large = vec![b'x'; LARGEST - 5000];
        for number in 0..50_u32 {
            keep(&all, &number.to_le_bytes(), &[], &large);
            let kept: Vec<_> =
                (0..=number).filter(|n| all.fetch(&n.to_le_bytes()).is_some()).collect();
            assert!(kept.len() >= 7.min(number as usize + 1) && kept.len() <= 8, "{kept:?}");
            assert_eq!(kept.last(), Some(&number));
        }
        for number in 100..20_000_u32 {
            keep(&all, &number.to_le_bytes(), &[], b"short");
        }
        assert_eq!(all.fetch(&19_999_u32.to_le_bytes()).as_deref(), Some(&b"short"[..]));
    }

    #[test]
    fn other_memory_is_refused() {
        let (_, [memory, counters]) = Fragments::create(*SIZES.start()).unwrap();
        assert!(Fragments::open(&counters, &counters).is_err());
        assert!(Fragments::open(&memory, &memory).is_err());
        assert!(Fragments::create(1).is_err());
    }
}
