//! The store of pages: a folder, and this process's index of it.
//!
//! A page is two files: its body, under a name that is used once, and its facts, which name the
//! body and its checksum. The facts are written last, by a rename, so a front that dies at any
//! moment leaves a whole page or none. A new front reads the folder on a thread of its own, checks
//! every body, and removes files that belong to no page: after a power failure files may have
//! holes.

mod folder;
mod index;
mod loading;
mod purging;

use std::fs;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use http::HeaderMap;
use sendoff_config::{Keeping, PageStore};
use sendoff_delivery::segment::{FileSegment, OpenFile, Segment};
use sendoff_message::request::Request;
use sendoff_message::response::ResponseHead;
use sendoff_report::seldom::Seldom;
use tempfile::NamedTempFile;
use tokio::sync::watch;

use super::bodies;
use super::flights::{Flight, Flights, MakePermit};
use super::key::{Hash, Key};
use super::lscache::LsCacheRequest;
use super::page::{Facts, Page, Renewed};
use super::purge::{Purge, PurgeCount};
use super::warm::Watchers;
use folder::{Folder, open};
use index::PageIndex;

/// Bytes of all pages that are being made.
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    /// In memory or in files.
    pub(super) all: AtomicU64,
    /// Handed over to a writer, but not written yet.
    pub(super) unwritten: AtomicU64,
}

/// The pages that a front keeps.
#[derive(Debug)]
pub struct PageCache {
    folder: Folder,
    is_loaded: AtomicBool,
    /// Pages that are being made.
    pub(super) unfinished: Unfinished,
    flights: Arc<Flights>,
    /// Limits log lines about pages that could not be kept.
    said: Seldom,
    pub(super) watchers: Watchers,
    /// Is told of the purges of this server.
    listener: OnceLock<Box<dyn PurgeListener>>,
    /// The folder is read once this is true, or after `HELD_FOR` (`loading.rs`).
    may_read: OnceLock<watch::Receiver<bool>>,
    index: Mutex<PageIndex>,
}

/// Is told of purges that this server has ordered, before it obeys them.
pub trait PurgeListener: std::fmt::Debug + Send + Sync {
    /// Takes note of a purge, without waiting for anything.
    fn note(&self, purge: &Purge);
}

impl PageCache {
    /// The pages in a folder. [`start`](Self::start) reads it.
    pub fn new(config: &PageStore) -> Arc<Self> {
        Arc::new(Self {
            folder: Folder::new(config.folder.clone()),
            is_loaded: AtomicBool::new(false),
            unfinished: Unfinished::default(),
            flights: Flights::new(),
            said: Seldom::new(),
            watchers: Watchers::default(),
            listener: OnceLock::new(),
            may_read: OnceLock::new(),
            index: Mutex::new(PageIndex::new()),
        })
    }

    /// Tells of the purges of this server from now on; and reads the folder once `may_read` is true,
    /// because others may have purged its pages. Counts once.
    pub fn join(&self, listener: Box<dyn PurgeListener>, may_read: watch::Receiver<bool>) {
        // A second call is a mistake that changes nothing.
        let _ = self.listener.set(listener);
        let _ = self.may_read.set(may_read);
    }

    /// Bytes of all pages.
    pub(super) fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Returns the page for a request and counts it as used now.
    pub fn find(&self, key: &Key, fields: &HeaderMap) -> Option<Arc<Page>> {
        let mut index = self.lock();
        let pages = index.pages.get(&key.hash())?;
        let pages = pages.iter().filter(|page| page.is_for(key, fields));
        // The newest page wins: the script may have changed the fields that its pages vary with
        // (RFC 9111 §4.1).
        pages.max_by_key(|page| page.made()).cloned()
    }

    /// The answer to a client: the head, and the body unless the client has it already or asks for
    /// a part. A page whose body is gone is forgotten.
    ///
    /// # Errors
    /// The file with the body is gone.
    pub fn answer(
        &self,
        page: &Page,
        request: &Request,
        now: SystemTime,
    ) -> io::Result<(ResponseHead, Option<Segment>)> {
        page.answer(|| self.body(page), request, now).inspect_err(|_| self.forget(page))
    }

    /// The body of a page.
    ///
    /// # Errors
    /// The file with the body is gone.
    pub fn body(&self, page: &Page) -> io::Result<Segment> {
        let Facts { body: name, len, .. } = page.facts();
        if *len <= bodies::MOST
            && let Some(body) = self.lock().bodies.get(name)
        {
            return Ok(Segment::Bytes(body));
        }
        let (mut file, found) = open(&self.folder.file(name))?;
        if found != *len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if *len > bodies::MOST {
            let file = OpenFile::new(file.into());
            return Ok(Segment::File(FileSegment { file, offset: 0, len: *len }));
        }
        let mut body = vec![0; usize::try_from(*len).map_err(io::Error::other)?];
        file.read_exact(&mut body)?;
        let body = Bytes::from(body);
        let mut index = self.lock();
        if index.still_has(page) {
            index.bodies.insert(name.clone(), body.clone());
        }
        Ok(Segment::Bytes(body))
    }

    /// A cache miss: the request makes the page, or waits for the request that already makes the
    /// same variant. The request fields that distinguish variants are known from earlier pages with
    /// this key.
    pub fn fly(&self, key: &Key, fields: &HeaderMap) -> Flight {
        self.flights.of(self.flight_hash(key, fields))
    }

    /// Stands for the page that a request makes.
    pub(super) fn flight_hash(&self, key: &Key, fields: &HeaderMap) -> Hash {
        let known = self.lock().pages.peek(&key.hash()).and_then(|pages| {
            let newest = pages.iter().max_by_key(|page| page.made())?;
            Some(newest.variant_for(fields))
        });
        known.unwrap_or_else(|| key.hash())
    }

    /// Adds the cookies that other pages with this key vary with: what one page says of a cookie
    /// counts for all.
    pub(super) fn add_cookies(&self, key: &Key, names: &mut Vec<String>) {
        let index = self.lock();
        let pages = index.pages.peek(&key.hash()).into_iter().flatten();
        names.extend(pages.flat_map(|page| page.cookies()));
        drop(index);
        names.sort_unstable();
        names.dedup();
    }

    /// Keeps a page whose body is written.
    pub(super) fn keep(
        &self,
        mut facts: Facts,
        body: NamedTempFile,
        begun: PurgeCount,
        limit: u64,
    ) -> io::Result<()> {
        // The file stays open, and so locked, until it belongs to a page.
        let (_open, path) = body.keep()?;
        facts.body = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.put(Page::new(facts), begun, limit)
    }

    /// Returns the page with new lifetimes, because the application says that it is still valid;
    /// true if the page is kept longer.
    pub fn renew(
        &self,
        page: &Page,
        begun: PurgeCount,
        keeping: &Keeping,
        lscache: Option<&LsCacheRequest>,
        said: &ResponseHead,
    ) -> (Arc<Page>, bool) {
        match page.still_valid(keeping, lscache, said, SystemTime::now()) {
            Renewed::Kept(renewed) => {
                let renewed = Arc::new(renewed);
                let mut index = self.lock();
                if !index.still_has(page) {
                    return (renewed, false);
                }
                let gone = index.insert(Arc::clone(&renewed), begun);
                drop(index);
                gone.iter().for_each(|gone| self.folder.remove(gone));
                (renewed, true)
            }
            Renewed::ForOne(renewed) => (Arc::new(renewed), false),
        }
    }

    /// Forgets a page that may no longer be kept, and removes its files.
    pub fn drop_page(&self, page: &Page) {
        self.forget(page);
        self.folder.remove(page);
    }

    /// Forgets `last` and the pages before it that these request fields lead to, because the
    /// application no longer answers with any of them. Removes their files.
    pub(super) fn drop_up_to(&self, last: &Page, fields: &HeaderMap) {
        let key = last.key();
        self.drop_until(last, |page| page.is_for(&key, fields));
    }

    /// Forgets the pages whose place `made` would have taken, and removes their files: it is newer,
    /// but could not be kept.
    pub(super) fn drop_older(&self, made: &Page) {
        let name = made.name();
        self.drop_until(made, |page| page.name() == name);
    }

    /// Forgets the pages with the key of `last` that are not younger, as far as `concerns` says so,
    /// and removes their files.
    fn drop_until(&self, last: &Page, concerns: impl Fn(&Page) -> bool) {
        let is_old = |page: &Page| page.made() <= last.made() && concerns(page);
        let dropped = self.lock().take(&last.key().hash(), is_old);
        dropped.iter().for_each(|page| self.folder.remove(page));
    }

    /// Logs that a page could not be kept, unless a similar line was logged a moment ago.
    pub(super) fn note_failure(&self, error: &io::Error) {
        if self.said.is_due() {
            let folder = self.folder.path().display();
            tracing::warn!(%error, %folder, "a page could not be kept");
        }
    }

    pub(super) fn ends(&self, kept: io::Result<()>, permit: Option<MakePermit>) {
        if let Err(error) = &kept {
            self.note_failure(error);
        }
        if let Some(mut permit) = permit {
            permit.ends(kept.is_ok());
        }
    }

    /// Creates a file for a body, with a unique name.
    pub(super) fn new_body(&self) -> io::Result<NamedTempFile> {
        self.folder.new_body()
    }

    /// Writes the facts, with which the page exists, and makes room for it.
    fn put(&self, page: Page, begun: PurgeCount, limit: u64) -> io::Result<()> {
        let written = self.folder.write_facts(&page);
        if written.is_err() {
            let _ = fs::remove_file(self.folder.file(&page.facts().body));
        }
        written?;
        for gone in self.insert(Arc::new(page), begun).into_iter().chain(self.make_room(limit)) {
            self.folder.remove(&gone);
        }
        Ok(())
    }

    /// Adds a page. Returns the pages whose files are to be removed.
    fn insert(&self, page: Arc<Page>, begun: PurgeCount) -> Vec<Arc<Page>> {
        self.lock().insert(page, begun)
    }

    /// Takes the least recently used pages out until the others fit beside the pages that are being
    /// made.
    fn make_room(&self, limit: u64) -> Vec<Arc<Page>> {
        let limit = limit.saturating_sub(self.unfinished.all.load(Ordering::Relaxed));
        let mut index = self.lock();
        let mut gone = Vec::new();
        while index.bytes > limit
            && let Some(pages) = index.take_oldest()
        {
            gone.extend(pages);
        }
        gone
    }

    fn forget(&self, page: &Page) {
        let is_its = |known: &Page| known.facts().body == page.facts().body;
        self.lock().take(&page.key().hash(), is_its);
    }

    fn lock(&self) -> MutexGuard<'_, PageIndex> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
