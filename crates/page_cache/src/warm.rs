//! The store as seen by the walk that makes pages before clients ask for them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{Notify, watch};

use super::purge::Purge;
use super::store::PageCache;

/// The part of `page_cache_size` that pages may take before a walk ends: warmed pages are not to
/// push out pages that clients want.
const FULL: (u64, u64) = (9, 10);

/// The tasks that are told about purges, and the state of the folder.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    of_sites: Mutex<Vec<(String, Weak<Notify>)>>,
    /// True once the folder has been read.
    is_read: watch::Sender<bool>,
}

impl Watchers {
    pub(super) fn note_read(&self) {
        self.is_read.send_replace(true);
    }

    /// Tells of a purge that has concerned `count` pages. A purge of everything is told of even if
    /// there was nothing: the operator wants the pages to be made anew.
    pub(super) fn note(&self, purge: &Purge, count: usize) {
        if count == 0 && *purge != Purge::Everything {
            return;
        }
        let site = purge.site();
        for (name, watcher) in &*self.lock() {
            if site.is_none_or(|site| site == name)
                && let Some(watcher) = watcher.upgrade()
            {
                watcher.notify_one();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(String, Weak<Notify>)>> {
        self.of_sites.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PageCache {
    /// Completes once the pages in the folder are known.
    pub async fn is_read(&self) {
        // The sender lives as long as the cache.
        let _ = self.watchers.is_read.subscribe().wait_for(|is_read| *is_read).await;
    }

    /// Is notified of purges that concern kept pages of a site, as long as the caller holds it.
    pub fn purges_of(&self, site: &str) -> Arc<Notify> {
        let watcher = Arc::new(Notify::new());
        let mut watchers = self.watchers.lock();
        watchers.retain(|(_, watcher)| watcher.strong_count() > 0);
        watchers.push((site.to_owned(), Arc::downgrade(&watcher)));
        watcher
    }

    /// True if further pages fit beside those that are kept.
    pub fn has_room(&self, limit: u64) -> bool {
        self.bytes() < limit / FULL.1 * FULL.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::PageAddress;

    #[tokio::test]
    async fn tasks_are_told_of_purges_that_concern_their_site() {
        let watchers = Watchers::default();
        let watcher = Arc::new(Notify::new());
        watchers.lock().push(("a".to_owned(), Arc::downgrade(&watcher)));
        let is_told = || {
            let mut told = std::pin::pin!(watcher.notified());
            told.as_mut().enable()
        };
        let beneath = Purge::Beneath(PageAddress::new("a.test", b"/"));
        for (purge, count, tells) in [
            (Purge::Everything, 0, true),
            (beneath.clone(), 0, false),
            (beneath, 1, true),
            (Purge::page("a", "a.test", b"/"), 1, true),
            (Purge::page("a", "a.test", b"/"), 0, false),
            (Purge::page("b", "a.test", b"/"), 1, false),
        ] {
            watchers.note(&purge, count);
            assert_eq!(is_told(), tells, "{purge:?} {count}");
        }
    }
}
