//! Data that scripts share across requests and event loops: the dictionary and the fragments of each
//! site.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use sendoff_lua::{Dictionary, FragmentAnswer, FragmentPermit, FragmentStore};
use sendoff_sys::fragments::{Asked, Fragments, Making};

/// Memory for the fragments of a site in the server, in bytes, the smallest possible size. It
/// takes pages only as they are used.
const OF_SITE: usize = 8 << 20;

/// Data that the scripts of all sites share, by the sites' names.
#[derive(Debug, Default)]
pub struct SharedByScripts(Mutex<HashMap<String, SharedBySite>>);

/// Data that the scripts of a site share.
#[derive(Debug, Clone)]
pub(crate) struct SharedBySite {
    pub(crate) dictionary: Arc<Dictionary>,
    /// Stays until the process ends, so that a fragment that is being made may refer to it.
    memory: &'static FragmentMemory,
}

/// The fragments of a site. The memory is made when a script first asks for it.
#[derive(Debug, Default)]
struct FragmentMemory(OnceLock<Option<Fragments>>);

impl FragmentMemory {
    fn get(&self) -> Option<&Fragments> {
        let make = || match Fragments::create(OF_SITE) {
            Ok((fragments, _)) => Some(fragments),
            Err(error) => {
                tracing::error!(%error, "fragments of Lua scripts are made each time");
                None
            }
        };
        self.0.get_or_init(make).as_ref()
    }

    /// The memory, if a script has asked for it.
    fn used(&self) -> Option<&Fragments> {
        self.0.get()?.as_ref()
    }
}

impl SharedBySite {
    fn new(memory: FragmentMemory) -> Self {
        Self { dictionary: Arc::default(), memory: Box::leak(Box::new(memory)) }
    }

    /// Purges the fragments with one of these tags; `None`: all.
    fn purge_fragments(&self, tags: Option<&[&str]>) {
        let Some(fragments) = self.memory.used() else { return };
        match tags {
            Some(tags) => tags.iter().for_each(|tag| fragments.purge(Some(tag.as_bytes()))),
            None => fragments.purge(None),
        }
    }

    /// The fragments for scripts. `prefix`: the beginning of all keys. `patience`: the longest wait
    /// for another script that makes a fragment.
    pub(crate) fn fragments(&self, prefix: &[u8], patience: Duration) -> Rc<dyn FragmentStore> {
        Rc::new(FragmentsOfSite { memory: self.memory, prefix: prefix.into(), patience })
    }
}

impl SharedByScripts {
    /// Data of a process whose scripts have one site with the empty name, with these fragments;
    /// `None`: fragments are made each time.
    pub fn of_process(fragments: Option<Fragments>) -> Self {
        let site = SharedBySite::new(FragmentMemory(OnceLock::from(fragments)));
        Self(Mutex::new(HashMap::from([(String::new(), site)])))
    }

    pub(crate) fn of(&self, site: &str) -> SharedBySite {
        let new = || SharedBySite::new(FragmentMemory::default());
        self.all().entry(site.to_owned()).or_insert_with(new).clone()
    }

    /// Purges the fragments of a site, or of all sites, with one of these tags; `None`: all of them.
    pub fn purge_fragments(&self, site: Option<&str>, tags: Option<&[&str]>) {
        let all = self.all();
        match site {
            Some(site) => all.get(site).into_iter().for_each(|site| site.purge_fragments(tags)),
            None => all.values().for_each(|site| site.purge_fragments(tags)),
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, SharedBySite>> {
        // No code can panic while the map is changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        [&self.prefix, key].concat()
    }
}

impl FragmentStore for FragmentsOfSite {
    fn ask(&self, key: &[u8], tags: &[&[u8]]) -> Option<FragmentAnswer> {
        let asked = self.memory.get()?.ask(&self.key(key), tags, self.patience)?;
        Some(match asked {
            Asked::Kept { bytes, .. } => FragmentAnswer::Kept(bytes),
            Asked::Make(making) => FragmentAnswer::Make(Box::new(HeldPermit(making))),
        })
    }

    fn fetch(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.memory.get()?.fetch(&self.key(key))
    }

    fn store(&self, key: &[u8], tags: &[&[u8]], life: Duration, bytes: &[u8]) -> bool {
        let stored =
            |kept: &Fragments| kept.store(&self.key(key), tags, life, bytes, kept.purges());
        self.memory.get().is_some_and(stored)
    }

    fn delete(&self, key: &[u8]) {
        self.memory.used().into_iter().for_each(|kept| kept.purge(Some(&self.key(key))));
    }

    fn purge(&self, tag: Option<&[u8]>) {
        self.memory.used().into_iter().for_each(|kept| kept.purge(tag));
    }
}

#[derive(Debug)]
struct HeldPermit(Making<'static>);

impl FragmentPermit for HeldPermit {
    fn keep(&self, life: Duration, bytes: &[u8]) -> bool {
        self.0.keep(life, bytes)
    }
}
