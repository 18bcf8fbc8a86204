//! The front: event loops, each in a thread of its own, that share the pool of workers and nothing else.

mod accept;
mod announce;
mod budget;
mod event_loop;

use std::fs::File;
use std::future::{Future, pending};
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;

use rustix::process::{Resource, getrlimit};
use sendoff_config::{Address, Attachment, Config, PoolConfig, Site};
use sendoff_sys::process::keep_freed_memory;
use tokio::sync::{mpsc, watch};

use announce::Announce;
use budget::Budget;
use event_loop::{EventLoop, KEPT_MEMORY};

use crate::delivery::{SnapshotLimits, Snapshots};
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
    /// The listeners of each event loop: as many lists as threads.
    pub listeners: Vec<Vec<TcpListener>>,
    /// Where the PHP master sends new workers.
    pub pool_socket: OwnedFd,
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
        let Self { config, access_log, explain, listeners, pool_socket } = self;
        let site = config.sites.first().ok_or_else(|| io::Error::other("there is no site"))?;
        let workers = config.pool.as_ref().map_or(0, PoolConfig::first_workers);
        let count = listeners.len();
        let pool = Pool::new(count);
        let snapshots = Snapshots::new(SnapshotLimits::default());
        let applications = applications(site);
        let (channel, registrations) = open_channel(site, count).unzip();
        let (stopper, stopping) = watch::channel(Stage::Serving);
        let announce = Announce::new(count, workers, Arc::clone(&pool), ready);
        let (draining, busy) = watch::channel(());
        let draining = Arc::new(draining);
        let log = access_log.as_ref().map(access_log::Writer::start).transpose()?;
        let budget = budget(&config, &listeners, workers);
        let master = Master::new(&pool_socket)?;
        // If it cannot be told, workers that hang in requests of the previous front are not missed.
        if let Err(error) = master.front_started() {
            tracing::warn!(%error, "the PHP master does not take messages");
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
                pool: Arc::clone(&pool),
                snapshots: Arc::clone(&snapshots),
                applications: Arc::clone(&applications),
                channel: channel.clone(),
                listeners,
                links,
                master: master.clone(),
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
            let mut registered = pin!(receive_workers(pool_socket, &senders));
            let mut is_open = true;
            tokio::select! {
                () = stop => {}
                // The supervisor is gone, or workers cannot be announced any more.
                result = &mut registered => {
                    tracing::info!(?result, "the pool socket is closed, the front stops");
                    is_open = false;
                }
            }
            drain(&stopper);
            // Requests that are still open may need the workers that take the place of others.
            let rest = async {
                if is_open {
                    drop(registered.await);
                }
                pending::<()>().await;
            };
            // It never ends by itself.
            let _over = tokio::time::timeout(drain_timeout, rest).await;
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

fn budget(config: &Config, listeners: &[Vec<TcpListener>], workers: usize) -> Budget {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let bounds = config.pool.as_ref().and_then(PoolConfig::bounds);
    let workers = bounds.map_or(workers, |bounds| bounds.max);
    let of_loop = listeners.first().map_or(0, Vec::len);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    Budget::new(limit, listeners.len(), of_loop, workers)
}

/// One for each attachment; attachments to the same address share it, and with it the connections.
fn applications(site: &Site) -> Arc<[Arc<Application>]> {
    let mut all: Vec<Arc<Application>> = Vec::new();
    for Attachment { address, .. } in &site.fastcgi {
        let known = all.iter().find(|application| application.address() == address).cloned();
        let new = || Application::new(address.clone(), site.fastcgi_timeout);
        all.push(known.unwrap_or_else(new));
    }
    all.into()
}

/// The channel, if there is an application that could use it: one on this host.
fn open_channel(site: &Site, event_loops: usize) -> Option<(Channel, OwnedFd)> {
    let is_here = |attachment: &Attachment| matches!(attachment.address, Address::Unix(_));
    if !site.channel || !site.fastcgi.iter().any(is_here) {
        return None;
    }
    let opened = Channel::open(event_loops);
    if let Err(error) = &opened {
        tracing::warn!(%error, "no channel for FastCGI applications: they cannot hand files over");
    }
    opened.ok()
}
