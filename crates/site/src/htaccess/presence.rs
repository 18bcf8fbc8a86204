//! Folders without a `.htaccess` file in them or above them. For paths in such a folder the site
//! skips the evaluation of `.htaccess` files and only checks for changes.

use std::cell::{Cell, RefCell};
use std::num::NonZeroUsize;
use std::time::Instant;

use lru::LruCache;
use sendoff_site_files::router::Router;

use super::files::SiteFiles;
use super::outcomes::MAX_AGE;
use super::watcher::{Watch, Watcher};

/// Most folders that an event loop remembers for all its sites.
const MAX_FOLDERS: NonZeroUsize = NonZeroUsize::new(2048).expect("not zero");

/// Most bytes of a path whose folder is remembered. Longer paths are looked at each time.
const MAX_PATH: usize = 512;

/// The folders that an event loop remembers.
#[derive(Debug)]
pub(super) struct Presence(RefCell<Known>);

#[derive(Debug)]
struct Known {
    folders: LruCache<Folder, Absent>,
    /// The folder that was looked up last. Its memory serves the next look-up.
    asked: Vec<u8>,
}

/// A folder of a site: 8 bytes with the number of the site's rules, and the site's path up to its
/// last slash.
type Folder = Box<[u8]>;

impl Known {
    fn of(&mut self, site: u64, folder: &[u8]) -> Option<&Absent> {
        self.asked.clear();
        self.asked.extend_from_slice(&site.to_ne_bytes());
        self.asked.extend_from_slice(folder);
        self.folders.get(&self.asked[..])
    }
}

/// No `.htaccess` file is in a folder or above it.
#[derive(Debug)]
struct Absent {
    watches: Vec<Watch>,
    /// The watcher's count at the last check without changes.
    unchanged_at: Cell<u64>,
    /// Time of the last look.
    made: Instant,
}

impl Presence {
    pub(super) fn new() -> Self {
        Self(RefCell::new(Known { folders: LruCache::new(MAX_FOLDERS), asked: Vec::new() }))
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
            let absent = Absent { watches, unchanged_at: Cell::new(count), made: Instant::now() };
            let folder = [&site.to_ne_bytes()[..], folder].concat();
            self.0.borrow_mut().folders.put(folder.into(), absent);
        }
        false
    }

    fn is_absent(&self, site: u64, folder: &[u8], watcher: &Watcher, count: u64) -> bool {
        // A longer path is not known, and must not leave its length in the memory for look-ups.
        if folder.len() > MAX_PATH {
            return false;
        }
        let mut known = self.0.borrow_mut();
        let Some(known) = known.of(site, folder) else { return false };
        if known.unchanged_at.get() != count {
            if !watcher.are_unchanged(&known.watches, known.unchanged_at.get()) {
                return false;
            }
            known.unchanged_at.set(count);
        }
        known.made.elapsed() < MAX_AGE
    }
}
