//! Counters of purges, in memory that a master, its workers and the front share.
//!
//! A tag belongs to one of many counters, by its hash. A purge of the tag adds to its counter. Bytes
//! that were kept with a tag are old once the tag's counter differs from its value when they were
//! begun. Tags that share a counter are purged together, which is harmless. Nothing is ever taken
//! from a counter, so no process that dies, or writes nonsense, can stop another one.

use std::hash::Hasher;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use fnv::FnvHasher;
use rustix::fs::fstat;
use rustix::io::Errno;

use crate::memfd;
use crate::shared::Map;

/// Number of counters, a power of two: 64 KiB.
const COUNTERS: usize = 8192;
const LEN: usize = COUNTERS * size_of::<AtomicU64>();
/// The counter of all purges.
pub const TOTAL: usize = 0;
/// The counter of purges without a tag, which concern everything.
pub const EVERYTHING: usize = 1;
/// The first counter for tags.
const FIRST: usize = 2;

/// The number of the counter of a tag.
#[must_use]
pub fn counter_of(tag: &[u8]) -> usize {
    let mut hasher = FnvHasher::default();
    hasher.write(tag);
    let most = (COUNTERS - FIRST) as u64;
    FIRST + usize::try_from(hasher.finish() % most).unwrap_or_default()
}

/// The counters of a pool.
#[derive(Debug)]
pub struct PurgeCounters(Map);

impl PurgeCounters {
    /// Makes counters, all zero, and a descriptor of them for other processes.
    ///
    /// # Errors
    /// Errors of `memfd_create(2)`, `ftruncate(2)` and `mmap(2)`.
    pub fn create() -> io::Result<(Self, OwnedFd)> {
        let fd = memfd::of_fixed_size("sendoff-purges", LEN as u64)?;
        Ok((Self::map(&fd)?, fd))
    }

    /// Maps counters of another process.
    ///
    /// # Errors
    /// `EINVAL`: the size is wrong, or not sealed. Also errors of `mmap(2)`.
    pub fn open(fd: &OwnedFd) -> io::Result<Self> {
        if !memfd::has_fixed_size(fd)? || usize::try_from(fstat(fd)?.st_size) != Ok(LEN) {
            return Err(Errno::INVAL.into());
        }
        Self::map(fd)
    }

    fn map(fd: &OwnedFd) -> io::Result<Self> {
        Map::new(fd.as_fd(), 0, LEN, libc::PROT_READ | libc::PROT_WRITE).map(Self)
    }

    /// The address of the counters, valid as long as this value.
    #[must_use]
    pub fn start(&self) -> *mut u64 {
        self.0.start().cast()
    }

    /// Purges all that was kept with this tag.
    pub fn purge(&self, tag: &[u8]) {
        self.count(counter_of(tag));
    }

    /// Purges everything.
    pub fn purge_everything(&self) {
        self.count(EVERYTHING);
    }

    /// Purges everything that was kept with any tag.
    pub fn purge_all_tags(&self) {
        self.counter(TOTAL).fetch_add(1, Ordering::SeqCst);
        (FIRST..COUNTERS).for_each(|number| {
            self.counter(number).fetch_add(1, Ordering::SeqCst);
        });
    }

    /// The total comes first: a process that has seen the tag's counter change sees the total
    /// change, too.
    pub(crate) fn count(&self, counter: usize) {
        self.counter(TOTAL).fetch_add(1, Ordering::SeqCst);
        self.counter(counter).fetch_add(1, Ordering::SeqCst);
    }

    /// The value of a counter.
    #[must_use]
    pub fn value(&self, number: usize) -> u64 {
        self.counter(number % COUNTERS).load(Ordering::SeqCst)
    }

    fn counter(&self, number: usize) -> &AtomicU64 {
        assert!(number < COUNTERS, "no such counter");
        // SAFETY: inside the mapping, which cannot shrink, and aligned, because the mapping starts
        // at a page. All processes access these words only atomically.
        unsafe { AtomicU64::from_ptr(self.start().add(number)) }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;

    #[test]
    fn a_purge_in_one_mapping_is_seen_in_the_other() {
        let (ours, fd) = PurgeCounters::create().unwrap();
        let theirs = PurgeCounters::open(&fd).unwrap();
        theirs.purge(b"post-1");
        theirs.purge_everything();
        let seen = |number| ours.counter(number).load(Ordering::SeqCst);
        assert_eq!([TOTAL, EVERYTHING, counter_of(b"post-1")].map(seen), [2, 1, 1]);
        assert_eq!(seen(counter_of(b"post-2")), 0);
        theirs.purge_all_tags();
        assert_eq!([TOTAL, EVERYTHING, counter_of(b"post-1")].map(seen), [3, 1, 2]);
        assert_eq!(seen(counter_of(b"post-2")), 1);
    }

    #[test]
    fn memory_that_another_process_could_shrink_is_not_mapped() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("test", flags).unwrap();
        ftruncate(&fd, LEN as u64).unwrap();
        assert!(PurgeCounters::open(&fd).is_err());
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        assert!(PurgeCounters::open(&fd).is_ok());
    }
}
