//! The bytes in memory that are owed to clients.

use std::cell::Cell;

/// Memory counts as short if the queues of an event loop keep this number of bytes; each queue may
/// keep less then. 1,000 clients that do not take pages of 200 KB cost 100 MB then instead of 200.
pub(super) const LOOP_LIMIT: usize = 32 << 20;

thread_local! {
    /// Bytes that the send queues of this event loop keep in memory, including bytes that protocols
    /// have taken out and not sent yet.
    static IN_MEMORY: Cell<usize> = const { Cell::new(0) };
}

thread_local! {
    /// Bytes that the spools of this event loop have gathered and not written to disk yet.
    static GATHERED: Cell<usize> = const { Cell::new(0) };
}

/// Bytes that one spool has gathered, included in the event loop's sum.
#[derive(Debug, Default)]
pub(super) struct Gathered(usize);

impl Gathered {
    pub(super) fn set(&mut self, bytes: usize) {
        GATHERED.set(GATHERED.get() + bytes - self.0);
        self.0 = bytes;
    }

    pub(super) fn bytes(&self) -> usize {
        self.0
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Bytes that this event loop holds in memory for clients.
pub(super) fn held() -> usize {
    IN_MEMORY.get() + GATHERED.get()
}

/// Bytes of one queue in memory, included in the event loop's sum.
#[derive(Debug, Default)]
pub(super) struct InMemory(usize);

impl InMemory {
    pub(super) fn add(&mut self, bytes: usize) {
        self.0 += bytes;
        IN_MEMORY.set(IN_MEMORY.get() + bytes);
    }

    pub(super) fn remove(&mut self, bytes: usize) {
        self.0 -= bytes;
        IN_MEMORY.set(IN_MEMORY.get() - bytes);
    }

    pub(super) fn bytes(&self) -> usize {
        self.0
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        self.remove(self.0);
    }
}

/// Bytes in memory of all queues of this event loop.
#[cfg(test)]
pub(super) fn of_this_loop() -> usize {
    IN_MEMORY.get()
}

/// True if the queues of this event loop hold too much memory, so that each should keep less.
pub fn is_short() -> bool {
    IN_MEMORY.get() >= LOOP_LIMIT
}
