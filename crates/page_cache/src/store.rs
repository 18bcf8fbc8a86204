//! The store of pages: a folder, and this process's index of it.
//!
//! A page is two files: its body, under a name that is used once, and its facts, which name the
//! body and its checksum. The facts are written last, by a rename, so a front that dies at any
//! moment leaves a whole page or none. A new front reads the folder on a thread of its own, checks
//! every body, and removes files that belong to no page: after a power failure files may have
//! holes.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::HeaderMap;
use lru::LruCache;
use rustix::fs::{FlockOperation, flock};
use sendoff_config::{Keeping, PageStore};
use sendoff_delivery::segment::{FileSegment, OpenFile, Segment};
use sendoff_message::request::Request;
use sendoff_message::response::ResponseHead;
use sendoff_report::seldom::Seldom;
use tempfile::{Builder, NamedTempFile};
use tokio::sync::watch;
use tokio::time::timeout;

use super::bodies::{self, Bodies};
use super::flights::{Flight, Flights, MakePermit};
use super::journal::{Journal, Past};
use super::key::{Hash, Key};
use super::lscache::{LsCacheRequest, Places};
use super::page::{Facts, Page, Renewed, open};
use super::purge::{Purge, PurgeCount, Purges};
use super::warm::Watchers;

/// Most pages with the same key, which differ in the request fields that they vary with.
const MOST_VARIANTS: usize = 32;

/// Most bytes of a file with facts: more than a response head may have.
const MOST_FACTS: u64 = 1 << 20;

/// Most pages whose files are removed on the calling thread.
const FEW: usize = 4;

/// Letters and digits in a random file name.
const RANDOM_LETTERS: usize = 16;

/// Age above which an unfinished file may be removed, unless its lock is held.
const WRITTEN_BY_NOW: Duration = Duration::from_secs(60);

/// Longest time for which the folder is not read, because others may have purged its pages.
const HELD_FOR: Duration = Duration::from_secs(3);

/// The pages that a purge has concerned.
#[derive(Debug)]
struct Purged {
    /// The pages that are no longer kept. Their files are still there.
    gone: Vec<Arc<Page>>,
    /// The number of pages that are old now.
    stale: usize,
}

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
    folder: PathBuf,
    is_loaded: AtomicBool,
    /// Pages that are being made.
    pub(super) unfinished: Unfinished,
    flights: Arc<Flights>,
    /// Limits log lines about pages that could not be kept.
    said: Seldom,
    pub(super) watchers: Watchers,
    /// Is told of the purges of this server.
    listener: OnceLock<Box<dyn PurgeListener>>,
    /// The folder is read once this is true, or after [`HELD_FOR`].
    may_read: OnceLock<watch::Receiver<bool>>,
    inner: Mutex<StoreContents>,
}

/// Is told of purges that this server has ordered, before it obeys them.
pub trait PurgeListener: std::fmt::Debug + Send + Sync {
    /// Takes note of a purge, without waiting for anything.
    fn note(&self, purge: &Purge);
}

#[derive(Debug)]
struct StoreContents {
    /// Pages by the hash of their key. Each list has at least one page.
    pages: LruCache<Hash, Vec<Arc<Page>>>,
    bytes: u64,
    bodies: Bodies,
    /// For each key in `pages`: the hash of its address, and the hash of the key.
    addresses: BTreeSet<(Hash, Hash)>,
    /// For each key in `pages` and each tag of its pages: the hash of the tag, and of the key.
    tags: BTreeSet<(Hash, Hash)>,
    purges: Purges,
    /// `None`: the folder has not been opened, or its journal cannot be used.
    journal: Option<Journal>,
}

impl StoreContents {
    /// Takes out the pages that other fronts have purged.
    fn hear(&mut self) -> Vec<Arc<Page>> {
        let news = self.journal.as_mut().map(Journal::news);
        self.apply(news)
    }

    /// Tells other fronts of a purge, and takes out the pages that they have purged.
    fn tell(&mut self, purge: &Purge) -> Vec<Arc<Page>> {
        let news = self.journal.as_mut().map(|journal| journal.note(purge));
        self.apply(news)
    }

    /// Takes out the pages that other fronts have purged; all pages if the journal can no longer be
    /// used.
    fn apply(&mut self, news: Option<io::Result<Vec<Purge>>>) -> Vec<Arc<Page>> {
        let purges = news.unwrap_or_else(|| Ok(Vec::new())).unwrap_or_else(|error| {
            tracing::warn!(%error, "purges of other servers with the same page_cache_folder are not known");
            self.journal = None;
            vec![Purge::Everything]
        });
        purges.iter().flat_map(|purge| self.purge(purge).gone).collect()
    }

    /// Notes a purge and takes out the pages that it concerns.
    fn purge(&mut self, purge: &Purge) -> Purged {
        self.purges.note(purge.clone());
        let keys: Vec<Hash> = match purge {
            Purge::Page(address) => keys_at(&self.addresses, address.hash()).collect(),
            Purge::Named(named) => match named.places() {
                Places::At { tags, addresses } => {
                    let tagged = tags.into_iter().flat_map(|hash| keys_at(&self.tags, hash));
                    let addressed =
                        addresses.into_iter().flat_map(|hash| keys_at(&self.addresses, hash));
                    tagged.chain(addressed).collect()
                }
                Places::Everywhere => self.pages.iter().map(|(key, _)| *key).collect(),
            },
            Purge::Everything | Purge::Beneath(_) => {
                self.pages.iter().map(|(key, _)| *key).collect()
            }
        };
        let concerns = |page: &Page| purge.concerns(&page.purge_subject());
        if purge.is_stale() {
            // A page may stand at several tags and addresses.
            let keys: BTreeSet<_> = keys.into_iter().collect();
            let stale = keys.iter().map(|key| self.make_stale(key, concerns)).sum();
            return Purged { stale, gone: Vec::new() };
        }
        Purged { stale: 0, gone: keys.iter().flat_map(|key| self.take(key, concerns)).collect() }
    }

    /// Ends the time of pages, which are sent while they are made anew. Their files stay as they
    /// are: a front that reads them finds the purge in the journal. Returns the number of pages.
    fn make_stale(&mut self, hash: &Hash, concerns: impl Fn(&Page) -> bool) -> usize {
        let now = SystemTime::now();
        let pages = self.pages.peek_mut(hash).into_iter().flatten();
        let concerned = pages.filter(|page| concerns(page));
        concerned.map(|page| *page = Arc::new(page.as_stale(now))).count()
    }

    /// Adds a page, after the purges of other fronts. `begun` is the number of purges when the
    /// application was asked for the page; a page that a later purge concerns is not added. Returns
    /// the pages whose files are to be removed: purged pages, replaced pages with another body, and
    /// the page itself if it was not added.
    fn insert(&mut self, page: Arc<Page>, begun: PurgeCount) -> Vec<Arc<Page>> {
        let (hash, name, subject) = (page.key().hash(), page.name(), page.purge_subject());
        let mut gone = self.hear();
        let lacks = |page: &Page, names: &[String]| {
            let own = page.cookies();
            names.iter().any(|name| !own.contains(name))
        };
        let known = self.pages.peek(&hash).into_iter().flatten();
        // Another page has named a cookie since this one was begun. Its value is unknown here.
        let is_ambiguous = known.clone().any(|known| lacks(&page, &known.cookies()));
        if is_ambiguous || self.purges.concern(&subject, begun) {
            gone.push(page);
            return gone;
        }
        let cookies = &subject.labels.cookies;
        gone.extend(self.take(&hash, |known| lacks(known, cookies)));
        self.bytes += page.size();
        self.addresses.insert((subject.address.hash(), hash));
        self.tags.extend(subject.tag_hashes().map(|tag| (tag, hash)));
        let pages = self.pages.get_or_insert_mut(hash, Vec::new);
        let mut replaced: Vec<_> = pages.extract_if(.., |known| known.name() == name).collect();
        pages.push(page);
        if pages.len() > MOST_VARIANTS {
            replaced.push(pages.remove(0));
        }
        let body = pages.last().map(|page| page.facts().body.clone());
        self.bytes -= replaced.iter().map(|page| page.size()).sum::<u64>();
        self.untag(&hash, &replaced);
        replaced.retain(|page| Some(&page.facts().body) != body.as_ref());
        replaced.iter().for_each(|page| self.bodies.remove(&page.facts().body));
        gone.append(&mut replaced);
        gone
    }

    fn has(&self, hash: &Hash, name: &str) -> bool {
        self.pages.peek(hash).is_some_and(|pages| pages.iter().any(|page| page.name() == name))
    }

    /// True unless the page is gone or replaced.
    fn still_has(&self, page: &Page) -> bool {
        let is_it = |known: &Arc<Page>| known.facts().body == page.facts().body;
        self.pages.peek(&page.key().hash()).is_some_and(|pages| pages.iter().any(is_it))
    }

    /// Takes out the pages with this key for which `concerns` is true.
    fn take(&mut self, hash: &Hash, mut concerns: impl FnMut(&Page) -> bool) -> Vec<Arc<Page>> {
        // `get_mut()` would count as a use.
        let Some(pages) = self.pages.peek_mut(hash) else { return Vec::new() };
        let gone: Vec<_> = pages.extract_if(.., |page| concerns(page)).collect();
        if pages.is_empty() {
            self.pages.pop(hash);
        }
        self.uncount(hash, &gone);
        gone
    }

    /// Takes out the pages of the least recently used key.
    fn take_oldest(&mut self) -> Option<Vec<Arc<Page>>> {
        let (hash, gone) = self.pages.pop_lru()?;
        self.uncount(&hash, &gone);
        Some(gone)
    }

    /// Subtracts pages that were taken out.
    fn uncount(&mut self, hash: &Hash, gone: &[Arc<Page>]) {
        self.bytes -= gone.iter().map(|page| page.size()).sum::<u64>();
        gone.iter().for_each(|page| self.bodies.remove(&page.facts().body));
        self.untag(hash, gone);
        if let Some(page) = gone.first().filter(|_| !self.pages.contains(hash)) {
            self.addresses.remove(&(page.key().address().hash(), *hash));
        }
    }

    /// Takes the tags of pages that were taken out from the index, unless others with the same key
    /// have them.
    fn untag(&mut self, hash: &Hash, gone: &[Arc<Page>]) {
        let tags = |pages: &[Arc<Page>]| {
            let tags =
                pages.iter().flat_map(|page| page.purge_subject().tag_hashes().collect::<Vec<_>>());
            tags.collect::<HashSet<Hash>>()
        };
        let stay = self.pages.peek(hash).map(|pages| tags(pages)).unwrap_or_default();
        for tag in tags(gone).difference(&stay) {
            self.tags.remove(&(*tag, *hash));
        }
    }
}

impl PageCache {
    /// The pages in a folder. [`start`](Self::start) reads it.
    pub fn new(config: &PageStore) -> Arc<Self> {
        let inner = Mutex::new(StoreContents {
            pages: LruCache::unbounded(),
            bytes: 0,
            bodies: Bodies::default(),
            addresses: BTreeSet::new(),
            tags: BTreeSet::new(),
            purges: Purges::default(),
            journal: None,
        });
        Arc::new(Self {
            folder: config.folder.clone(),
            is_loaded: AtomicBool::new(false),
            unfinished: Unfinished::default(),
            flights: Flights::new(),
            said: Seldom::new(),
            watchers: Watchers::default(),
            listener: OnceLock::new(),
            may_read: OnceLock::new(),
            inner,
        })
    }

    /// Tells of the purges of this server from now on; and reads the folder once `may_read` is true,
    /// because others may have purged its pages. Counts once.
    pub fn join(&self, listener: Box<dyn PurgeListener>, may_read: watch::Receiver<bool>) {
        // A second call is a mistake that changes nothing.
        let _ = self.listener.set(listener);
        let _ = self.may_read.set(may_read);
    }

    /// Reads the folder on a thread of its own, once.
    pub fn start(self: &Arc<Self>, limit: u64) {
        if self.is_loaded.swap(true, Ordering::Relaxed) {
            return;
        }
        // Noted before the journal is read: later purges also concern the pages of the folder.
        let begun = self.begun();
        let past = match Journal::open(&self.folder) {
            Ok((journal, past)) => {
                self.lock().journal = Some(journal);
                past
            }
            Err(error) => {
                let folder = self.folder.display();
                tracing::warn!(%error, %folder, "purges of another server with this folder are not known");
                Past::default()
            }
        };
        let cache = Arc::clone(self);
        let read = move || {
            let folder = cache.folder.display();
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

    /// The point in time of a request to the application: its response reflects all purges so far.
    pub fn begun(&self) -> PurgeCount {
        let mut inner = self.lock();
        let gone = inner.hear();
        let begun = inner.purges.so_far();
        drop(inner);
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
        let mut inner = self.lock();
        let heard = inner.tell(purge);
        let count = if purge.is_stale() || !purge.is_wide() {
            let Purged { gone, stale } = inner.purge(purge);
            drop(inner);
            gone.iter().for_each(|gone| self.remove(gone));
            gone.len() + stale
        } else {
            inner.purges.note(purge.clone());
            let all: Vec<_> = inner.pages.iter().flat_map(|(_, pages)| pages.clone()).collect();
            // The lock is released here: event loops need the pages meanwhile.
            drop(inner);
            let concerned = all.into_iter().filter(|page| purge.concerns(&page.purge_subject()));
            let take = |page: Arc<Page>| {
                self.lock().take(&page.key().hash(), |known| std::ptr::eq(known, &*page))
            };
            concerned.flat_map(take).inspect(|gone| self.remove(gone)).count()
        };
        self.remove_soon(heard);
        self.watchers.note(purge, count);
        count
    }

    /// Bytes of all pages.
    pub(super) fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Returns the page for a request and counts it as used now.
    pub fn find(&self, key: &Key, fields: &HeaderMap) -> Option<Arc<Page>> {
        let mut inner = self.lock();
        let pages = inner.pages.get(&key.hash())?;
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
        let (mut file, found) = open(&self.folder.join(name))?;
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
        let mut inner = self.lock();
        if inner.still_has(page) {
            inner.bodies.insert(name.clone(), body.clone());
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
        let inner = self.lock();
        let pages = inner.pages.peek(&key.hash()).into_iter().flatten();
        names.extend(pages.flat_map(|page| page.cookies()));
        drop(inner);
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
                let mut inner = self.lock();
                if !inner.still_has(page) {
                    return (renewed, false);
                }
                let gone = inner.insert(Arc::clone(&renewed), begun);
                drop(inner);
                gone.iter().for_each(|gone| self.remove(gone));
                (renewed, true)
            }
            Renewed::ForOne(renewed) => (Arc::new(renewed), false),
        }
    }

    /// Forgets a page that may no longer be kept, and removes its files.
    pub fn drop_page(&self, page: &Page) {
        self.forget(page);
        self.remove(page);
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
        dropped.iter().for_each(|page| self.remove(page));
    }

    /// Logs that a page could not be kept, unless a similar line was logged a moment ago.
    pub(super) fn note_failure(&self, error: &io::Error) {
        if self.said.is_due() {
            let folder = self.folder.display();
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

    /// Creates a file for a body, with a unique name. Its lock tells other fronts that it is still
    /// being written.
    pub(super) fn new_body(&self) -> io::Result<NamedTempFile> {
        let file = self.new_file(".body")?;
        flock(file.as_file(), FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    }

    /// Creates a file with a random name, which is removed unless it is kept.
    fn new_file(&self, suffix: &str) -> io::Result<NamedTempFile> {
        Builder::new()
            .prefix("")
            .suffix(suffix)
            .rand_bytes(RANDOM_LETTERS)
            .tempfile_in(&self.folder)
    }

    /// Writes the facts, with which the page exists, and makes room for it.
    fn put(&self, page: Page, begun: PurgeCount, limit: u64) -> io::Result<()> {
        let written = self.write_facts(&page);
        if written.is_err() {
            let _ = fs::remove_file(self.folder.join(&page.facts().body));
        }
        written?;
        for gone in self.insert(Arc::new(page), begun).into_iter().chain(self.make_room(limit)) {
            self.remove(&gone);
        }
        Ok(())
    }

    fn write_facts(&self, page: &Page) -> io::Result<()> {
        let mut file = self.new_file(".new")?;
        file.write_all(&serde_json::to_vec(page.facts())?)?;
        file.persist(self.folder.join(page.name()))?;
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
        let mut inner = self.lock();
        let mut gone = Vec::new();
        while inner.bytes > limit
            && let Some(pages) = inner.take_oldest()
        {
            gone.extend(pages);
        }
        gone
    }

    /// Removes the files of pages; if there are many, on a thread that may wait for the disk.
    fn remove_soon(&self, pages: Vec<Arc<Page>>) {
        let (folder, is_few) = (self.folder.clone(), pages.len() <= FEW);
        let remove = move || pages.iter().for_each(|page| remove(&folder, page));
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if !is_few => drop(runtime.spawn_blocking(remove)),
            _ => remove(),
        }
    }

    /// Removes the files of a page. The facts stay if a newer page has their name.
    fn remove(&self, page: &Page) {
        remove(&self.folder, page);
    }

    fn forget(&self, page: &Page) {
        let is_its = |known: &Page| known.facts().body == page.facts().body;
        self.lock().take(&page.key().hash(), is_its);
    }

    /// Reads the pages that earlier processes have left in the folder. Returns the number of keys
    /// with pages. Reads every body, so it may take long.
    fn load(&self, limit: u64, begun: PurgeCount, past: &Past) -> io::Result<usize> {
        let (mut bodies, mut pages) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str().map(str::to_owned) else { continue };
            if is_facts(&name) {
                match self.read_page(&name) {
                    // The page was unknown to the front that was asked to forget it, or that front
                    // has died.
                    Ok(page) if past.concerns(&page.purge_subject(), page.made()) => {
                        self.remove(&page);
                    }
                    Ok(page) => pages.push((name, page)),
                    Err(error) if is_damage(&error) => {
                        let _ = fs::remove_file(self.folder.join(name));
                    }
                    Err(_) => {}
                }
            } else if name.ends_with(".body") || name.ends_with(".new") {
                bodies.push(name);
            }
        }
        let of_pages: HashSet<_> = pages.iter().map(|(_, page)| &page.facts().body).collect();
        for name in bodies.iter().filter(|name| !of_pages.contains(name)) {
            let path = self.folder.join(name);
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
                self.insert(Arc::new(page), begun).iter().for_each(|gone| self.remove(gone));
            }
        }
        for gone in self.make_room(limit) {
            self.remove(&gone);
        }
        Ok(self.lock().pages.len())
    }

    fn read_page(&self, name: &str) -> io::Result<Page> {
        let facts = read_facts(&self.folder.join(name))?;
        // The name comes from a file: it must not lead outside the folder.
        if facts.body.contains('/') || !facts.body.ends_with(".body") {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let page = Page::new(facts);
        let facts = page.facts();
        let (file, len) = open(&self.folder.join(&facts.body))?;
        if page.name() != name || !page.is_possible() || len != facts.len {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut body = Vec::new();
        file.take(len).read_to_end(&mut body)?;
        if body.len() as u64 == len && crc32fast::hash(&body) == facts.crc {
            Ok(page)
        } else {
            Err(io::ErrorKind::InvalidData.into())
        }
    }

    fn lock(&self) -> MutexGuard<'_, StoreContents> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The keys that an index has for a hash.
fn keys_at(index: &BTreeSet<(Hash, Hash)>, hash: Hash) -> impl Iterator<Item = Hash> {
    index.range((hash, [0; 20])..=(hash, [255; 20])).map(|(_, key)| *key)
}

fn remove(folder: &Path, page: &Page) {
    let facts = folder.join(page.name());
    let is_its_own = read_facts(&facts).is_ok_and(|facts| facts.body == page.facts().body);
    if is_its_own {
        let _ = fs::remove_file(facts);
    }
    let _ = fs::remove_file(folder.join(&page.facts().body));
}

fn read_facts(path: &Path) -> io::Result<Facts> {
    let (file, len) = open(path)?;
    if len > MOST_FACTS {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = Vec::new();
    file.take(len).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// True if a page is damaged or has lost its body. After other errors it may be readable later, for
/// example when descriptors are free.
fn is_damage(error: &io::Error) -> bool {
    error.raw_os_error().is_none() || error.kind() == io::ErrorKind::NotFound
}

/// True if a front is writing this body.
fn is_being_written(path: &Path) -> bool {
    let lock = |(file, _)| flock(file, FlockOperation::NonBlockingLockShared);
    matches!(open(path).map(lock), Ok(Err(_)))
}

/// True if the file contains facts: its name is the hexadecimal digits of a hash.
fn is_facts(name: &str) -> bool {
    name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;

    use http::{HeaderValue, StatusCode};
    use sendoff_config::{CacheDialect, PageStore};
    use tempfile::TempDir;

    use super::super::freshness::judge;
    use super::super::lscache::Labels;
    use super::super::page::facts;
    use super::*;
    use sendoff_message::request::sample::request;

    const KEEPING: Keeping = Keeping {
        fresh: Some(Duration::from_secs(60)),
        stale: None,
        cookies: false,
        dialect: CacheDialect::Http,
    };

    struct Store {
        folder: TempDir,
        cache: Arc<PageCache>,
    }

    impl Store {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let cache = PageCache::new(&PageStore { folder: folder.path().into(), size: 0 });
            Self { folder, cache }
        }

        /// Keeps a page for a request with these fields. The page varies with the fields that
        /// `vary` names.
        fn keep(&self, key: &Key, asked: &HeaderMap, vary: &'static str, limit: u64) {
            let mut request = request(None);
            request.headers = asked.clone();
            let mut head = ResponseHead::new(StatusCode::OK, None);
            head.field("Vary", vary);
            let now = SystemTime::now();
            let times = judge(&KEEPING, &head, now).unwrap();
            let mut facts = facts(key, &request, &head, times, Labels::default(), now);
            let begun = self.cache.begun();
            let mut file = self.cache.new_body().unwrap();
            file.write_all(b"body").unwrap();
            (facts.len, facts.crc) = (4, crc32fast::hash(b"body"));
            self.cache.keep(facts, file, begun, limit).unwrap();
        }

        fn bytes(&self) -> u64 {
            let files = fs::read_dir(self.folder.path()).unwrap();
            files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
        }

        /// Number of keys with pages in a front that starts with the same folder.
        fn read_again(&self) -> usize {
            let config = PageStore { folder: self.folder.path().into(), size: 0 };
            let cache = PageCache::new(&config);
            cache.load(u64::MAX, cache.begun(), &Past::default()).unwrap()
        }
    }

    /// Notes purges.
    #[derive(Debug, Default, Clone)]
    struct Noted(Arc<Mutex<Vec<Purge>>>);

    impl PurgeListener for Noted {
        fn note(&self, purge: &Purge) {
            self.0.lock().unwrap().push(purge.clone());
        }
    }

    #[test]
    fn others_are_told_of_purges_of_this_server_alone() {
        let (store, noted) = (Store::new(), Noted::default());
        store.cache.join(Box::new(noted.clone()), watch::channel(true).1);
        let own = Purge::page("s", "a.test", b"/own");
        store.cache.purge(&own);
        store.cache.obey(&Purge::page("s", "a.test", b"/others"));
        assert_eq!(*noted.0.lock().unwrap(), [own]);
    }

    /// Others may have purged the pages that an earlier process has left.
    #[tokio::test]
    async fn the_folder_is_read_once_it_may_be() {
        for is_purged in [false, true] {
            let store = Store::new();
            store.keep(&key("a"), &HeaderMap::new(), "", u64::MAX);
            let config = PageStore { folder: store.folder.path().into(), size: 0 };
            let cache = PageCache::new(&config);
            let (settle, may_read) = watch::channel(false);
            cache.join(Box::new(Noted::default()), may_read);
            cache.start(u64::MAX);
            let has = || cache.find(&key("a"), &HeaderMap::new()).is_some();
            if is_purged {
                cache.obey(&Purge::Everything);
            }
            assert!(cache.is_in_use() && !has());
            settle.send_replace(true);
            cache.is_read().await;
            assert_eq!(has(), !is_purged);
        }
    }

    fn key(name: &str) -> Key {
        Key::of_text(name.into())
    }

    fn asked(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([("x-a".parse().unwrap(), HeaderValue::from_static(value))])
    }

    #[test]
    fn a_new_page_comes_before_an_old_one_that_varies_with_less() {
        let store = Store::new();
        store.keep(&key("a"), &asked("1"), "", u64::MAX);
        store.keep(&key("a"), &asked("1"), "X-A", u64::MAX);
        let found = |value| store.cache.find(&key("a"), &asked(value)).unwrap().name();
        assert_ne!(found("1"), found("2"));
        store.keep(&key("a"), &asked("2"), "X-A", u64::MAX);
        assert_ne!(found("1"), found("2"));
    }

    #[test]
    fn requests_wait_for_their_form_of_a_page_alone() {
        let store = Store::new();
        store.keep(&key("a"), &asked("1"), "X-A", u64::MAX);
        let Flight::Make(_two) = store.cache.fly(&key("a"), &asked("2")) else { panic!("first") };
        assert!(matches!(store.cache.fly(&key("a"), &asked("2")), Flight::Wait(_)));
        assert!(matches!(store.cache.fly(&key("a"), &asked("3")), Flight::Make(_)));
    }

    /// While the application is asked whether a page is still valid, another page may replace it,
    /// or it may disappear.
    #[test]
    fn only_a_page_that_is_still_there_is_renewed() {
        let store = Store::new();
        let (key, none) = (key("a"), HeaderMap::new());
        let find = || store.cache.find(&key, &none);
        let renew = |page: &Page| {
            let said = ResponseHead::new(StatusCode::NOT_MODIFIED, None);
            store.cache.renew(page, store.cache.begun(), &KEEPING, None, &said).1
        };
        store.keep(&key, &none, "", u64::MAX);
        let old = find().unwrap();
        assert!(renew(&old), "it is there");
        store.keep(&key, &none, "", u64::MAX);
        let new = find().unwrap();
        assert!(!renew(&old), "another one has its place");
        assert_eq!(find().unwrap().facts().body, new.facts().body);
        store.cache.drop_page(&new);
        assert!(!renew(&new), "it is gone");
        assert!(find().is_none());
        assert_eq!(store.bytes(), 0);
    }

    /// Clients choose the length of keys, so keys count towards the limit.
    #[test]
    fn long_keys_count() {
        let (store, limit) = (Store::new(), 300_000);
        for number in 0..50 {
            let key = key(&format!("{number}{}", "x".repeat(20_000)));
            store.keep(&key, &HeaderMap::new(), "", limit);
        }
        assert!(store.bytes() <= limit, "{}", store.bytes());
        assert!(store.bytes() > limit / 2, "{}", store.bytes());
    }

    #[test]
    fn what_a_front_is_writing_is_left_alone() {
        let store = Store::new();
        let (written, left) = (store.cache.new_body().unwrap(), store.folder.path().join("x.body"));
        let old = SystemTime::now() - 2 * WRITTEN_BY_NOW;
        File::create(&left).unwrap().set_modified(old).unwrap();
        written.as_file().set_modified(old).unwrap();
        assert_eq!(store.read_again(), 0);
        assert!(written.path().exists() && !left.exists());
    }

    #[test]
    fn only_pages_are_read() {
        let store = Store::new();
        for name in ["a", "b", "c", "d"] {
            store.keep(&key(name), &HeaderMap::new(), "", u64::MAX);
        }
        assert_eq!(store.read_again(), 4);
        let path = |name: &str| store.folder.path().join(name);
        let facts = |name| {
            let page = store.cache.find(&key(name), &HeaderMap::new()).unwrap();
            (path(&page.name()), path(&page.facts().body))
        };
        let change = |name, from: &str, to: &str| {
            let (facts, _) = facts(name);
            let text = fs::read_to_string(&facts).unwrap();
            assert!(text.contains(from), "{text}");
            fs::write(&facts, text.replace(from, to)).unwrap();
        };
        change("a", "\"status\":200", "\"status\":100");
        change("b", "\"len\":4", "\"len\":100000000000");
        let (_, body) = facts("b");
        File::options().write(true).open(body).unwrap().set_len(100_000_000_000).unwrap();
        let (_, body) = facts("c");
        fs::rename(&body, path("elsewhere")).unwrap();
        symlink(path("elsewhere"), &body).unwrap();
        fs::write(path(&"0".repeat(40)), "[".repeat(1_000_000)).unwrap();
        assert_eq!(store.read_again(), 1);
    }
}
