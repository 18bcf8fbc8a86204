//! The beginning of a front: the objects that its event loops share, and the event loops themselves,
//! before any of them runs.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use sendoff_compress::Compressor;
use sendoff_config::{Address, Attachment, Config, PoolConfig, Site};
use sendoff_delivery::{SnapshotLimits, Snapshots};
use sendoff_exchange::clients::Connections;
use sendoff_exchange::rates::Rates;
use sendoff_lua_host::SharedByScripts;
use sendoff_observe::gather::Gatherer;
use sendoff_page_cache::PageCache;
use sendoff_report::access_log::{LogFile, LogWriter};
use sendoff_tls::{FleetSecrets, Tickets, Vault};
use sendoff_traces::Spans;
use sendoff_upstream_fastcgi::channel::Channel;
use sendoff_upstream_worker::master::Master;
use tokio::sync::{mpsc, watch};

use super::Front;
use super::announce::Announce;
use super::budget::DescriptorBudget;
use super::event_loop::EventLoop;
use super::exporter::Exporter;
use super::fleet::Membership;
use super::generation::{Generation, NewPool, PoolUse, attached_of, gateways, tls_of_sites};
use super::running::{LoopHandle, Means, RunningFront};
use super::running_loop::SharedByLoops;
use super::shutdown::Stopper;

/// A front that does not run yet.
pub(super) struct Beginning {
    pub(super) loops: Vec<EventLoop>,
    pub(super) beside: BesideLoops,
}

/// The part of a front that is going to run beside its first event loop.
pub(super) struct BesideLoops {
    handles: Vec<LoopHandle>,
    generation: Arc<Generation>,
    /// Each pool, with the channel that tells whether it has users, and its pool socket.
    pools: Vec<(watch::Sender<()>, OwnedFd, NewPool)>,
    /// The end of the channel on which FastCGI applications register.
    registrations: Option<OwnedFd>,
    pub(super) means: Means,
    /// Results of pools in use whose pool socket is closed.
    lost: mpsc::UnboundedReceiver<io::Result<()>>,
    secrets: FleetSecrets,
}

impl Beginning {
    /// `ready` is called once all event loops run and all workers have arrived.
    pub(super) fn of(
        front: Front,
        stopper: &Stopper,
        ready: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let Front { config, vault, access_logs, explain, listeners, pool_sockets, script_purges } =
            front;
        let count = listeners.len();
        let budget = DescriptorBudget::of_process(&config, &listeners)?;
        let limits = SnapshotLimits { descriptors: budget.snapshots, ..SnapshotLimits::default() };
        let snapshots = Snapshots::new(limits);
        let (channel, registrations) = open_channel(&config.sites, count).unzip();
        let pools = new_pools(&config, count, &pool_sockets)?;
        let first_workers = config.pools.iter().map(PoolConfig::first_workers);
        let shared = pools.iter().map(|pool| Arc::clone(&pool.shared));
        let announce = Announce::new(count, shared.zip(first_workers).collect(), ready);
        let (users, generation) = first_generation(config, &vault, &pools, channel, access_logs)?;
        let spans = Arc::<Spans>::default();
        let rates = Arc::<Rates>::default();
        let scripts = Arc::new(SharedByScripts::new(script_purges));
        let (means, lost) = means(&generation, &spans, &rates, scripts)?;
        let (askers, asked): (Vec<_>, Vec<_>) =
            (0..count).map(|_| mpsc::unbounded_channel()).unzip();
        let gatherer = Gatherer {
            loops: askers.into(),
            snapshots: Arc::clone(&snapshots),
            log: means.log.sender(),
            spans,
            fleet: means.fleet.state(),
            started: SystemTime::now(),
        };
        let places = (budget.connections * count) as u64;
        // The log's thread ends when its last sender is dropped: only the loops keep senders.
        let shared = SharedByLoops {
            gatherer,
            rates,
            requests: Arc::default(),
            connections: Arc::new(Connections::new(places)),
            is_leaving: Arc::clone(&means.is_leaving),
            explain: explain.map(Arc::new),
            compressor: Compressor::new(),
            page_cache: Arc::clone(&means.page_cache),
            scripts: Arc::clone(&means.scripts),
        };
        let (draining, busy) = watch::channel(());
        let draining = Arc::new(draining);
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
                stop: stopper.stage(),
                announce: Arc::clone(&announce),
                budget,
                log_sender: means.log.sender(),
                busy: busy.clone(),
                draining: Arc::clone(&draining),
            });
        }
        let pools = users.into_iter().zip(pool_sockets).zip(pools);
        let pools = pools.map(|((users, socket), pool)| (users, socket, pool)).collect();
        let secrets = vault.fleet;
        let beside =
            BesideLoops { handles, generation, pools, registrations, means, lost, secrets };
        Ok(Self { loops, beside })
    }
}

impl BesideLoops {
    /// Receives workers and registrations of applications, and belongs to the fleet. Call it inside
    /// an event loop. Also returns the results of pools in use whose pool socket is closed.
    pub(super) fn start(self) -> (Rc<RunningFront>, mpsc::UnboundedReceiver<io::Result<()>>) {
        let Self { handles, generation, pools, registrations, means, lost, secrets } = self;
        if let Some((channel, registrations)) = generation.channel.clone().zip(registrations) {
            let links = handles.iter().map(|event_loop| event_loop.links.clone()).collect();
            tokio::task::spawn_local(channel.receive(registrations, links));
        }
        let running = RunningFront::new(handles, generation, pools, means);
        running.join_fleet(&secrets);
        (running, lost)
    }
}

/// The generation that the front starts with. For each pool, the channel closes when no generation
/// uses the pool any more.
fn first_generation(
    config: Config,
    vault: &Vault,
    pools: &[NewPool],
    channel: Option<Channel>,
    access_logs: Vec<File>,
) -> io::Result<(Vec<watch::Sender<()>>, Arc<Generation>)> {
    let (users, in_use): (Vec<_>, Vec<_>) = pools.iter().map(|_| watch::channel(())).unzip();
    let used = pools.iter().zip(in_use).enumerate().map(|(place, (pool, in_use))| {
        let application = pool.program.as_ref().map(|program| Arc::clone(&program.attached));
        PoolUse { place, in_use, application }
    });
    let used: Vec<_> = used.collect();
    let tickets = Tickets::new().map_err(io::Error::other)?;
    let generation = Generation {
        tls: tls_of_sites(&config, vault, &tickets).map_err(io::Error::other)?,
        tickets,
        challenges: Arc::default(),
        attached: attached_of(&config, &used, HashMap::new()),
        gateways: gateways(&config, &[]),
        channel,
        logs: access_logs.into_iter().map(LogFile::new).collect(),
        auth: Arc::default(),
        pools: used,
        config: Arc::new(config),
    };
    Ok((users, Arc::new(generation)))
}

/// The objects of the front that outlive reloads, and the end of the channel for results of pools
/// whose pool socket is closed.
fn means(
    generation: &Generation,
    spans: &Arc<Spans>,
    rates: &Arc<Rates>,
    scripts: Arc<SharedByScripts>,
) -> io::Result<(Means, mpsc::UnboundedReceiver<io::Result<()>>)> {
    let (config, tickets) = (&generation.config, generation.tickets.clone());
    let log = LogWriter::start()?;
    let exporter = Exporter::new(Arc::clone(spans));
    exporter.serve(config.traces.as_ref());
    let page_store = &config.front.page_cache;
    let page_cache = PageCache::new(page_store);
    // Without kept pages the folder need not exist.
    let folder = config.keeps_pages().then_some(&*page_store.folder);
    let fleet = Membership::new(&page_cache, &scripts, rates, &tickets, folder);
    if config.fleet.is_some() {
        fleet.settle_first();
    }
    let (lost, first_lost) = mpsc::unbounded_channel();
    let means = Means {
        tickets,
        log: Rc::new(log),
        exporter: Rc::new(exporter),
        fleet: Rc::new(fleet),
        page_cache,
        scripts,
        lost,
        is_leaving: Arc::default(),
    };
    Ok((means, first_lost))
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
