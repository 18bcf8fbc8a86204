//! How much of what is owed to clients lies in memory.

use std::cell::Cell;

/// When the queues of an event loop keep this number of bytes in memory, memory is short: each may keep less. 1,000 clients that do not
/// take pages of 200 KB then cost 100 MB instead of 200.
pub(super) const LOOP_LIMIT: usize = 32 << 20;

thread_local! {
    /// Bytes that the send queues of this event loop keep in memory, and that protocols have taken out of them and not sent yet.
    static IN_MEMORY: Cell<usize> = const { Cell::new(0) };
}

thread_local! {
    /// Bytes that the spools of this event loop gather before they write them to disk.
    static GATHERED: Cell<usize> = const { Cell::new(0) };
}

/// Bytes that one spool gathers, counted among those of the event loop.
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

/// Bytes of one queue in memory, counted among those of the event loop.
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

/// Bytes of all queues of this event loop.
#[cfg(test)]
pub(super) fn of_this_loop() -> usize {
    IN_MEMORY.get()
}

/// Whether the queues of this event loop keep so much that each should keep less.
pub fn is_short() -> bool {
    IN_MEMORY.get() >= LOOP_LIMIT
}
