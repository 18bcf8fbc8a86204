//! Folders without a `.htaccess` file in them or above them. For paths in such a folder the site
//! skips the evaluation of `.htaccess` files and only checks for changes.

use std::cell::{Cell, RefCell};
use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;

use super::files::SiteFiles;
use super::outcomes::{MAX_AGE, now};
use super::watcher::{Watch, Watcher};
use crate::router::Router;

/// Most folders that an event loop remembers for all its sites.
const MAX_FOLDERS: NonZeroUsize = NonZeroUsize::new(2048).expect("not zero");

/// Most bytes of a path whose folder is remembered. Longer paths are looked at each time.
const MAX_PATH: usize = 512;

/// The folders that an event loop remembers.
#[derive(Debug)]
pub(super) struct Presence(RefCell<LruCache<Folder, Absent>>);

/// A folder of a site: the number of the site's rules, and the site's path up to its last slash.
type Folder = (u64, Box<[u8]>);

/// No `.htaccess` file is in a folder or above it.
#[derive(Debug)]
struct Absent {
    watches: Vec<Watch>,
    /// The watcher's count at the last check without changes.
    unchanged_at: Cell<u64>,
    /// Time of the last look.
    made: Duration,
}

impl Presence {
    pub(super) fn new() -> Self {
        Self(RefCell::new(LruCache::new(MAX_FOLDERS)))
    }

    /// True if a `.htaccess` file is now in a folder on the way to the path.
    pub(super) fn is_any(
        &self,
        site: u64,
        router: &Router,
        watcher: &Watcher,
        path: &[u8],
    ) -> bool {
        let end = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let (count, folder) = (watcher.now(), &path[..end]);
        if let Some(count) = count
            && self.is_absent(site, folder, watcher, count)
        {
            return false;
        }
        let files = SiteFiles::new(router, watcher);
        if files.are_on_the_way(folder) {
            return true;
        }
        if let Some((count, watches)) = count.zip(files.watches())
            && folder.len() <= MAX_PATH
        {
            let absent = Absent { watches, unchanged_at: Cell::new(count), made: now() };
            self.0.borrow_mut().put((site, folder.into()), absent);
        }
        false
    }

    fn is_absent(&self, site: u64, folder: &[u8], watcher: &Watcher, count: u64) -> bool {
        let mut known = self.0.borrow_mut();
        let Some(known) = known.get(&(site, folder.into())) else { return false };
        if known.unchanged_at.get() != count {
            if !watcher.are_unchanged(&known.watches, known.unchanged_at.get()) {
                return false;
            }
            known.unchanged_at.set(count);
        }
        now().saturating_sub(known.made) < MAX_AGE
    }
}
