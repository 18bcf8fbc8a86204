//! Outcomes of evaluations, kept while the same request would have the same outcome.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderName, Method, Version};
use lru::LruCache;
use sendoff_message::request::{Endpoint, Request, Scheme};

use super::decision::HtaccessDecision;
use super::fields::{Fields, socket_address};
use super::watcher::{Watch, Watcher};

/// Most outcomes of one event loop.
const MAX_OUTCOMES: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");

/// Most bytes of an outcome and its request. Larger ones are not kept: applications' outcomes have
/// some hundred bytes.
const MAX_WEIGHT: usize = 8 << 10;

/// Lifetime of an outcome. The watcher notices changes at once, apart from the three kinds listed
/// in `watcher.rs`.
pub(super) const MAX_AGE: Duration = Duration::from_secs(1);

/// The outcomes that an event loop keeps for all its sites.
#[derive(Debug)]
pub(super) struct Outcomes {
    hasher: RandomState,
    kept: RefCell<LruCache<u64, CachedOutcome, BuildHasherDefault<Hashed>>>,
}

/// The parts of a request that every outcome depends on.
#[derive(Debug)]
struct OutcomeKey {
    /// The number of the site's rules.
    site: u64,
    method: Method,
    uri: Vec<u8>,
    path: Vec<u8>,
    query: Option<Vec<u8>>,
    host: Option<Vec<u8>>,
    scheme: Scheme,
    version: Version,
    local: Endpoint,
}

#[derive(Debug)]
struct CachedOutcome {
    asked: OutcomeKey,
    /// Fields that were looked at, with their values.
    fields: Vec<(HeaderName, Option<Vec<u8>>)>,
    /// The client, if its address was looked at.
    client: Option<SocketAddr>,
    watches: Vec<Watch>,
    /// The watcher's count at the last check without changes.
    unchanged_at: Cell<u64>,
    /// Time of the evaluation.
    made: Instant,
    decision: Rc<HtaccessDecision>,
}

/// A hasher for keys that are hashes themselves.
#[derive(Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0 << 8 | u64::from(*byte));
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

/// The inputs of an evaluation.
#[derive(Debug)]
pub(super) struct LookedAt {
    pub(super) watches: Vec<Watch>,
    /// The watcher's count before the evaluation.
    pub(super) count: u64,
}

impl Outcomes {
    pub(super) fn new() -> Self {
        let kept = LruCache::with_hasher(MAX_OUTCOMES, BuildHasherDefault::default());
        Self { hasher: RandomState::new(), kept: RefCell::new(kept) }
    }

    /// The outcome for a request, if an evaluation now would have the same outcome. `count`: the
    /// watcher's current count.
    pub(super) fn get(
        &self,
        site: u64,
        request: &Request,
        watcher: &Watcher,
        count: u64,
    ) -> Option<Rc<HtaccessDecision>> {
        let mut kept = self.kept.borrow_mut();
        let known = kept.get(&self.key(site, request))?;
        let is_same = known.asked.is(site, request)
            && known.is_unchanged(watcher, count)
            && known.client.is_none_or(|client| client == socket_address(&request.peer))
            && known.fields.iter().all(|(name, value)| {
                Fields(&request.headers).value(name).as_deref() == value.as_deref()
            })
            && known.made.elapsed() < MAX_AGE;
        is_same.then(|| Rc::clone(&known.decision))
    }

    /// Keeps an outcome, unless it depends on inputs that cannot be compared.
    pub(super) fn keep(
        &self,
        site: u64,
        request: &Request,
        looked_at: LookedAt,
        decision: &Rc<HtaccessDecision>,
    ) {
        let depends_on = &decision.outcome().depends_on;
        let names = depends_on.fields.iter().map(|name| HeaderName::from_bytes(name).ok());
        let Some(names) = names.collect::<Option<Vec<_>>>().filter(|_| !depends_on.more) else {
            return;
        };
        let LookedAt { watches, count } = looked_at;
        let value = |name: &HeaderName| Fields(&request.headers).value(name).map(Into::into);
        let kept = CachedOutcome {
            asked: OutcomeKey::of(site, request),
            fields: names.into_iter().map(|name| (name.clone(), value(&name))).collect(),
            client: depends_on.client.then(|| socket_address(&request.peer)),
            watches,
            unchanged_at: Cell::new(count),
            made: Instant::now(),
            decision: Rc::clone(decision),
        };
        if kept.weight() <= MAX_WEIGHT {
            self.kept.borrow_mut().put(self.key(site, request), kept);
        }
    }

    /// Different requests may have the same key.
    fn key(&self, site: u64, request: &Request) -> u64 {
        self.hasher.hash_one((site, &request.uri, &request.host, request.method.as_str()))
    }
}

impl OutcomeKey {
    fn of(site: u64, request: &Request) -> Self {
        let owned = |bytes: &Option<Bytes>| bytes.as_ref().map(|bytes| bytes.to_vec());
        Self {
            site,
            method: request.method.clone(),
            uri: request.uri.to_vec(),
            path: request.path.clone(),
            query: owned(&request.query),
            host: owned(&request.host),
            scheme: request.scheme,
            version: request.version,
            local: request.local.clone(),
        }
    }

    fn is(&self, site: u64, request: &Request) -> bool {
        self.site == site
            && self.method == request.method
            && self.uri == request.uri
            && self.path == request.path
            && self.query.as_deref() == request.query.as_deref()
            && self.host.as_deref() == request.host.as_deref()
            && self.scheme == request.scheme
            && self.version == request.version
            && self.local == request.local
    }
}

impl CachedOutcome {
    fn is_unchanged(&self, watcher: &Watcher, count: u64) -> bool {
        if self.unchanged_at.get() == count {
            return true;
        }
        let is_unchanged = watcher.are_unchanged(&self.watches, self.unchanged_at.get());
        if is_unchanged {
            self.unchanged_at.set(count);
        }
        is_unchanged
    }

    fn weight(&self) -> usize {
        let OutcomeKey { uri, path, query, host, .. } = &self.asked;
        let length = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
        let fields = self.fields.iter().map(|(_, value)| 64 + length(value));
        uri.len()
            + path.len()
            + length(query)
            + length(host)
            + fields.sum::<usize>()
            + 4 * self.watches.len()
            + self.decision.outcome().weight()
    }
}
