//! The pool's counters of purges (`sendoff_sys::purges`), for the C that keeps fragments.
#![allow(unsafe_code, reason = "functions for C")]

use std::ffi::c_char;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use sendoff_sys::purges::{PurgeCounters, counter_of};

/// Made by the master when PHP starts; workers inherit the memory.
static COUNTERS: OnceLock<(PurgeCounters, OwnedFd)> = OnceLock::new();

/// The descriptor of the counters, for the front. `None`: the pool keeps no fragments.
pub(crate) fn counters() -> Option<BorrowedFd<'static>> {
    COUNTERS.get().map(|(_, fd)| fd.as_fd())
}

/// Makes the counters. Returns their address, which is valid until the process ends, also in forked
/// children; NULL after an error.
#[unsafe(no_mangle)]
extern "C" fn sendoff_purges_create() -> *mut u64 {
    match PurgeCounters::create() {
        Ok(counters) => COUNTERS.get_or_init(|| counters).0.start(),
        Err(_) => std::ptr::null_mut(),
    }
}

/// The number of the counter of the tag in `len` bytes at `tag`.
#[unsafe(no_mangle)]
extern "C" fn sendoff_purges_counter(tag: *const c_char, len: usize) -> u32 {
    // SAFETY: the caller passes a string.
    let tag = unsafe { std::slice::from_raw_parts(tag.cast(), len) };
    u32::try_from(counter_of(tag)).unwrap_or_default()
}
