//! Where the pages are: a folder, and what this process knows of it.
//!
//! A page is two files: its body, under a name that is used once, and its facts, which name the body and its checksum. The facts come
//! last, by a rename, so a front that dies at any moment leaves a whole page or none. A new front reads the folder in a thread of its own,
//! checks every body, and removes what belongs to no page: after a loss of power files may have holes.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use lru::LruCache;
use sendoff_config::{Keeping, PageStore};

use super::flights::{Flight, Flights, Ticket};
use super::key::{Hash, Key};
use super::page::{Facts, Page};
use super::recorder::Made;
use crate::request::Request;
use crate::response::ResponseHead;

/// Pages with the same key that may be kept beside each other, because they vary with request fields.
const MOST_VARIANTS: usize = 32;

/// Bytes of a file with facts: more than a response head may have.
const MOST_FACTS: u64 = 1 << 20;

/// After this time a file is written, or nobody writes it any more.
const WRITTEN_BY_NOW: Duration = Duration::from_secs(60);

/// The pages that a front keeps.
#[derive(Debug)]
pub(crate) struct PageCache {
    folder: PathBuf,
    is_loaded: AtomicBool,
    flights: Arc<Flights>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    pages: LruCache<Hash, Vec<Arc<Page>>>,
    bytes: u64,
}

impl Inner {
    fn has(&self, hash: &Hash, name: &str) -> bool {
        self.pages.peek(hash).is_some_and(|pages| pages.iter().any(|page| page.name() == name))
    }
}

impl PageCache {
    /// The pages in a folder, which is read when [`start`](Self::start) is called.
    pub(crate) fn new(config: &PageStore) -> Arc<Self> {
        let inner = Mutex::new(Inner { pages: LruCache::unbounded(), bytes: 0 });
        let (folder, is_loaded) = (config.folder.clone(), AtomicBool::new(false));
        Arc::new(Self { folder, is_loaded, flights: Flights::new(), inner })
    }

    /// Reads the folder in a thread of its own, once.
    pub(crate) fn start(self: &Arc<Self>, limit: u64) {
        if self.is_loaded.swap(true, Ordering::Relaxed) {
            return;
        }
        let cache = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            let folder = cache.folder.display();
            match cache.load(limit) {
                Ok(pages) => tracing::info!(pages, %folder, "kept pages have been read"),
                Err(error) => tracing::warn!(%error, %folder, "kept pages cannot be read"),
            }
        });
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The page for a request. It counts as used now.
    pub(crate) fn find(&self, key: &Key, fields: &HeaderMap) -> Option<Arc<Page>> {
        let mut inner = self.lock();
        let pages = inner.pages.get(&key.hash())?;
        pages.iter().find(|page| page.is_for(key, fields)).cloned()
    }

    /// What a request does whose page is not there.
    pub(crate) fn fly(&self, key: &Key) -> Flight {
        self.flights.of(key)
    }

    /// Keeps a page. To be called on a thread that may wait for the disk.
    pub(crate) fn keep(&self, made: Made, limit: u64, ticket: Option<Ticket>) {
        let Made { mut facts, body } = made;
        facts.len = body.len() as u64;
        facts.crc = crc32fast::hash(&body);
        let kept = self.write_body(&body).and_then(|name| {
            facts.body = name;
            self.put(Page::new(facts), limit)
        });
        self.ends(kept, ticket);
    }

    /// Keeps a page for longer, because the application says that it is still valid.
    pub(crate) fn renew(
        &self,
        page: &Page,
        keeping: &Keeping,
        request: &Request,
        said: &ResponseHead,
    ) -> Option<Arc<Page>> {
        let renewed = page.still_valid(keeping, request, said, SystemTime::now())?;
        let renewed = Arc::new(renewed);
        self.insert(Arc::clone(&renewed));
        Some(renewed)
    }

    fn ends(&self, kept: io::Result<()>, ticket: Option<Ticket>) {
        if let Err(error) = &kept {
            let folder = self.folder.display();
            tracing::warn!(%error, %folder, "a page could not be kept");
        }
        if let Some(mut ticket) = ticket {
            ticket.ends(kept.is_ok());
        }
    }

    fn write_body(&self, body: &[u8]) -> io::Result<String> {
        let name = loop {
            let name = format!("{:016x}.body", fastrand::u64(..));
            let file = File::options()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(self.folder.join(&name));
            match file {
                Ok(mut file) => {
                    if let Err(error) = file.write_all(body) {
                        let _ = fs::remove_file(self.folder.join(&name));
                        return Err(error);
                    }
                    break name;
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        };
        Ok(name)
    }

    /// Writes the facts, so that the page exists, and makes room for it.
    fn put(&self, page: Page, limit: u64) -> io::Result<()> {
        let written = self.write_facts(&page);
        if written.is_err() {
            let _ = fs::remove_file(self.folder.join(&page.facts().body));
        }
        written?;
        for gone in self.insert(Arc::new(page)).into_iter().chain(self.make_room(limit)) {
            self.remove(&gone);
        }
        Ok(())
    }

    fn write_facts(&self, page: &Page) -> io::Result<()> {
        let (name, facts) = (self.folder.join(page.name()), serde_json::to_vec(page.facts())?);
        let new = self.folder.join(format!("{:016x}.new", fastrand::u64(..)));
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
        let written = file.write_all(&facts).and_then(|()| fs::rename(&new, name));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written
    }

    /// Adds a page. Returns those whose places it takes, and that are not itself with other facts.
    fn insert(&self, page: Arc<Page>) -> Vec<Arc<Page>> {
        let (hash, name) = (page.key().hash(), page.name());
        let mut inner = self.lock();
        inner.bytes += page.size();
        let pages = inner.pages.get_or_insert_mut(hash, Vec::new);
        let mut gone: Vec<_> = pages.extract_if(.., |known| known.name() == name).collect();
        pages.push(page);
        if pages.len() > MOST_VARIANTS {
            gone.push(pages.remove(0));
        }
        let body = pages.last().map(|page| page.facts().body.clone());
        inner.bytes -= gone.iter().map(|page| page.size()).sum::<u64>();
        drop(inner);
        gone.retain(|page| Some(&page.facts().body) != body.as_ref());
        gone
    }

    /// Takes the least recently used pages out until the others fit.
    fn make_room(&self, limit: u64) -> Vec<Arc<Page>> {
        let mut inner = self.lock();
        let mut gone = Vec::new();
        while inner.bytes > limit
            && let Some((_, pages)) = inner.pages.pop_lru()
        {
            inner.bytes -= pages.iter().map(|page| page.size()).sum::<u64>();
            gone.extend(pages);
        }
        gone
    }

    /// Removes the files of a page. Its facts go only if no newer page has their name.
    fn remove(&self, page: &Page) {
        let facts = self.folder.join(page.name());
        let is_its_own = read_facts(&facts).is_ok_and(|facts| facts.body == page.facts().body);
        if is_its_own {
            let _ = fs::remove_file(facts);
        }
        let _ = fs::remove_file(self.folder.join(&page.facts().body));
    }

    /// Forgets a page whose body is gone.
    pub(crate) fn forget(&self, page: &Page) {
        let hash = page.key().hash();
        let mut inner = self.lock();
        let Some(pages) = inner.pages.get_mut(&hash) else { return };
        let gone: u64 = pages
            .extract_if(.., |known| known.facts().body == page.facts().body)
            .map(|page| page.size())
            .sum();
        inner.bytes -= gone;
    }

    /// Reads what earlier processes have left in the folder. Returns how many keys have pages. It takes as long as it takes to read all of it.
    fn load(&self, limit: u64) -> io::Result<usize> {
        let (mut bodies, mut pages) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str().map(str::to_owned) else { continue };
            if is_facts(&name) {
                match self.read_page(&name) {
                    Ok(page) => pages.push((name, page)),
                    Err(_) => drop(fs::remove_file(self.folder.join(name))),
                }
            } else if name.ends_with(".body") || name.ends_with(".new") {
                bodies.push(name);
            }
        }
        let of_pages: HashSet<_> = pages.iter().map(|(_, page)| &page.facts().body).collect();
        for name in bodies.iter().filter(|name| !of_pages.contains(name)) {
            let path = self.folder.join(name);
            // It may belong to a page that is being written now.
            let modified = fs::metadata(&path).and_then(|file| file.modified());
            let age = modified.ok().and_then(|modified| modified.elapsed().ok());
            if age.is_some_and(|age| age > WRITTEN_BY_NOW) {
                let _ = fs::remove_file(path);
            }
        }
        for (name, page) in pages {
            // A page that has been made meanwhile is newer.
            if !self.lock().has(&page.key().hash(), &name) {
                self.insert(Arc::new(page));
            }
        }
        for gone in self.make_room(limit) {
            self.remove(&gone);
        }
        Ok(self.lock().pages.len())
    }

    fn read_page(&self, name: &str) -> io::Result<Page> {
        let facts = read_facts(&self.folder.join(name))?;
        // The name comes from a file: it must lead nowhere else.
        if facts.body.contains('/') || !facts.body.ends_with(".body") {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let body = fs::read(self.folder.join(&facts.body))?;
        let page = Page::new(facts);
        let facts = page.facts();
        let is_whole = body.len() as u64 == facts.len && crc32fast::hash(&body) == facts.crc;
        if is_whole && page.name() == name {
            Ok(page)
        } else {
            Err(io::ErrorKind::InvalidData.into())
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_facts(path: &Path) -> io::Result<Facts> {
    if fs::metadata(path)?.len() > MOST_FACTS {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// Whether a file of this name has facts: the hexadecimal digits of a hash.
fn is_facts(name: &str) -> bool {
    name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}
