//! Data that scripts share across requests and event loops: the dictionary and the fragments of each
//! site.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use sendoff_lua::{Dictionary, FragmentAnswer, FragmentPermit, FragmentStore};
use sendoff_sys::fragments::{Asked, Fragments, Making};
use sendoff_sys::purges::PurgeCounters;

/// Memory for the fragments of a site in the server, in bytes, the smallest possible size. It
/// takes pages only as they are used.
const OF_SITE: usize = 8 << 20;

/// Data that the scripts of all sites share.
#[derive(Debug)]
pub struct SharedByScripts {
    /// By the sites' names.
    sites: Mutex<HashMap<String, SharedBySite>>,
    purges: Arc<SitePurges>,
}

/// The counters by which the fragments of all sites are purged. They may be older than this process
/// and outlive it, so a purge counts for fragments of other processes, too.
#[derive(Debug)]
struct SitePurges(io::Result<(PurgeCounters, OwnedFd)>);

impl SitePurges {
    /// `shared`: counters that other processes have; `None`: new ones.
    fn new(shared: Option<OwnedFd>) -> Self {
        let open = |fd| Ok((PurgeCounters::open(&fd)?, fd));
        Self(shared.map_or_else(PurgeCounters::create, open))
    }

    /// New memory for the fragments of a site.
    fn make(&self, site: &str) -> io::Result<Fragments> {
        let (_, counters) = self.0.as_ref().map_err(|error| io::Error::from(error.kind()))?;
        let (made, _) = Fragments::purged_by(Some(counters.try_clone()?), OF_SITE)?;
        Ok(made.purged_by_tag(site.as_bytes()))
    }

    /// Purges the fragments of a site with this tag, which [`of_site`] returned; `None`: all.
    fn purge(&self, site: &str, tag: Option<&[u8]>) {
        if let Ok((counters, _)) = &self.0 {
            counters.purge(tag.unwrap_or(site.as_bytes()));
        }
    }

    fn purge_everything(&self) {
        if let Ok((counters, _)) = &self.0 {
            counters.purge_all_tags();
        }
    }
}

/// The name of a site's tag or key in counters of all sites. The name of a site has no NUL.
fn of_site(site: &str, tag: &[u8]) -> Vec<u8> {
    [site.as_bytes(), b"\0", tag].concat()
}

/// Data that the scripts of a site share.
#[derive(Debug, Clone)]
pub(crate) struct SharedBySite {
    pub(crate) dictionary: Arc<Dictionary>,
    /// Stays until the process ends, so that a fragment that is being made may refer to it.
    memory: &'static FragmentMemory,
}

/// Fragments.
#[derive(Debug)]
enum FragmentMemory {
    /// Of the pool that has started this process, which has one site; `None`: it keeps none.
    OfPool(Option<Fragments>),
    /// Of a site in the server. The memory is made when a script first asks for it.
    OfSite { name: String, made: OnceLock<Option<Fragments>>, purges: Arc<SitePurges> },
}

impl FragmentMemory {
    fn get(&self) -> Option<&Fragments> {
        match self {
            Self::OfPool(fragments) => fragments.as_ref(),
            Self::OfSite { name, made, purges } => {
                let failed = |error: &io::Error| {
                    tracing::error!(%error, "fragments of Lua scripts are made each time");
                };
                made.get_or_init(|| purges.make(name).inspect_err(failed).ok()).as_ref()
            }
        }
    }

    /// The name of a tag or of a key in the memory.
    fn name(&self, tag: &[u8]) -> Vec<u8> {
        match self {
            Self::OfPool(_) => tag.to_vec(),
            Self::OfSite { name, .. } => of_site(name, tag),
        }
    }

    /// Purges the fragments with the tag of this [`name`](Self::name); `None`: all.
    fn purge(&self, tag: Option<&[u8]>) {
        match self {
            Self::OfPool(fragments) => fragments.iter().for_each(|kept| kept.purge(tag)),
            Self::OfSite { name, purges, .. } => purges.purge(name, tag),
        }
    }
}

impl SharedBySite {
    fn new(memory: FragmentMemory) -> Self {
        Self { dictionary: Arc::default(), memory: Box::leak(Box::new(memory)) }
    }

    /// The fragments for scripts. `prefix`: the beginning of all keys. `patience`: the longest wait
    /// for another script that makes a fragment.
    pub(crate) fn fragments(&self, prefix: &[u8], patience: Duration) -> Rc<dyn FragmentStore> {
        Rc::new(FragmentsOfSite { memory: self.memory, prefix: prefix.into(), patience })
    }
}

impl SharedByScripts {
    /// Data of the scripts in a server, whose fragments are purged by these counters; `None`: by
    /// counters of this process.
    pub fn new(purges: Option<OwnedFd>) -> Self {
        Self { sites: Mutex::default(), purges: Arc::new(SitePurges::new(purges)) }
    }

    /// Data of a process whose scripts have one site with the empty name, with these fragments;
    /// `None`: fragments are made each time.
    pub fn of_process(fragments: Option<Fragments>) -> Self {
        let site = SharedBySite::new(FragmentMemory::OfPool(fragments));
        Self { sites: Mutex::new(HashMap::from([(String::new(), site)])), ..Self::new(None) }
    }

    pub(crate) fn of(&self, site: &str) -> SharedBySite {
        let (name, purges) = (site.to_owned(), Arc::clone(&self.purges));
        let new = || {
            let made = OnceLock::new();
            SharedBySite::new(FragmentMemory::OfSite { name, made, purges })
        };
        self.all().entry(site.to_owned()).or_insert_with(new).clone()
    }

    /// Purges the fragments of a site with one of these tags; `None`: all of them. Without a site,
    /// purges all fragments of all sites.
    pub fn purge_fragments(&self, site: Option<&str>, tags: Option<&[&str]>) {
        let Some(site) = site else { return self.purges.purge_everything() };
        match tags {
            Some(tags) => tags.iter().for_each(|tag| {
                self.purges.purge(site, Some(&of_site(site, tag.as_bytes())));
            }),
            None => self.purges.purge(site, None),
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, SharedBySite>> {
        // No code can panic while the map is changed.
        self.sites.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct FragmentsOfSite {
    memory: &'static FragmentMemory,
    prefix: Box<[u8]>,
    patience: Duration,
}

impl FragmentsOfSite {
    fn key(&self, key: &[u8]) -> Vec<u8> {
        self.memory.name(&[&self.prefix, key].concat())
    }

    fn tags(&self, tags: &[&[u8]]) -> Vec<Vec<u8>> {
        tags.iter().map(|tag| self.memory.name(tag)).collect()
    }
}

impl FragmentStore for FragmentsOfSite {
    fn ask(&self, key: &[u8], tags: &[&[u8]]) -> Option<FragmentAnswer> {
        let tags = self.tags(tags);
        let tags: Vec<_> = tags.iter().map(|tag| &tag[..]).collect();
        let asked = self.memory.get()?.ask(&self.key(key), &tags, self.patience)?;
        Some(match asked {
            Asked::Kept { bytes, .. } => FragmentAnswer::Kept(bytes),
            Asked::Make(making) => FragmentAnswer::Make(Box::new(HeldPermit(making))),
        })
    }

    fn fetch(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.memory.get()?.fetch(&self.key(key))
    }

    fn store(&self, key: &[u8], tags: &[&[u8]], life: Duration, bytes: &[u8]) -> bool {
        let tags = self.tags(tags);
        let tags: Vec<_> = tags.iter().map(|tag| &tag[..]).collect();
        let stored =
            |kept: &Fragments| kept.store(&self.key(key), &tags, life, bytes, kept.purges());
        self.memory.get().is_some_and(stored)
    }

    fn delete(&self, key: &[u8]) {
        self.memory.purge(Some(&self.key(key)));
    }

    fn purge(&self, tag: Option<&[u8]>) {
        self.memory.purge(tag.map(|tag| self.memory.name(tag)).as_deref());
    }
}

#[derive(Debug)]
struct HeldPermit(Making<'static>);

impl FragmentPermit for HeldPermit {
    fn keep(&self, life: Duration, bytes: &[u8]) -> bool {
        self.0.keep(life, bytes)
    }
}
