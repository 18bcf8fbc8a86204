//! The pool's counters of purges (`sendoff_sys::purges`), for the C that keeps fragments.
#![allow(unsafe_code, reason = "functions for C")]

use std::ffi::c_char;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};

use sendoff_sys::purges::{PurgeCounters, counter_of};

/// Opened by the master when PHP starts; workers inherit the memory.
static COUNTERS: OnceLock<(PurgeCounters, OwnedFd)> = OnceLock::new();

/// The counters of the server, which earlier and later masters of the pool have, too.
static INHERITED: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// Takes the counters of the server, before PHP starts.
pub(crate) fn inherit(counters: OwnedFd) {
    *INHERITED.lock().unwrap_or_else(PoisonError::into_inner) = Some(counters);
}

/// The counters of the server, or new ones.
fn open() -> io::Result<(PurgeCounters, OwnedFd)> {
    let inherited = INHERITED.lock().unwrap_or_else(PoisonError::into_inner).take();
    match inherited {
        Some(fd) => Ok((PurgeCounters::open(&fd)?, fd)),
        None => PurgeCounters::create(),
    }
}

/// The descriptor of the counters, for the front. `None`: the pool keeps no fragments.
pub(crate) fn counters() -> Option<BorrowedFd<'static>> {
    COUNTERS.get().map(|(_, fd)| fd.as_fd())
}

/// Opens the counters. Returns their address, which is valid until the process ends, also in forked
/// children; NULL after an error.
#[unsafe(no_mangle)]
extern "C" fn sendoff_purges_open() -> *mut u64 {
    match open() {
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
