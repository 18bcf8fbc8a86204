//! The front: event loops, each on its own thread. They share the pools of workers and the state in
//! `running_loop::SharedByLoops`.

mod accept;
mod announce;
mod budget;
mod collector;
mod event_loop;
mod exporter;
mod fleet;
mod generation;
mod listener;
mod orders;
mod pool_status;
mod proxy_header;
mod running;
mod running_loop;
mod warming;

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Resource, getrlimit};
use sendoff_compress::Compressor;
use sendoff_config::{Address, Attachment, Config, PoolConfig, Site};
use sendoff_delivery::{SnapshotLimits, Snapshots};
use sendoff_exchange::clients::Connections;
use sendoff_exchange::lifecycle::Stage;
use sendoff_lua_host::STACK;
use sendoff_lua_host::SharedByScripts;
use sendoff_observe::gather::Gatherer;
use sendoff_page_cache::PageCache;
use sendoff_report::access_log;
use sendoff_report::access_log::LogFile;
use sendoff_report::explain::Secret;
use sendoff_sys::process::keep_freed_memory;
use sendoff_tls::{Tickets, Vault};
use sendoff_traces::Spans;
use sendoff_transport::descriptors;
use sendoff_upstream_fastcgi::channel::Channel;
use sendoff_upstream_worker::master::Master;
use tokio::sync::{mpsc, watch};

use announce::Announce;
use budget::DescriptorBudget;
use event_loop::{EventLoop, KEPT_MEMORY};
use exporter::Exporter;
use fleet::Membership;
use generation::{Generation, NewPool, PoolUse, attached_of, gateways, tls_of_sites};
use running::{LoopHandle, Means, RunningFront, ShutdownMode};
use running_loop::SharedByLoops;

pub use orders::{FrontOrder, ListenerSource, LogSource, Orders, PoolSource, Reload};
pub use sendoff_page_cache::Purge;
pub use sendoff_transport::kernel_has_tls;

/// The most time in which the collector gets the last spans when the front ends.
const MOST_FOR_SPANS: Duration = Duration::from_secs(5);

/// The most time in which the other nodes of a fleet get the last purges when the front ends.
const MOST_FOR_PURGES: Duration = Duration::from_secs(2);

/// The least time for either.
const LEAST_AT_END: Duration = Duration::from_millis(250);

/// Parts that a front is started with.
#[derive(Debug)]
pub struct Front {
    /// The configuration, the same for all event loops.
    pub config: Config,
    /// The credentials of the sites.
    pub vault: Vault,
    /// The files of access logs, opened for appending, in the order of `Config::log_targets`.
    pub access_logs: Vec<File>,
    /// The secret for `sendoff explain`; `None`: requests cannot be explained.
    pub explain: Option<Secret>,
    /// The listening sockets of each event loop, in the order of `Config::listen`: as many lists as
    /// threads.
    pub listeners: Vec<Vec<OwnedFd>>,
    /// The pool socket of each pool: its master sends new workers on it, or the state of its
    /// program.
    pub pool_sockets: Vec<OwnedFd>,
    /// The counters by which fragments of scripts are purged, which earlier and later fronts have,
    /// too; `None`: counters of this front.
    pub script_purges: Option<OwnedFd>,
}

impl Front {
    /// Follows `orders` until one of them ends the front. Returns when the last response has been
    /// sent, or when the shutdown timeout is over, which cuts the remaining responses. `orders` is
    /// made inside an event loop. `ready` is called once, from any thread, when all workers have
    /// arrived.
    ///
    /// # Errors
    /// An event loop could not be started.
    pub fn run<O: Orders>(
        self,
        ready: impl Fn() + Send + Sync + 'static,
        orders: impl FnOnce() -> io::Result<O>,
    ) -> io::Result<()> {
        keep_freed_memory(KEPT_MEMORY);
        let Self { config, vault, access_logs, explain, listeners, pool_sockets, .. } = self;
        let count = listeners.len();
        let budget = budget(&config, &listeners)?;
        let limits = SnapshotLimits { descriptors: budget.snapshots, ..SnapshotLimits::default() };
        let snapshots = Snapshots::new(limits);
        let (channel, registrations) = open_channel(&config.sites, count).unzip();
        let (stopper, stopping) = watch::channel(Stage::Serving);
        let pools = new_pools(&config, count, &pool_sockets)?;
        let first_workers = config.pools.iter().map(PoolConfig::first_workers);
        let shared = pools.iter().map(|pool| Arc::clone(&pool.shared));
        let announce = Announce::new(count, shared.zip(first_workers).collect(), ready);
        let (users, in_use): (Vec<_>, Vec<_>) = pools.iter().map(|_| watch::channel(())).unzip();
        let applied = pools
            .iter()
            .map(|pool| pool.program.as_ref().map(|program| Arc::clone(&program.attached)));
        let used = in_use.into_iter().zip(applied).enumerate();
        let used: Vec<_> = used
            .map(|(place, (in_use, application))| PoolUse { place, in_use, application })
            .collect();
        let tickets = Tickets::new().map_err(io::Error::other)?;
        let tls = tls_of_sites(&config, &vault, &tickets).map_err(io::Error::other)?;
        let engine_password = vault.engine_password;
        let generation = Arc::new(Generation {
            tls,
            tickets: tickets.clone(),
            challenges: Arc::default(),
            attached: attached_of(&config, &used, HashMap::new()),
            gateways: gateways(&config, &[]),
            channel: channel.clone(),
            logs: access_logs.into_iter().map(LogFile::new).collect(),
            auth: Arc::default(),
            pools: used,
            config: Arc::new(config),
        });
        let (draining, busy) = watch::channel(());
        let draining = Arc::new(draining);
        let log = access_log::LogWriter::start()?;
        let (askers, asked): (Vec<_>, Vec<_>) =
            (0..count).map(|_| mpsc::unbounded_channel()).unzip();
        let spans = Arc::<Spans>::default();
        let exporter = Rc::new(Exporter::new(Arc::clone(&spans)));
        exporter.serve(generation.config.traces.as_ref());
        let page_store = &generation.config.front.page_cache;
        let page_cache = PageCache::new(page_store);
        // Without kept pages the folder need not exist.
        let folder = generation.config.keeps_pages().then_some(&*page_store.folder);
        let scripts = Arc::new(SharedByScripts::new(self.script_purges));
        let fleet = Membership::new(&page_cache, Arc::clone(&scripts), tickets.clone(), folder);
        let fleet = Rc::new(fleet);
        let gatherer = Gatherer {
            loops: askers.into(),
            snapshots: Arc::clone(&snapshots),
            log: log.sender(),
            spans: Arc::clone(&spans),
            fleet: fleet.state(),
            started: SystemTime::now(),
        };
        let places = (budget.connections * count) as u64;
        let is_leaving = Arc::<AtomicBool>::default();
        let shared = SharedByLoops {
            gatherer,
            rates: Arc::default(),
            requests: Arc::default(),
            connections: Arc::new(Connections::new(places)),
            is_leaving: Arc::clone(&is_leaving),
            explain: explain.map(Arc::new),
            compressor: Compressor::new(),
            page_cache: Arc::clone(&page_cache),
            scripts: Arc::clone(&scripts),
        };
        if generation.config.fleet.is_some() {
            fleet.settle_first();
        }
        let (mut handles, mut loops) = (Vec::new(), Vec::new());
        for (number, (listeners, questions)) in listeners.into_iter().zip(asked).enumerate() {
            let (new_links, links) = mpsc::unbounded_channel();
            let (tell, orders) = mpsc::unbounded_channel();
            handles.push(LoopHandle { orders: tell, links: new_links });
            loops.push(EventLoop {
                number,
                generation: Arc::clone(&generation),
                shared: shared.clone(),
                pools: pools.clone(),
                snapshots: Arc::clone(&snapshots),
                listeners,
                links,
                orders,
                asked: questions,
                stop: stopping.clone(),
                announce: Arc::clone(&announce),
                budget,
                log_sender: log.sender(),
                busy: busy.clone(),
                draining: Arc::clone(&draining),
            });
        }
        // The log's thread ends when its last sender is dropped: only the loops keep senders.
        drop(shared);
        drop(busy);
        let mut loops = loops.into_iter();
        let first = loops.next().ok_or_else(|| io::Error::other("no event loop was asked for"))?;
        let threads: Vec<_> = loops
            .map(|event_loop| {
                let (name, stopper) = (format!("loop-{}", event_loop.number), stopper.clone());
                std::thread::Builder::new().name(name).stack_size(STACK).spawn(move || {
                    let result = event_loop.run(pending());
                    // If a loop could not start, the connections that the kernel gives to its
                    // listeners would not be accepted: all loops end, and the supervisor starts a
                    // new front.
                    drain(&stopper);
                    result
                })
            })
            .collect::<io::Result<_>>()?;
        let log = Rc::new(log);
        let writer = Rc::clone(&log);
        let (exports, end_by) = (Rc::clone(&exporter), Cell::new(None::<Instant>));
        let membership = Rc::clone(&fleet);
        let result = first.run(async {
            let mut orders = orders()?;
            if let Some((channel, registrations)) = channel.zip(registrations) {
                let links = handles.iter().map(|event_loop| event_loop.links.clone()).collect();
                tokio::task::spawn_local(channel.receive(registrations, links));
            }
            let (lost, mut first_lost) = mpsc::unbounded_channel();
            let pools = users.into_iter().zip(pool_sockets).zip(pools);
            let pools = pools.map(|((users, socket), pool)| (users, socket, pool)).collect();
            let means = Means {
                tickets,
                log: writer,
                exporter: exports,
                fleet: membership,
                page_cache,
                scripts,
                lost,
                is_leaving,
            };
            let running = RunningFront::new(handles, generation, pools, means);
            running.join_fleet(engine_password.as_ref());
            let mut is_over = false;
            tokio::select! {
                end = running.follow(&mut orders) => is_over = end == ShutdownMode::Cut,
                // The supervisor has gone, or workers can no longer be announced.
                Some(result) = first_lost.recv() => {
                    tracing::info!(?result, "the pool socket is closed, the front stops");
                }
            }
            drain(&stopper);
            if !is_over {
                let drain_timeout = running.config().drain_timeout();
                end_by.set(Some(Instant::now() + drain_timeout));
                tokio::select! {
                    () = tokio::time::sleep(drain_timeout) => {}
                    () = running.told_to_cut(&mut orders) => {}
                }
            }
            stopper.send_replace(Stage::Cutting);
            pending().await
        });
        for thread in threads {
            thread.join().map_err(|_| io::Error::other("an event loop panicked"))??;
        }
        // Beyond that time, the reserve before the supervisor kills the front is left.
        let left = || {
            let left = end_by.get().map(|end| end.saturating_duration_since(Instant::now()));
            left.unwrap_or_default()
        };
        fleet.finish(left().clamp(LEAST_AT_END, MOST_FOR_PURGES));
        exporter.finish(left().clamp(LEAST_AT_END, MOST_FOR_SPANS));
        if let Some(log) = Rc::into_inner(log) {
            log.finish();
        }
        result
    }
}

/// The pools of the configuration that the front starts with.
fn new_pools(config: &Config, loops: usize, sockets: &[OwnedFd]) -> io::Result<Vec<NewPool>> {
    let new = |(config, socket): (&PoolConfig, &OwnedFd)| {
        let master = Master::new(socket)?;
        // Without this message the master does not replace workers that hang in requests of the
        // previous front.
        if let Err(error) = master.front_started() {
            tracing::warn!(%error, pool = config.name, "the pool's master takes no messages");
        }
        Ok(NewPool::new(config, loops, master))
    };
    config.pools.iter().zip(sockets).map(new).collect()
}

/// Tells all event loops to take no more requests.
fn drain(stopper: &watch::Sender<Stage>) {
    stopper.send_if_modified(|stage| {
        let was_serving = *stage == Stage::Serving;
        if was_serving {
            *stage = Stage::Draining;
        }
        was_serving
    });
}

fn budget(config: &Config, listeners: &[Vec<OwnedFd>]) -> io::Result<DescriptorBudget> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let first_workers: usize = config.pools.iter().map(PoolConfig::first_workers).sum();
    let most_workers = config.pools.iter().map(PoolConfig::most_workers).sum();
    let of_loop = listeners.first().map_or(0, Vec::len);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let loops = listeners.len();
    let checked = DescriptorBudget::check(limit, loops, of_loop, first_workers);
    checked.map_err(|too_few| io::Error::other(too_few.to_string()))?;
    descriptors::set_limit(limit);
    // Pools rarely have all their workers at the same time: the links that are counted take at most
    // half of the descriptors.
    let workers = (limit / (4 * loops.max(1))).clamp(first_workers, most_workers);
    Ok(DescriptorBudget::new(limit, loops, of_loop, workers))
}

/// The channel, if an application on this host could use it.
fn open_channel(sites: &[Site], event_loops: usize) -> Option<(Channel, OwnedFd)> {
    let is_here = |attachment: &Attachment| !matches!(attachment.address, Address::Tcp(_));
    if !sites.iter().any(|site| site.channel && site.fastcgi.iter().any(is_here)) {
        return None;
    }
    let opened = Channel::open(event_loops);
    if let Err(error) = &opened {
        tracing::warn!(%error, "no channel for FastCGI applications: they cannot hand files over");
    }
    opened.ok()
}
