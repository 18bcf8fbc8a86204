//! Robust mutexes that processes share, and their clock.

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use libc::{
    CLOCK_MONOTONIC, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ROBUST, PTHREAD_PROCESS_SHARED,
    clockid_t, pthread_mutex_t, timespec,
};
use rustix::io::Errno;

unsafe extern "C" {
    /// POSIX.1-2024; in glibc since 2.30.
    fn pthread_mutex_clocklock(
        lock: *mut pthread_mutex_t,
        clock: clockid_t,
        until: *const timespec,
    ) -> i32;
}

/// Milliseconds of `CLOCK_MONOTONIC`.
pub(super) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or_default();
    u64::try_from(now.tv_sec).unwrap_or_default() * 1000 + nanos / 1_000_000
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 4)
}

pub(super) fn make_lock(lock: *mut pthread_mutex_t) -> io::Result<()> {
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
pub(super) fn lock_until(lock: *mut pthread_mutex_t, deadline: u64) -> i32 {
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
