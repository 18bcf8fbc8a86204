//! Detects without a system call that the process is a forked child.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::epoch;

static FORKS: AtomicU32 = AtomicU32::new(0);
static REGISTER: Once = Once::new();

/// The number of forks between the process of the first call and this one: the value in a child
/// differs from its parent's. Async-signal-safe from the second call on.
#[must_use]
pub fn generation() -> u32 {
    REGISTER.call_once(|| {
        // SAFETY: the handler only adds to an atomic, which is async-signal-safe.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
    FORKS.load(Ordering::Relaxed)
}

unsafe extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    epoch::advance();
}
