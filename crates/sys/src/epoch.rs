//! A counter that tells a thread, without a lock, that facts it learned under a lock may be
//! outdated.

use std::sync::atomic::{AtomicU32, Ordering};

static EPOCH: AtomicU32 = AtomicU32::new(0);

/// Marks all facts that were learned before as possibly outdated. Async-signal-safe.
pub fn advance() {
    EPOCH.fetch_add(1, Ordering::Release);
}

/// The counter. Read it with acquire ordering, before the facts that it guards.
#[must_use]
pub fn number() -> &'static AtomicU32 {
    &EPOCH
}
