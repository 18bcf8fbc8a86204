//! Purges of the store, by this front and by others.

use std::sync::Arc;

use super::PageCache;
use super::index::Purged;
use crate::page::Page;
use crate::purge::{Purge, PurgeCount};

/// Most pages whose files are removed on the calling thread.
const FEW: usize = 4;

impl PageCache {
    /// The point in time of a request to the application: its response reflects all purges so far.
    pub fn begun(&self) -> PurgeCount {
        let mut index = self.lock();
        let gone = index.hear();
        let begun = index.purges.so_far();
        drop(index);
        self.remove_soon(gone);
        begun
    }

    /// Forgets pages, including pages that are being made, because a request or the operator wants
    /// it. Returns the number of kept pages that are gone, or that are old now. Unless one address
    /// is meant, it looks at every page.
    pub fn purge(&self, purge: &Purge) -> usize {
        if let Some(listener) = self.listener.get() {
            listener.note(purge);
        }
        self.obey(purge)
    }

    /// The same because of others, who know of the purge.
    pub fn obey(&self, purge: &Purge) -> usize {
        let mut index = self.lock();
        let heard = index.tell(purge);
        let count = if purge.is_stale() || !purge.is_wide() {
            let Purged { gone, stale } = index.purge(purge);
            drop(index);
            gone.iter().for_each(|gone| self.folder.remove(gone));
            gone.len() + stale
        } else {
            index.purges.note(purge.clone());
            let all: Vec<_> = index.pages.iter().flat_map(|(_, pages)| pages.clone()).collect();
            // The lock is released here: event loops need the pages meanwhile.
            drop(index);
            let concerned = all.into_iter().filter(|page| purge.concerns(&page.purge_subject()));
            let take = |page: Arc<Page>| {
                self.lock().take(&page.key().hash(), |known| std::ptr::eq(known, &*page))
            };
            concerned.flat_map(take).inspect(|gone| self.folder.remove(gone)).count()
        };
        self.remove_soon(heard);
        self.watchers.note(purge, count);
        count
    }

    /// Removes the files of pages; if there are many, on a thread that may wait for the disk.
    fn remove_soon(&self, pages: Vec<Arc<Page>>) {
        if pages.is_empty() {
            return;
        }
        let (folder, is_few) = (self.folder.clone(), pages.len() <= FEW);
        let remove = move || pages.iter().for_each(|page| folder.remove(page));
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if !is_few => drop(runtime.spawn_blocking(remove)),
            _ => remove(),
        }
    }
}
