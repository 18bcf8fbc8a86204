//! The thread by which the server belongs to a fleet of nodes that act as one.
//!
//! It has a runtime of its own, so a slow engine delays no client. It starts with the first
//! configuration that has an engine.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sendoff_config::{Config, Fleet};
use sendoff_exchange::rates::Rates;
use sendoff_fleet::{Counts, FleetState, Node, Obey, Outbox, Parts, Positions};
use sendoff_lua_host::SharedByScripts;
use sendoff_page_cache::{FragmentPurge, PageCache, Purge, PurgeListener};
use sendoff_tls::{FleetSecrets, Tickets};
use sendoff_upstream_worker::pool::Pool;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

/// The thread, if the server belongs to a fleet.
pub(super) struct Membership {
    parts: Parts,
    fragments: Arc<Fragments>,
    rates: Arc<Rates>,
    thread: RefCell<Option<FleetThread>>,
}

/// A running thread.
struct FleetThread {
    fleet: Fleet,
    secrets: FleetSecrets,
    /// The time at which the thread ends at the latest, if it is to end.
    end: watch::Sender<Option<Instant>>,
    handle: JoinHandle<()>,
}

impl Membership {
    /// The server is alone. `folder`: of kept pages; `None`: the server may not write to it.
    pub(super) fn new(
        page_cache: &Arc<PageCache>,
        scripts: &Arc<SharedByScripts>,
        rates: &Arc<Rates>,
        tickets: &Tickets,
        folder: Option<&Path>,
    ) -> Self {
        let outbox = Arc::new(Outbox::new(&Purge::Everything.encode()));
        let fragments = Arc::<Fragments>::default();
        let pages = Arc::clone(page_cache);
        let (is_settled, may_read) = watch::channel(true);
        page_cache.join(Box::new(Listener(Arc::clone(&outbox))), may_read);
        let parts = Parts {
            obey: Arc::new(Local {
                pages,
                fragments: Arc::clone(&fragments),
                scripts: Arc::clone(scripts),
            }),
            positions: Arc::new(Positions::new(folder)),
            state: Arc::new(FleetState::new(Arc::clone(&outbox))),
            outbox,
            tickets: tickets.clone(),
            counts: Arc::new(Limits(Arc::clone(rates))),
            is_settled,
        };
        Self { parts, fragments, rates: Arc::clone(rates), thread: RefCell::default() }
    }

    /// The figures of the node.
    pub(super) fn state(&self) -> Arc<FleetState> {
        Arc::clone(&self.parts.state)
    }

    /// Keeps the pages that an earlier process has left back until the purges of other nodes are
    /// known. Call it before the first event loop starts.
    pub(super) fn settle_first(&self) {
        self.parts.is_settled.send_replace(false);
    }

    /// True if the server belongs to a fleet.
    pub(super) fn is_member(&self) -> bool {
        self.parts.outbox.is_open()
    }

    /// Shares the limits of this configuration. `pools`: their fragments are purged because of
    /// other nodes.
    pub(super) fn set(&self, config: &Config, pools: Vec<Arc<Pool>>) {
        self.fragments.set(config, pools);
        self.rates.share(config.fleet.is_some().then_some(config));
    }

    /// Belongs to the fleet of this configuration from now on, or to none.
    pub(super) fn serve(&self, fleet: Option<&Fleet>, secrets: &FleetSecrets) {
        let mut thread = self.thread.borrow_mut();
        if let Some(running) = &*thread
            && Some(&running.fleet) == fleet
            && running.secrets == *secrets
            && !running.handle.is_finished()
        {
            return;
        }
        // The thread ends by itself.
        if let Some(before) = thread.take() {
            before.end.send_replace(Some(Instant::now()));
        }
        let Parts { outbox, state, tickets, is_settled, .. } = &self.parts;
        outbox.open(fleet.is_some());
        state.belong(fleet.map(|fleet| (fleet.name.clone(), fleet.engine.address.to_string())));
        tickets.unshare();
        let Some(fleet) = fleet else {
            is_settled.send_replace(true);
            return;
        };
        match start(fleet.clone(), secrets.clone(), self.parts.clone()) {
            Ok(started) => *thread = Some(started),
            Err(error) => {
                tracing::error!(%error, "the node stays alone: no thread can be started");
                is_settled.send_replace(true);
            }
        }
    }

    /// Sends the purges that wait, for at most this time, and ends the thread.
    pub(super) fn finish(&self, within: Duration) {
        let Some(FleetThread { end, handle, .. }) = self.thread.borrow_mut().take() else { return };
        end.send_replace(Some(Instant::now() + within));
        if handle.join().is_err() {
            tracing::error!("the thread of the fleet has panicked");
        }
    }
}

fn start(fleet: Fleet, secrets: FleetSecrets, parts: Parts) -> io::Result<FleetThread> {
    let (end, ends) = watch::channel(None);
    let (outbox, positions) = (Arc::clone(&parts.outbox), Arc::clone(&parts.positions));
    let node = Node::new(&fleet, &secrets, parts);
    let run = move || match Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
    {
        Ok(runtime) => {
            runtime.block_on(async {
                tokio::select! {
                    never = node.run() => never,
                    () = last_purges(&outbox, &positions, ends) => return,
                };
            });
            // A name that is being resolved is not waited for.
            runtime.shutdown_background();
        }
        Err(error) => tracing::error!(%error, "the node stays alone"),
    };
    let handle = thread::Builder::new().name("fleet".to_owned()).spawn(run)?;
    Ok(FleetThread { fleet, secrets, end, handle })
}

/// Waits for the order to end, and then until no purge waits, or for the time of the order.
async fn last_purges(
    outbox: &Outbox,
    positions: &Positions,
    mut ends: watch::Receiver<Option<Instant>>,
) {
    let Ok(end) = ends.wait_for(Option::is_some).await.map(|end| *end) else { return };
    let sent = timeout_at(end.unwrap_or_else(Instant::now), outbox.is_sent()).await;
    // Otherwise the next process lets the other nodes purge everything.
    if sent.is_ok() {
        positions.note_unsent(false);
    }
}

/// Tells other nodes of the purges of this one.
struct Listener(Arc<Outbox>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

impl PurgeListener for Listener {
    fn note(&self, purge: &Purge) {
        if self.0.is_open() {
            self.0.push(&purge.encode());
        }
    }
}

/// Obeys the purges of other nodes.
struct Local {
    pages: Arc<PageCache>,
    fragments: Arc<Fragments>,
    /// They keep fragments of their own.
    scripts: Arc<SharedByScripts>,
}

impl Local {
    fn purge(&self, purge: &Purge) {
        self.fragments.purge(purge);
        match purge.of_fragments() {
            FragmentPurge::Nothing => {}
            FragmentPurge::Tags(tags) => self.scripts.purge_fragments(purge.site(), Some(&tags)),
            FragmentPurge::Everything => self.scripts.purge_fragments(purge.site(), None),
        }
        self.pages.obey(purge);
    }
}

impl Obey for Local {
    fn obey(&self, purge: &[u8]) -> Result<(), String> {
        self.purge(&Purge::decode(purge)?);
        Ok(())
    }

    fn obey_everything(&self) {
        self.purge(&Purge::Everything);
    }
}

/// The limits that nodes share.
struct Limits(Arc<Rates>);

impl Counts for Limits {
    fn counted(&self) -> &Notify {
        self.0.counted()
    }

    fn take(&self) -> Option<Vec<u8>> {
        self.0.take_counts()
    }

    fn add(&self, counts: &[u8]) -> Result<(), String> {
        self.0.add_counts(counts)
    }
}

/// The pools that may keep fragments.
#[derive(Debug, Default)]
struct Fragments(Mutex<Pools>);

#[derive(Debug, Default)]
struct Pools {
    all: Vec<Arc<Pool>>,
    /// The name of a site, and the number of a pool that answers for it.
    of_sites: Vec<(String, usize)>,
}

impl Fragments {
    fn set(&self, config: &Config, all: Vec<Arc<Pool>>) {
        let of_site = |site| config.pools_of(site).map(|number| (site.name.clone(), number));
        let of_sites = config.sites.iter().flat_map(of_site).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Pools { all, of_sites };
    }

    fn purge(&self, purge: &Purge) {
        let pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tags = match purge.of_fragments() {
            FragmentPurge::Nothing => return,
            FragmentPurge::Tags(tags) => Some(tags),
            FragmentPurge::Everything => None,
        };
        let is_of_site = |number: usize| {
            purge.site().is_none_or(|site| {
                pools.of_sites.iter().any(|(name, pool)| name == site && *pool == number)
            })
        };
        for (number, pool) in pools.all.iter().enumerate() {
            if is_of_site(number) {
                pool.purge_fragments(tags.as_deref());
            }
        }
    }
}
