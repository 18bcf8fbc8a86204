//! Knowing that one is a forked child, without a system call.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::epoch;

static FORKS: AtomicU32 = AtomicU32::new(0);
static REGISTER: Once = Once::new();

/// How often the process has been forked off since the first call: a value kept from before differs in a child.
/// Async-signal-safe from the second call on.
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
