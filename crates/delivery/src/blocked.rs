//! The memory that slow clients hold, so that the client with the most can be cut when memory runs
//! short.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::task::{Context, Waker};

use sendoff_report::limits::Limit;

use super::in_memory;

thread_local! {
    /// The clients of this event loop that do not take all bytes owed to them, by number.
    static BLOCKED: RefCell<BTreeMap<u64, Client>> = const { RefCell::new(BTreeMap::new()) };
    static LAST: Cell<u64> = const { Cell::new(0) };
    /// The most bytes that this event loop may hold in memory for clients.
    static MOST: Cell<usize> = const { Cell::new(usize::MAX) };
    /// Bytes held for clients that are to be cut but still exist.
    static DOOMED: Cell<usize> = const { Cell::new(0) };
}

#[derive(Debug)]
struct Client {
    queued: usize,
    waker: Waker,
    is_doomed: bool,
}

/// Sets the most bytes that the calling event loop may hold in memory for clients.
pub fn set_most(bytes: usize) {
    MOST.set(bytes);
}

/// Cuts the clients that hold the most memory, until the rest is within the limit.
pub(super) fn relieve() {
    while in_memory::held().saturating_sub(DOOMED.get()) > MOST.get() {
        let worst = BLOCKED.with_borrow_mut(|clients| {
            let living = clients.values_mut().filter(|client| !client.is_doomed);
            let worst = living.max_by_key(|client| client.queued).filter(|c| c.queued > 0)?;
            worst.is_doomed = true;
            DOOMED.set(DOOMED.get() + worst.queued);
            Some(worst.waker.clone())
        });
        match worst {
            Some(waker) => waker.wake(),
            // The memory is held by other queues: no slow client is left.
            None => return,
        }
    }
}

/// A client that does not take all bytes owed to it.
#[derive(Debug)]
pub(super) struct Blocked(u64);

impl Blocked {
    pub(super) fn new() -> Self {
        LAST.set(LAST.get() + 1);
        Self(LAST.get())
    }

    /// Notes that the client waits with `queued` bytes in memory.
    ///
    /// # Errors
    /// `OutOfMemory`: too much memory is held, and this client holds the most.
    pub(super) fn wait(&self, queued: usize, cx: &Context<'_>) -> io::Result<()> {
        let is_doomed = BLOCKED.with_borrow_mut(|clients| match clients.get_mut(&self.0) {
            Some(client) if client.is_doomed => true,
            Some(client) => {
                client.queued = queued;
                client.waker.clone_from(cx.waker());
                false
            }
            None => {
                let client = Client { queued, waker: cx.waker().clone(), is_doomed: false };
                clients.insert(self.0, client);
                false
            }
        });
        if is_doomed {
            Limit::QueuedBytes.reached();
            let why = "no other client held as much memory, and there was too little of it";
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, why));
        }
        Ok(())
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let client = BLOCKED.with_borrow_mut(|clients| clients.remove(&self.0));
        if let Some(client) = client.filter(|client| client.is_doomed) {
            DOOMED.set(DOOMED.get() - client.queued);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::super::in_memory::InMemory;
    use super::*;

    #[derive(Default)]
    struct BlockedCount(AtomicUsize);

    impl Wake for BlockedCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_client_that_holds_most_goes_first_and_no_more_than_needed() {
        let clients: Vec<_> = [30, 50, 10, 40]
            .map(|bytes| {
                let (mut memory, count) = (InMemory::default(), Arc::new(BlockedCount::default()));
                memory.add(bytes);
                (memory, Blocked::new(), Waker::from(Arc::clone(&count)), count)
            })
            .into();
        let waits = |number: usize| {
            let (memory, blocked, waker, _) = &clients[number];
            blocked.wait(memory.bytes(), &Context::from_waker(waker))
        };
        (0..4).for_each(|number| waits(number).unwrap());
        let woken = || clients.iter().map(|(.., count)| count.0.load(Ordering::Relaxed));
        set_most(130);
        relieve();
        assert_eq!(woken().sum::<usize>(), 0, "there is no more than there may be");
        set_most(80);
        relieve();
        relieve();
        assert_eq!(woken().collect::<Vec<_>>(), [0, 1, 0, 0]);
        assert_eq!(waits(1).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        waits(3).unwrap();
        set_most(39);
        relieve();
        assert_eq!(woken().collect::<Vec<_>>(), [1, 1, 0, 1]);
        waits(2).unwrap();
        drop(clients);
        assert_eq!((DOOMED.get(), in_memory::held()), (0, 0));
        assert!(BLOCKED.with_borrow(BTreeMap::is_empty));
    }
}
