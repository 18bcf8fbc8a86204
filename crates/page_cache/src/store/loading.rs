//! The pages that earlier processes have left in the folder.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;

use super::PageCache;
use super::folder::{is_being_written, is_damage, is_facts};
use crate::journal::{Journal, Past};
use crate::purge::PurgeCount;

/// Age above which an unfinished file may be removed, unless its lock is held.
pub(super) const WRITTEN_BY_NOW: Duration = Duration::from_secs(60);

/// Longest time for which the folder is not read, because others may have purged its pages.
const HELD_FOR: Duration = Duration::from_secs(3);

impl PageCache {
    /// Reads the folder on a thread of its own, once.
    pub fn start(self: &Arc<Self>, limit: u64) {
        if self.is_loaded.swap(true, Ordering::Relaxed) {
            return;
        }
        // Noted before the journal is read: later purges also concern the pages of the folder.
        let begun = self.begun();
        let past = match Journal::open(self.folder.path()) {
            Ok((journal, past)) => {
                self.lock().journal = Some(journal);
                past
            }
            Err(error) => {
                let folder = self.folder.path().display();
                tracing::warn!(%error, %folder, "purges of another server with this folder are not known");
                Past::default()
            }
        };
        let cache = Arc::clone(self);
        let read = move || {
            let folder = cache.folder.path().display();
            match cache.load(limit, begun, &past) {
                Ok(pages) => tracing::info!(pages, %folder, "kept pages have been read"),
                Err(error) => tracing::warn!(%error, %folder, "kept pages cannot be read"),
            }
            cache.watchers.note_read();
        };
        let may_read = self.may_read.get().cloned();
        tokio::spawn(async move {
            if let Some(mut may_read) = may_read {
                // The sender ends with the server.
                let _ = timeout(HELD_FOR, may_read.wait_for(|may_read| *may_read)).await;
            }
            tokio::task::spawn_blocking(read);
        });
    }

    /// True once the folder is being read: pages may be kept.
    pub fn is_in_use(&self) -> bool {
        self.is_loaded.load(Ordering::Relaxed)
    }

    /// Reads the pages that earlier processes have left in the folder. Returns the number of keys
    /// with pages. Reads every body, so it may take long.
    pub(super) fn load(&self, limit: u64, begun: PurgeCount, past: &Past) -> io::Result<usize> {
        let (mut bodies, mut pages) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(self.folder.path())? {
            let name = entry?.file_name();
            let Some(name) = name.to_str().map(str::to_owned) else { continue };
            if is_facts(&name) {
                match self.folder.read_page(&name) {
                    // The page was unknown to the front that was asked to forget it, or that front
                    // has died.
                    Ok(page) if past.concerns(&page.purge_subject(), page.made()) => {
                        self.folder.remove(&page);
                    }
                    Ok(page) => pages.push((name, page)),
                    Err(error) if is_damage(&error) => {
                        let _ = fs::remove_file(self.folder.file(&name));
                    }
                    Err(_) => {}
                }
            } else if name.ends_with(".body") || name.ends_with(".new") {
                bodies.push(name);
            }
        }
        let of_pages: HashSet<_> = pages.iter().map(|(_, page)| &page.facts().body).collect();
        for name in bodies.iter().filter(|name| !of_pages.contains(name)) {
            let path = self.folder.file(name);
            // The file may belong to a page that is being written now.
            let modified = fs::metadata(&path).and_then(|file| file.modified());
            let age = modified.ok().and_then(|modified| modified.elapsed().ok());
            if age.is_some_and(|age| age > WRITTEN_BY_NOW) && !is_being_written(&path) {
                let _ = fs::remove_file(path);
            }
        }
        pages.sort_by_key(|(_, page)| page.made());
        for (name, page) in pages {
            // A page that has been made meanwhile is newer.
            if !self.lock().has(&page.key().hash(), &name) {
                self.insert(Arc::new(page), begun).iter().for_each(|gone| self.folder.remove(gone));
            }
        }
        for gone in self.make_room(limit) {
            self.folder.remove(&gone);
        }
        Ok(self.lock().pages.len())
    }
}
