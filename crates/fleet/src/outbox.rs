//! Purges of this node that wait for the engine.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::record::MAX_PURGE;

/// Most purges that wait. Further ones make all of them one purge of everything.
const MOST: usize = 4096;

/// Most bytes of all of them.
const MOST_BYTES: usize = 8 << 20;

/// Most purges that are sent at once.
const BATCH: usize = 128;

/// Purges that wait. A purge waits once, however often it comes.
#[derive(Debug)]
pub struct Outbox {
    /// The purge that stands for all others.
    everything: Arc<[u8]>,
    inner: Mutex<Waiting>,
    filled: Notify,
    /// The first purge waits.
    begun: Notify,
    emptied: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    /// `false`: the node is alone.
    is_open: bool,
    purges: VecDeque<Arc<[u8]>>,
    bytes: usize,
    /// The purges that are not being sent.
    known: HashSet<Arc<[u8]>>,
    /// The number of purges that have left, or have been replaced.
    gone: u64,
}

/// Purges that are being sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) purges: Vec<Arc<[u8]>>,
    /// The number of purges that are gone once these have been sent.
    end: u64,
}

impl Outbox {
    /// `everything`: a purge of everything.
    #[must_use]
    pub fn new(everything: &[u8]) -> Self {
        let [filled, begun, emptied] = [(); 3].map(|()| Notify::new());
        Self { everything: everything.into(), inner: Mutex::default(), filled, begun, emptied }
    }

    /// Lets purges in, or keeps them out because the node is alone.
    pub fn open(&self, is_open: bool) {
        let mut waiting = self.lock();
        waiting.is_open = is_open;
        if !is_open {
            waiting.clear();
            drop(waiting);
            self.emptied.notify_waiters();
        }
    }

    /// True if the node is not alone.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.lock().is_open
    }

    /// Adds a purge. Never waits.
    pub fn push(&self, purge: &[u8]) {
        let mut waiting = self.lock();
        if !waiting.is_open {
            return;
        }
        let mut purge: Arc<[u8]> = purge.into();
        let is_full = waiting.purges.len() >= MOST || waiting.bytes + purge.len() > MOST_BYTES;
        if purge.len() > MAX_PURGE || is_full {
            purge = Arc::clone(&self.everything);
        }
        if waiting.known.contains(&self.everything) {
            // It is purged, too.
            return;
        }
        if purge == self.everything {
            waiting.clear();
        }
        if waiting.known.insert(Arc::clone(&purge)) {
            waiting.bytes += purge.len();
            waiting.purges.push_back(purge);
            let is_first = waiting.purges.len() == 1;
            drop(waiting);
            self.filled.notify_one();
            if is_first {
                self.begun.notify_one();
            }
        }
    }

    /// Adds a purge of everything.
    pub(crate) fn push_everything(&self) {
        self.push(&self.everything);
    }

    /// Completes once a purge waits. For one caller at a time.
    pub(crate) async fn is_unsent(&self) {
        while self.is_empty() {
            self.begun.notified().await;
        }
    }

    /// The number of purges that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().purges.len()
    }

    /// True if no purge waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Completes once no purge waits.
    pub async fn is_sent(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    /// Waits for purges. They stay until they have been [`sent`](Self::sent); purges that come from
    /// now on are sent even if they are the same.
    pub(crate) async fn next(&self) -> Batch {
        loop {
            {
                let mut waiting = self.lock();
                let purges: Vec<_> = waiting.purges.iter().take(BATCH).cloned().collect();
                if !purges.is_empty() {
                    for purge in &purges {
                        waiting.known.remove(purge);
                    }
                    let end = waiting.gone + purges.len() as u64;
                    return Batch { purges, end };
                }
            }
            self.filled.notified().await;
        }
    }

    /// Removes purges that have been sent.
    pub(crate) fn sent(&self, batch: &Batch) {
        let mut waiting = self.lock();
        while waiting.gone < batch.end
            && let Some(purge) = waiting.purges.pop_front()
        {
            waiting.gone += 1;
            waiting.bytes -= purge.len();
        }
        let is_empty = waiting.purges.is_empty();
        drop(waiting);
        if is_empty {
            self.emptied.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn clear(&mut self) {
        self.gone += self.purges.len() as u64;
        self.purges.clear();
        self.known.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbox() -> Outbox {
        let outbox = Outbox::new(b"everything");
        outbox.open(true);
        outbox
    }

    fn purges(outbox: &Outbox) -> Vec<String> {
        let waiting = outbox.lock();
        waiting.purges.iter().map(|purge| String::from_utf8_lossy(purge).into_owned()).collect()
    }

    #[tokio::test]
    async fn a_purge_waits_until_it_has_been_sent() {
        let outbox = outbox();
        ["a", "b", "a"].iter().for_each(|purge| outbox.push(purge.as_bytes()));
        assert_eq!(purges(&outbox), ["a", "b"]);
        let batch = outbox.next().await;
        // It comes while the engine is being told of the first one, which may have been before the
        // page was made.
        outbox.push(b"a");
        outbox.push(b"a");
        assert_eq!(purges(&outbox), ["a", "b", "a"]);
        outbox.sent(&batch);
        assert_eq!(purges(&outbox), ["a"]);
        assert_eq!(outbox.next().await, outbox.next().await, "it was not sent");
    }

    #[tokio::test]
    async fn too_many_purges_are_one_of_everything() {
        let outbox = outbox();
        outbox.push(b"first");
        let batch = outbox.next().await;
        (0..MOST + 5).for_each(|number| outbox.push(number.to_string().as_bytes()));
        assert_eq!(purges(&outbox), ["everything"]);
        outbox.sent(&batch);
        assert_eq!(purges(&outbox), ["everything"], "it came after the batch");
        outbox.push(b"covered");
        assert_eq!(purges(&outbox), ["everything"]);
        outbox.sent(&outbox.next().await);
        outbox.push(&vec![b'x'; MAX_PURGE + 1]);
        assert_eq!(purges(&outbox), ["everything"]);
        outbox.sent(&outbox.next().await);
        let long = |number: usize| [number.to_string().as_bytes(), &[b'x'; 50_000]].concat();
        (0..MOST_BYTES / 50_000).for_each(|number| outbox.push(&long(number)));
        assert_eq!(outbox.len(), MOST_BYTES / 50_000);
        outbox.push(&long(MOST_BYTES));
        assert_eq!(outbox.len(), 1);
    }

    #[test]
    fn a_node_that_is_alone_keeps_nothing() {
        let outbox = outbox();
        outbox.push(b"a");
        outbox.open(false);
        outbox.push(b"b");
        assert!(outbox.is_empty());
    }
}
