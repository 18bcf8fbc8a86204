//! A running front: its generation, and its reactions to orders.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sendoff_config::{Config, LogTarget};
use sendoff_lua_host::SharedByScripts;
use sendoff_page_cache::{FragmentPurge, PageCache};
use sendoff_report::access_log;
use sendoff_report::status::Status;
use sendoff_tls::{FleetSecrets, Tickets, Vault};
use sendoff_upstream_worker::register::NewLink;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{spawn_blocking, spawn_local};

use super::exporter::Exporter;
use super::fleet::Membership;
use super::generation::{Generation, NewPool, tls_replaced};
use super::orders::{FrontOrder, Orders};
use super::running_loop::LoopOrder;
use super::running_pool::{Phase, RunningPool};

/// The way in which the front ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShutdownMode {
    Drain,
    Cut,
}

/// The channels to an event loop.
#[derive(Debug, Clone)]
pub(super) struct LoopHandle {
    pub(super) orders: mpsc::UnboundedSender<LoopOrder>,
    pub(super) links: mpsc::UnboundedSender<NewLink>,
}

/// A running front.
pub(super) struct RunningFront {
    pub(super) loops: Vec<LoopHandle>,
    pub(super) generation: RefCell<Arc<Generation>>,
    /// The pools of the current generation, by number.
    pub(super) pools: RefCell<Vec<Rc<RunningPool>>>,
    /// Number of places that pools have had.
    pub(super) places: Cell<usize>,
    /// The places of listeners, indexed by their numbers in the current configuration.
    pub(super) listeners: RefCell<Vec<usize>>,
    /// Number of places that listeners have had. Sites refer to listeners by place, so a connection
    /// keeps its listener across a reload.
    pub(super) listener_places: Cell<usize>,
    pub(super) means: Means,
}

/// Objects of a running front that are made before it.
pub(super) struct Means {
    /// Keys of sessions, which outlive a reload.
    pub(super) tickets: Tickets,
    /// The front waits for the end of the log before it ends itself.
    pub(super) log: Rc<access_log::LogWriter>,
    /// Sends spans to the collector.
    pub(super) exporter: Rc<Exporter>,
    /// Exchanges purges and keys with other nodes.
    pub(super) fleet: Rc<Membership>,
    pub(super) page_cache: Arc<PageCache>,
    pub(super) scripts: Arc<SharedByScripts>,
    /// Receives the result when the pool socket of a pool in use is closed.
    pub(super) lost: mpsc::UnboundedSender<io::Result<()>>,
    /// Set when the server is about to end.
    pub(super) is_leaving: Arc<AtomicBool>,
}

impl RunningFront {
    /// `users`: for each pool of the generation, the channel that tells whether it has users.
    pub(super) fn new(
        loops: Vec<LoopHandle>,
        generation: Arc<Generation>,
        pools: Vec<(watch::Sender<()>, OwnedFd, NewPool)>,
        means: Means,
    ) -> Rc<Self> {
        let places = Cell::new(pools.len());
        let config = Arc::clone(&generation.config);
        let generation = RefCell::new(generation);
        let listeners = RefCell::new((0..config.listen.len()).collect());
        let listener_places = Cell::new(config.listen.len());
        let pools_running = RefCell::default();
        let running = Self {
            loops,
            generation,
            pools: pools_running,
            places,
            listeners,
            listener_places,
            means,
        };
        let pools = pools.into_iter().enumerate().map(|(place, (users, socket, new))| {
            running.receive(place, users, socket, &new, Phase::Serving)
        });
        *running.pools.borrow_mut() = pools.collect();
        Rc::new(running)
    }

    /// The current configuration.
    pub(super) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.generation.borrow().config)
    }

    /// Belongs to the fleet of the current configuration, or to none.
    pub(super) fn join_fleet(&self, secrets: &FleetSecrets) {
        let (config, fleet) = (self.config(), &self.means.fleet);
        if config.keeps_pages() {
            // Purges of other nodes must find the journal open. It may be open already.
            self.means.page_cache.start(config.front.page_cache.size);
        }
        let pools = self.pools.borrow().iter().map(|pool| Arc::clone(&pool.shared)).collect();
        fleet.set(&config, pools);
        fleet.serve(config.fleet.as_ref(), secrets);
    }

    /// Follows orders until one of them ends the front.
    pub(super) async fn follow(self: &Rc<Self>, orders: &mut impl Orders) -> ShutdownMode {
        loop {
            match orders.next().await {
                FrontOrder::Drain => return ShutdownMode::Drain,
                FrontOrder::Cut => return ShutdownMode::Cut,
                FrontOrder::Leave => self.means.is_leaving.store(true, Ordering::Relaxed),
                FrontOrder::ReopenLogs(files) => self.reopen(files),
                FrontOrder::Challenges(challenges, reply) => {
                    let challenging = Arc::clone(&self.generation.borrow().challenges);
                    // Fails if the other side no longer waits for the answer.
                    let _ = reply.send(challenging.replace(challenges));
                }
                FrontOrder::Certificates(vault, reply) => {
                    let _ = reply.send(self.replace_certificates(&vault).await);
                }
                FrontOrder::Status(reply) => drop(spawn_local(self.status(reply))),
                FrontOrder::Purge(purge, reply) => {
                    if let FragmentPurge::Everything = purge.of_fragments() {
                        self.pools
                            .borrow()
                            .iter()
                            .for_each(|pool| pool.shared.purge_fragments(None));
                        self.means.scripts.purge_fragments(None, None);
                    }
                    let cache = Arc::clone(&self.means.page_cache);
                    // Fails if the other side no longer waits for the answer.
                    drop(spawn_blocking(move || reply.send(cache.purge(&purge))));
                }
                FrontOrder::Warm(reply) => {
                    if let Some(first) = self.loops.first() {
                        // Fails only if the loop has ended.
                        let _ = first.orders.send(LoopOrder::Warm(reply));
                    }
                }
                FrontOrder::Reload(reload, reply) => {
                    let running = Rc::clone(self);
                    spawn_local(async move {
                        // Fails if the other side no longer waits for the answer.
                        let _ = reply.send(running.reload(*reload).await);
                    });
                }
            }
        }
    }

    /// Has logs written to other files. Files of targets that are not in use are left out.
    fn reopen(&self, files: Vec<(LogTarget, File)>) {
        let generation = self.generation.borrow();
        let targets = generation.config.log_targets();
        let in_use = files.into_iter().filter_map(|(target, file)| {
            let number = targets.iter().position(|known| **known == target)?;
            Some((Arc::clone(&generation.logs[number]), file))
        });
        self.means.log.reopen(in_use);
    }

    /// Asks every event loop for its state.
    fn status(&self, reply: oneshot::Sender<Status>) -> impl Future<Output = ()> + use<> {
        let (sender, mut said) = mpsc::unbounded_channel();
        self.tell(|| LoopOrder::Status(sender.clone()));
        drop(sender);
        async move {
            let mut status = Status::default();
            while let Some(of_loop) = said.recv().await {
                status.add(of_loop);
            }
            // Fails if the other side no longer waits for the answer.
            let _ = reply.send(status);
        }
    }

    /// Sends an order to every loop.
    pub(super) fn tell(&self, order: impl Fn() -> LoopOrder) {
        for event_loop in &self.loops {
            // Fails only if the loop has ended; then it needs no order.
            let _ = event_loop.orders.send(order());
        }
    }

    /// Sends an order to every loop, and waits until all have followed it.
    pub(super) async fn tell_and_wait(
        &self,
        order: impl Fn(mpsc::Sender<Infallible>) -> LoopOrder,
    ) {
        let (done, mut followed) = mpsc::channel(1);
        self.tell(|| order(done.clone()));
        drop(done);
        let None = followed.recv().await;
    }

    /// Uses these certificates for new connections from now on.
    async fn replace_certificates(&self, vault: &Vault) -> Result<(), String> {
        let before = Arc::clone(&self.generation.borrow());
        let tls = tls_replaced(&before, vault, &self.means.tickets)?;
        let generation = Arc::new(Generation { tls, ..Generation::clone(&before) });
        self.generation.replace(Arc::clone(&generation));
        self.tell_and_wait(|done| LoopOrder::Serve {
            generation: Arc::clone(&generation),
            listeners: None,
            done,
        })
        .await;
        Ok(())
    }
}
