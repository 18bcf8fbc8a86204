//! A number that tells without a lock whether what was found out under one may have become untrue.

use std::sync::atomic::{AtomicU32, Ordering};

static EPOCH: AtomicU32 = AtomicU32::new(0);

/// Something of the process's past may not be true any more. Async-signal-safe.
pub fn advance() {
    EPOCH.fetch_add(1, Ordering::Release);
}

/// The number; it is to be read with acquire ordering, before one looks at what it stands for.
#[must_use]
pub fn number() -> &'static AtomicU32 {
    &EPOCH
}
