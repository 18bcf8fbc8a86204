//! The front: event loops, each in a thread of its own, that share the pool of workers and nothing else.

mod accept;
mod announce;
mod budget;
mod event_loop;
mod listener;
mod proxy_header;

use std::collections::HashMap;
use std::fs::File;
use std::future::{Future, pending};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use sendoff_config::{Address, Attachment, Config, PoolConfig, Site};
use sendoff_sys::process::keep_freed_memory;
use tokio::sync::{mpsc, watch};

use announce::Announce;
use budget::Budget;
use event_loop::{EventLoop, KEPT_MEMORY};

use crate::delivery::{SnapshotLimits, Snapshots};
use crate::descriptors;
use crate::lifecycle::Stage;
use crate::observe::access_log;
use crate::observe::explain::Secret;
use crate::upstream::{Application, Channel, Master, Pool, receive_workers};

/// What a front is started with.
#[derive(Debug)]
pub struct Front {
    /// What to do, the same for all event loops.
    pub config: Config,
    /// Where the access log goes, opened for appending.
    pub access_log: Option<File>,
    /// What `sendoff explain` knows; `None`: nothing is explained.
    pub explain: Option<Secret>,
    /// The listening sockets of each event loop, in the order of `Config::listen`: as many lists as threads.
    pub listeners: Vec<Vec<OwnedFd>>,
    /// Where the PHP master of each pool sends new workers.
    pub pool_sockets: Vec<OwnedFd>,
}

impl Front {
    /// Runs until `stop` says so and the last response has been sent, or the shutdown timeout is over: responses that are then
    /// under way are cut. `ready` is called from any thread, once, when all workers have arrived.
    ///
    /// # Errors
    /// An event loop could not be started.
    pub fn run(
        self,
        ready: impl Fn() + Send + Sync + 'static,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        keep_freed_memory(KEPT_MEMORY);
        let Self { config, access_log, explain, listeners, pool_sockets } = self;
        let count = listeners.len();
        let pools: Vec<_> = config.pools.iter().map(|_| Pool::new(count)).collect();
        let budget = budget(&config, &listeners)?;
        let limits = SnapshotLimits { descriptors: budget.snapshots, ..SnapshotLimits::default() };
        let snapshots = Snapshots::new(limits);
        let applications = applications(&config.sites);
        let (channel, registrations) = open_channel(&config.sites, count).unzip();
        let (stopper, stopping) = watch::channel(Stage::Serving);
        let first_workers = config.pools.iter().map(PoolConfig::first_workers);
        let announce =
            Announce::new(count, pools.iter().cloned().zip(first_workers).collect(), ready);
        let (draining, busy) = watch::channel(());
        let draining = Arc::new(draining);
        let log = access_log.as_ref().zip(config.front.access_log.as_ref());
        let log = log.map(|(file, log)| access_log::Writer::start(file, log.format.clone()));
        let log = log.transpose()?;
        let masters = pool_sockets.iter().map(Master::new).collect::<io::Result<Vec<_>>>()?;
        for (master, config) in masters.iter().zip(&config.pools) {
            // If it cannot be told, workers that hang in requests of the previous front are not missed.
            if let Err(error) = master.front_started() {
                tracing::warn!(%error, pool = config.name, "the PHP master takes no messages");
            }
        }
        let (config, explain) = (Arc::new(config), explain.map(Arc::new));
        let (mut senders, mut loops) = (Vec::new(), Vec::new());
        for (number, listeners) in listeners.into_iter().enumerate() {
            let (sender, links) = mpsc::unbounded_channel();
            senders.push(sender);
            loops.push(EventLoop {
                number,
                config: Arc::clone(&config),
                explain: explain.clone(),
                pools: pools.clone(),
                snapshots: Arc::clone(&snapshots),
                applications: Arc::clone(&applications),
                channel: channel.clone(),
                listeners,
                links,
                masters: masters.clone(),
                stop: stopping.clone(),
                announce: Arc::clone(&announce),
                budget,
                access_log: log.as_ref().map(access_log::Writer::log),
                busy: busy.clone(),
                draining: Arc::clone(&draining),
            });
        }
        drop(busy);
        let mut loops = loops.into_iter();
        let first = loops.next().ok_or_else(|| io::Error::other("no event loop was asked for"))?;
        let threads: Vec<_> = loops
            .map(|event_loop| {
                let (name, stopper) = (format!("loop-{}", event_loop.number), stopper.clone());
                std::thread::Builder::new().name(name).spawn(move || {
                    let result = event_loop.run(pending());
                    // If it could not start, no thread accepts what the kernel gives to its listeners: all of them end, and
                    // the supervisor starts a new front.
                    drain(&stopper);
                    result
                })
            })
            .collect::<io::Result<_>>()?;
        let drain_timeout = config.drain_timeout();
        let result = first.run(async move {
            if let Some((channel, registrations)) = channel.zip(registrations) {
                tokio::task::spawn_local(channel.receive(registrations, senders.clone()));
            }
            // Their tasks go on after the stop: requests that are still open may need the workers that take the place of others.
            let (closed, mut first_closed) = mpsc::channel(pool_sockets.len().max(1));
            for (number, socket) in pool_sockets.into_iter().enumerate() {
                let (senders, closed) = (senders.clone(), closed.clone());
                tokio::task::spawn_local(async move {
                    let result = receive_workers(number, socket, &senders).await;
                    drop(closed.send(result).await);
                });
            }
            tokio::select! {
                () = stop => {}
                // The supervisor is gone, or workers cannot be announced any more.
                Some(result) = first_closed.recv() => {
                    tracing::info!(?result, "the pool socket is closed, the front stops");
                }
            }
            drain(&stopper);
            tokio::time::sleep(drain_timeout).await;
            stopper.send_replace(Stage::Cutting);
            pending::<()>().await;
        });
        for thread in threads {
            thread.join().map_err(|_| io::Error::other("an event loop panicked"))??;
        }
        if let Some(log) = log {
            log.finish();
        }
        result
    }
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

fn budget(config: &Config, listeners: &[Vec<OwnedFd>]) -> io::Result<Budget> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let first_workers = config.pools.iter().map(PoolConfig::first_workers).sum();
    let workers = config.pools.iter().map(PoolConfig::most_workers).sum();
    let of_loop = listeners.first().map_or(0, Vec::len);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let loops = listeners.len();
    let checked = Budget::check(limit, loops, of_loop, first_workers);
    checked.map_err(|too_few| io::Error::other(too_few.to_string()))?;
    descriptors::set_limit(limit);
    Ok(Budget::new(limit, loops, of_loop, workers))
}

/// One for each attachment of each site. Attachments to the same address with the same time limit share it, and with it the
/// connections.
fn applications<'c>(sites: &'c [Site]) -> Arc<[Vec<Arc<Application>>]> {
    let mut known: HashMap<(&Address, Duration), Arc<Application>> = HashMap::new();
    let mut all = Vec::with_capacity(sites.len());
    for Site { fastcgi, fastcgi_timeout, .. } in sites {
        let application = |attachment: &'c Attachment| {
            let address = &attachment.address;
            let new = || Application::new(address.clone(), *fastcgi_timeout);
            Arc::clone(known.entry((address, *fastcgi_timeout)).or_insert_with(new))
        };
        all.push(fastcgi.iter().map(application).collect());
    }
    all.into()
}

/// The channel, if there is an application that could use it: one on this host.
fn open_channel(sites: &[Site], event_loops: usize) -> Option<(Channel, OwnedFd)> {
    let is_here = |attachment: &Attachment| matches!(attachment.address, Address::Unix(_));
    if !sites.iter().any(|site| site.channel && site.fastcgi.iter().any(is_here)) {
        return None;
    }
    let opened = Channel::open(event_loops);
    if let Err(error) = &opened {
        tracing::warn!(%error, "no channel for FastCGI applications: they cannot hand files over");
    }
    opened.ok()
}
