//! The state of a node, for `sendoff status`, the metrics and the log.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sendoff_report::seldom::Seldom;
use sendoff_report::status::FleetStatus;

use crate::outbox::Outbox;

/// The state of a node. It outlives a change of its configuration.
#[derive(Debug)]
pub struct FleetState {
    outbox: Arc<Outbox>,
    inner: Mutex<Inner>,
    away: Seldom,
    newer: Seldom,
    broken: Seldom,
    keyless: Seldom,
}

#[derive(Debug, Default)]
struct Inner {
    /// The name of the fleet and the engine's address; `None`: the node is alone.
    of: Option<(String, String)>,
    link: Link,
    since: Option<Instant>,
    sent: u64,
    obeyed: u64,
    restarts: u64,
    broken: u64,
}

/// The connection to the engine.
#[derive(Debug, Default)]
enum Link {
    /// It has not been made yet.
    #[default]
    New,
    Connected,
    /// The engine is away.
    Away {
        /// A sentence about it.
        why: String,
        /// The log says so. It does not if an engine comes and goes all the time.
        is_logged: bool,
    },
}

impl FleetState {
    /// The node is alone. `outbox`: the purges that wait for the engine.
    #[must_use]
    pub fn new(outbox: Arc<Outbox>) -> Self {
        let [away, newer, broken, keyless] = [(); 4].map(|()| Seldom::new());
        Self { outbox, inner: Mutex::default(), away, newer, broken, keyless }
    }

    /// The node belongs to a fleet with this name and engine from now on, or is alone.
    pub fn belong(&self, of: Option<(String, String)>) {
        let mut inner = self.lock();
        (inner.of, inner.link, inner.since) = (of, Link::New, Some(Instant::now()));
    }

    /// The figures; `None`: the node is alone.
    #[must_use]
    pub fn status(&self) -> Option<FleetStatus> {
        let inner = self.lock();
        let (name, engine) = inner.of.clone()?;
        let why = match &inner.link {
            Link::New => Some("it has not been connected to yet".to_owned()),
            Link::Connected => None,
            Link::Away { why, .. } => Some(why.clone()),
        };
        let since = inner.since.map_or(Duration::ZERO, |since| since.elapsed()).as_secs();
        let waiting = self.outbox.len();
        let Inner { sent, obeyed, restarts, broken, .. } = *inner;
        Some(FleetStatus { name, engine, why, since, sent, obeyed, restarts, broken, waiting })
    }

    /// The engine serves. The log says so once.
    pub(crate) fn connected(&self) {
        let mut inner = self.lock();
        let is_logged = match inner.link {
            Link::Connected => return,
            Link::New => true,
            Link::Away { is_logged, .. } => is_logged,
        };
        (inner.link, inner.since) = (Link::Connected, Some(Instant::now()));
        let (name, engine) = inner.of.clone().unwrap_or_default();
        drop(inner);
        if is_logged {
            tracing::info!(name, engine, "the fleet's engine serves");
        }
    }

    /// The engine does not serve. The log says so once, and at most once in a minute.
    pub(crate) fn away(&self, why: &str) {
        let mut inner = self.lock();
        match &mut inner.link {
            Link::Away { why: known, is_logged } => {
                why.clone_into(known);
                if *is_logged || !self.away.is_due() {
                    return;
                }
                *is_logged = true;
            }
            Link::New | Link::Connected => {
                let is_logged = self.away.is_due();
                inner.link = Link::Away { why: why.to_owned(), is_logged };
                inner.since = Some(Instant::now());
                if !is_logged {
                    return;
                }
            }
        }
        let (name, engine) = inner.of.clone().unwrap_or_default();
        drop(inner);
        tracing::warn!(
            name,
            engine,
            "the fleet's engine is away: {why}; this node goes on alone, purges are exchanged later"
        );
    }

    pub(crate) fn note_sent(&self, purges: usize) {
        self.lock().sent += purges as u64;
    }

    pub(crate) fn note_obeyed(&self) {
        self.lock().obeyed += 1;
    }

    /// Purges of other nodes may have been missed, so all pages are purged.
    pub(crate) fn note_restart(&self, why: &str) {
        self.lock().restarts += 1;
        tracing::warn!("all pages are purged, because purges of other nodes may be missing: {why}");
    }

    /// Another node has a newer version of the server, whose purges are unknown here.
    pub(crate) fn note_newer(&self) {
        self.lock().restarts += 1;
        if self.newer.is_due() {
            tracing::warn!(
                "all pages are purged with each purge of a node that has a newer version"
            );
        }
    }

    /// There is something in the engine that is no record of a node.
    pub(crate) fn note_broken(&self, key: &str, why: &str) {
        self.lock().broken += 1;
        if self.broken.is_due() {
            tracing::error!(key, "the fleet's engine has what no node has written: {why}");
        }
    }

    /// The engine refuses a key of session tickets, or has something else in its place.
    pub(crate) fn note_keyless(&self, key: &str, why: &str) {
        self.lock().broken += 1;
        if self.keyless.is_due() {
            tracing::error!(
                key,
                "sessions of TLS are not resumed on other nodes, purges are exchanged: {why}"
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
