//! The index of pages: by key, address and tag.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use lru::LruCache;

use crate::bodies::Bodies;
use crate::journal::Journal;
use crate::key::Hash;
use crate::lscache::Places;
use crate::page::Page;
use crate::purge::{Purge, PurgeCount, Purges};

/// Most pages with the same key, which differ in the request fields that they vary with.
const MOST_VARIANTS: usize = 32;

/// The pages that a purge has concerned.
#[derive(Debug)]
pub(super) struct Purged {
    /// The pages that are no longer kept. Their files are still there.
    pub(super) gone: Vec<Arc<Page>>,
    /// The number of pages that are old now.
    pub(super) stale: usize,
}

/// The pages of the folder that this process knows, and the purges that it has heard of.
#[derive(Debug)]
pub(super) struct PageIndex {
    /// Pages by the hash of their key. Each list has at least one page.
    pub(super) pages: LruCache<Hash, Vec<Arc<Page>>>,
    pub(super) bytes: u64,
    pub(super) bodies: Bodies,
    /// For each key in `pages`: the hash of its address, and the hash of the key.
    addresses: BTreeSet<(Hash, Hash)>,
    /// For each key in `pages` and each tag of its pages: the hash of the tag, and of the key.
    tags: BTreeSet<(Hash, Hash)>,
    pub(super) purges: Purges,
    /// `None`: the folder has not been opened, or its journal cannot be used.
    pub(super) journal: Option<Journal>,
}

impl PageIndex {
    pub(super) fn new() -> Self {
        Self {
            pages: LruCache::unbounded(),
            bytes: 0,
            bodies: Bodies::default(),
            addresses: BTreeSet::new(),
            tags: BTreeSet::new(),
            purges: Purges::default(),
            journal: None,
        }
    }

    /// Takes out the pages that other fronts have purged.
    pub(super) fn hear(&mut self) -> Vec<Arc<Page>> {
        let news = self.journal.as_mut().map(Journal::news);
        self.apply(news)
    }

    /// Tells other fronts of a purge, and takes out the pages that they have purged.
    pub(super) fn tell(&mut self, purge: &Purge) -> Vec<Arc<Page>> {
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
    pub(super) fn purge(&mut self, purge: &Purge) -> Purged {
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
    pub(super) fn insert(&mut self, page: Arc<Page>, begun: PurgeCount) -> Vec<Arc<Page>> {
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

    pub(super) fn has(&self, hash: &Hash, name: &str) -> bool {
        self.pages.peek(hash).is_some_and(|pages| pages.iter().any(|page| page.name() == name))
    }

    /// True unless the page is gone or replaced.
    pub(super) fn still_has(&self, page: &Page) -> bool {
        let is_it = |known: &Arc<Page>| known.facts().body == page.facts().body;
        self.pages.peek(&page.key().hash()).is_some_and(|pages| pages.iter().any(is_it))
    }

    /// Takes out the pages with this key for which `concerns` is true.
    pub(super) fn take(
        &mut self,
        hash: &Hash,
        mut concerns: impl FnMut(&Page) -> bool,
    ) -> Vec<Arc<Page>> {
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
    pub(super) fn take_oldest(&mut self) -> Option<Vec<Arc<Page>>> {
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

/// The keys that an index has for a hash.
fn keys_at(index: &BTreeSet<(Hash, Hash)>, hash: Hash) -> impl Iterator<Item = Hash> {
    index.range((hash, [0; 20])..=(hash, [255; 20])).map(|(_, key)| *key)
}
