//! The memory of the processes: a head, and the log behind it.

use libc::pthread_mutex_t;

/// Fragments that can be found.
pub(super) const SLOTS: usize = 4096;
/// Slots in which a fragment may stand.
pub(super) const PROBES: usize = 8;
/// Fragments that can be made at a time with others waiting for them.
pub(super) const SEATS: usize = 128;
/// The largest fragment, in bytes: copying it takes the lock for 0.1 ms.
pub const LARGEST: usize = 1 << 20;
/// The longest key in bytes.
pub const LONGEST_KEY: usize = 4096;
/// The most tags of a fragment.
pub const MOST_TAGS: usize = 64;
/// Labels of a fragment: its tags, its key, and the label of all fragments.
pub(super) const MOST_LABELS: usize = MOST_TAGS + 2;
/// Bounds of the size of the log. Several fragments of the largest size fit.
pub(super) const SIZES: std::ops::RangeInclusive<usize> = 8 << 20..=1 << 32;
/// Records begin at multiples of this.
pub(super) const ALIGNMENT: usize = 16;

/// The counters of a fragment's tags when it was begun.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Labels {
    pub(super) count: u32,
    pub(super) counters: [u32; MOST_LABELS],
    pub(super) seen: [u64; MOST_LABELS],
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Slot {
    pub(super) hash: u64,
    /// 0: the slot is free.
    pub(super) at: u64,
}

#[repr(C)]
pub(super) struct Seat {
    pub(super) held: pthread_mutex_t,
    /// Hash of the key whose fragment its holder makes; 0: none. Changed under the table's lock.
    pub(super) hash: u64,
}

/// The beginning of a fragment in the log; the key and the bytes follow.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Record {
    /// Milliseconds of `CLOCK_MONOTONIC`.
    pub(super) fresh_until: u64,
    pub(super) stale_until: u64,
    pub(super) key_len: u64,
    pub(super) len: u64,
    pub(super) labels: Labels,
}

/// The beginning of the memory; the log follows at the next page.
#[repr(C)]
pub(super) struct Head {
    pub(super) lock: pthread_mutex_t,
    /// Bytes written to the log so far. Begins with its size, so that no place is 0.
    pub(super) written: u64,
    pub(super) slots: [Slot; SLOTS],
    pub(super) seats: [Seat; SEATS],
}

/// Start of the log.
pub(super) const LOG_AT: usize = size_of::<Head>().next_multiple_of(4096);
