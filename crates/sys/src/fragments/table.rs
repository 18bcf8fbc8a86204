//! The locked table: slots, and the log in which they find fragments.

use std::ptr;

use super::layout::{ALIGNMENT, LOG_AT, PROBES, Record, SLOTS, Slot};
use super::{Table, hash};

impl Table<'_> {
    /// The record at this place, and its start in the mapping; `None`: it has been overwritten, or
    /// there is none.
    pub(super) fn record(&self, at: u64) -> Option<(Record, usize)> {
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
    pub(super) fn bytes(&self, start: usize, len: u64) -> Option<Vec<u8>> {
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
    pub(super) fn slot_of(&self, key: &[u8]) -> Option<*mut Slot> {
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
    pub(super) fn slot_for(&self, key: &[u8]) -> *mut Slot {
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
    pub(super) fn allocate(&self, len: usize) -> (u64, usize) {
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
