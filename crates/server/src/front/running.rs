//! A running front: its generation, and its reactions to orders.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sendoff_config::{Config, LogTarget, PoolConfig};
use sendoff_lua_host::SharedByScripts;
use sendoff_page_cache::{FragmentPurge, PageCache};
use sendoff_report::access_log;
use sendoff_report::access_log::LogFile;
use sendoff_report::status::Status;
use sendoff_tls::{FleetSecrets, Tickets, Vault};
use sendoff_upstream_fastcgi::attached::Attached;
use sendoff_upstream_worker::master::Master;
use sendoff_upstream_worker::pool::Pool;
use sendoff_upstream_worker::register::{NewLink, receive_workers};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, spawn_blocking, spawn_local};
use tokio::time::{Instant, sleep};

use super::exporter::Exporter;
use super::fleet::Membership;
use super::generation::{
    Generation, NewPool, NewProgram, PoolUse, Tasks, gateways, tls_of_sites, tls_replaced,
};
use super::orders::{FrontOrder, ListenerSource, LogSource, Orders, PoolSource, Reload};
use super::pool_status::answer;
use super::running_loop::{ListenerChanges, LoopOrder};

/// Longest time for the first workers of a new pool to arrive, beside the time limit for the start
/// of PHP.
const WORKERS_TIMEOUT: Duration = Duration::from_secs(60);

/// Interval between two checks whether they have arrived.
const WORKERS_CHECK: Duration = Duration::from_millis(5);

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
    loops: Vec<LoopHandle>,
    generation: RefCell<Arc<Generation>>,
    /// The pools of the current generation, by number.
    pools: RefCell<Vec<Rc<RunningPool>>>,
    /// Number of places that pools have had.
    places: Cell<usize>,
    /// The places of listeners, indexed by their numbers in the current configuration.
    listeners: RefCell<Vec<usize>>,
    /// Number of places that listeners have had. Sites refer to listeners by place, so a connection
    /// keeps its listener across a reload.
    listener_places: Cell<usize>,
    means: Means,
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

/// A pool whose workers the front receives.
struct RunningPool {
    place: usize,
    shared: Arc<Pool>,
    /// Closed once no user of the pool is left.
    users: watch::Sender<()>,
    receives: JoinHandle<()>,
    /// Tells the meaning of the socket's end.
    phase: Rc<Cell<Phase>>,
    /// The program's application, if the pool has a program.
    application: Option<Attached>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The workers are awaited: a closed socket fails the reload that brings the pool.
    Arriving,
    /// The pool is in use: a closed socket ends the front.
    Serving,
    /// The pool is being removed: its master may end.
    Leaving,
    /// The socket was closed before the pool was in use.
    Failed,
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

    /// Receives the workers of a pool and answers their questions about its state, or receives the
    /// state of its program. Goes on after the stop: open requests may need replacements of
    /// workers.
    fn receive(
        &self,
        place: usize,
        users: watch::Sender<()>,
        socket: OwnedFd,
        new: &NewPool,
        phase: Phase,
    ) -> Rc<RunningPool> {
        let links: Vec<_> = self.loops.iter().map(|event_loop| event_loop.links.clone()).collect();
        let phase = Rc::new(Cell::new(phase));
        let (lost, at_end) = (self.means.lost.clone(), Rc::clone(&phase));
        let NewPool { shared: pool, config, program, .. } = new.clone();
        let application = program.as_ref().map(|program| Arc::clone(&program.attached));
        let shared = Arc::clone(&pool);
        let fleet = Rc::clone(&self.means.fleet);
        let receives = spawn_local(async move {
            let purges = |counters: Option<OwnedFd>| {
                pool.set_purge_counters(counters);
                if fleet.is_member() {
                    // The memory may be older than this front, which has perhaps obeyed purges of
                    // other nodes before it could reach the memory.
                    pool.purge_fragments(None);
                }
            };
            let mut answers = Tasks::default();
            let (ended, abandoned) = (Arc::clone(&pool), Arc::clone(&pool));
            let out_of_memory = || ended.note_out_of_memory();
            let result = match &program {
                Some(NewProgram { program, .. }) => {
                    let purges = |counters| purges(Some(counters));
                    program.receive(socket, out_of_memory, purges).await
                }
                None => {
                    let failing = Arc::clone(&pool);
                    let answers = |questions| {
                        let answer = answer(questions, Arc::clone(&pool), Arc::clone(&config));
                        // Ends the task that answers workers of a previous master.
                        answers = Tasks(vec![spawn_local(answer)]);
                    };
                    let cannot_start = || failing.set_cannot_start();
                    let more = (cannot_start, out_of_memory);
                    receive_workers(place, socket, &links, answers, purges, more.0, more.1).await
                }
            };
            match at_end.get() {
                Phase::Serving => {
                    abandoned.set_abandoned();
                    if let Some(NewProgram { program, .. }) = &program {
                        program.set_abandoned();
                    }
                    drop(lost.send(result));
                }
                Phase::Arriving | Phase::Failed => at_end.set(Phase::Failed),
                Phase::Leaving => {}
            }
        });
        Rc::new(RunningPool { place, shared, users, receives, phase, application })
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

    /// Waits until a draining front is ordered to end at once.
    pub(super) async fn told_to_cut(self: &Rc<Self>, orders: &mut impl Orders) {
        while self.follow(orders).await != ShutdownMode::Cut {}
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

    fn tell(&self, order: impl Fn() -> LoopOrder) {
        for event_loop in &self.loops {
            // Fails only if the loop has ended; then it needs no order.
            let _ = event_loop.orders.send(order());
        }
    }

    /// Sends an order to every loop, and waits until all have followed it.
    async fn tell_and_wait(&self, order: impl Fn(mpsc::Sender<Infallible>) -> LoopOrder) {
        let (done, mut followed) = mpsc::channel(1);
        self.tell(|| order(done.clone()));
        drop(done);
        let None = followed.recv().await;
    }

    /// Serves by another configuration from the next request on. The workers of new pools must
    /// arrive first; if they do not, nothing changes.
    async fn reload(self: Rc<Self>, reload: Reload) -> Result<(), String> {
        let Reload { mut config, vault, pools: sources, logs, listeners } = reload;
        let tls = tls_of_sites(&config, &vault, &self.means.tickets)?;
        let secrets = vault.fleet;
        let before = Arc::clone(&self.generation.borrow());
        let mut pools = Vec::new();
        let mut arriving = Vec::new();
        for (source, pool_config) in sources.into_iter().zip(&config.pools) {
            let pool = match source {
                PoolSource::Kept(number) => {
                    let kept = self.pools.borrow().get(number).cloned();
                    kept.ok_or("a pool that is to stay does not exist")?
                }
                PoolSource::New(socket) => {
                    let (pool, new) = self.add_pool(pool_config, socket).await?;
                    let arrives = Arriving { pool: Some(Rc::clone(&pool)), running: &self };
                    arriving.push((arrives, new));
                    pool
                }
            };
            pools.push(pool);
        }
        for (arrives, new) in &arriving {
            arrives.arrive(new).await?;
        }
        let arriving: Vec<_> = arriving.into_iter().map(|(arrives, _)| arrives).collect();
        let log = |source| match source {
            LogSource::Kept(number) => before.logs.get(number).cloned(),
            LogSource::New(file) => Some(LogFile::new(file)),
        };
        let logs: Option<_> = logs.into_iter().map(log).collect();
        let logs = logs.ok_or("a log that is to stay does not exist")?;
        let (listener_places, mut listeners) = self.listeners(listeners, &config)?;
        for site in &mut config.sites {
            let places = site.listeners.iter().filter_map(|number| listener_places.get(*number));
            site.listeners = places.copied().collect();
        }
        let config = Arc::new(config);
        let used = |pool: &Rc<RunningPool>| PoolUse {
            place: pool.place,
            in_use: pool.users.subscribe(),
            application: pool.application.clone(),
        };
        let used: Vec<_> = pools.iter().map(used).collect();
        let generation = Arc::new(Generation {
            attached: before.attached_for(&config, &used),
            gateways: gateways(&config, &before.gateways),
            channel: before.channel.clone(),
            logs,
            auth: Arc::clone(&before.auth),
            tls,
            tickets: before.tickets.clone(),
            challenges: Arc::clone(&before.challenges),
            pools: used,
            config,
        });
        let (done, mut followed) = mpsc::channel(1);
        for (event_loop, listeners) in self.loops.iter().zip(&mut listeners) {
            let (generation, listeners) =
                (Arc::clone(&generation), Some(std::mem::take(listeners)));
            let order = LoopOrder::Serve { generation, listeners, done: done.clone() };
            // Fails only if the loop has ended; then it needs no order.
            let _ = event_loop.orders.send(order);
        }
        drop(done);
        let None::<Infallible> = followed.recv().await;
        self.means.exporter.serve(generation.config.traces.as_ref());
        self.listeners.replace(listener_places);
        arriving.into_iter().for_each(Arriving::stay);
        pools.iter().for_each(|pool| pool.phase.set(Phase::Serving));
        self.generation.replace(generation);
        let left = self.pools.replace(pools);
        self.join_fleet(&secrets);
        let pools = self.pools.borrow();
        for pool in left.into_iter().filter(|left| !pools.iter().any(|pool| Rc::ptr_eq(pool, left)))
        {
            pool.phase.set(Phase::Leaving);
            let running = Rc::clone(&self);
            spawn_local(async move {
                pool.users.closed().await;
                running.end_pool(&pool);
            });
        }
        Ok(())
    }

    /// Returns the place of each listener of a configuration, and the changes for each event loop.
    fn listeners(
        &self,
        sources: Vec<ListenerSource>,
        config: &Config,
    ) -> Result<(Vec<usize>, Vec<ListenerChanges>), String> {
        let before = self.listeners.borrow();
        let mut of_loops = vec![ListenerChanges::default(); self.loops.len()];
        let mut places = Vec::new();
        for (source, listener) in sources.into_iter().zip(&config.listen) {
            let place = match source {
                ListenerSource::Kept(number) => {
                    let place =
                        *before.get(number).ok_or("a listener that is to stay does not exist")?;
                    for of_loop in &mut of_loops {
                        of_loop.kept.push((place, listener.clone()));
                    }
                    place
                }
                ListenerSource::New(sockets) => {
                    let place = self.listener_places.get();
                    self.listener_places.set(place + 1);
                    for (of_loop, socket) in of_loops.iter_mut().zip(sockets) {
                        of_loop.new.push((place, listener.clone(), Arc::new(socket)));
                    }
                    place
                }
            };
            places.push(place);
        }
        Ok((places, of_loops))
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

    /// Adds a pool to every event loop, and then receives its workers.
    async fn add_pool(
        &self,
        config: &PoolConfig,
        socket: OwnedFd,
    ) -> Result<(Rc<RunningPool>, NewPool), String> {
        let master = Master::new(&socket).and_then(|master| {
            master.front_started()?;
            Ok(master)
        });
        let master =
            master.map_err(|error| format!("the pool's master takes no messages: {error}"))?;
        let pool = NewPool::new(config, self.loops.len(), master);
        let place = self.places.get();
        self.places.set(place + 1);
        self.tell_and_wait(|done| LoopOrder::AddPool { pool: pool.clone(), done }).await;
        let (users, _) = watch::channel(());
        Ok((self.receive(place, users, socket, &pool, Phase::Arriving), pool))
    }

    /// Ends the workers of a pool that no request uses. Their master ends because its socket is
    /// closed.
    fn end_pool(&self, pool: &RunningPool) {
        self.tell(|| LoopOrder::EndPool { place: pool.place });
        pool.receives.abort();
    }
}

/// A new pool, which is removed again unless the reload that brings it succeeds.
struct Arriving<'r> {
    pool: Option<Rc<RunningPool>>,
    running: &'r RunningFront,
}

impl Arriving<'_> {
    /// Keeps the pool: the reload has succeeded.
    fn stay(mut self) {
        self.pool.take();
    }

    /// Waits for the first workers, or for the first message about the program.
    async fn arrive(
        &self,
        NewPool { shared, config, program, .. }: &NewPool,
    ) -> Result<(), String> {
        let limit = config.start_timeout.saturating_add(WORKERS_TIMEOUT);
        let deadline = Instant::now() + limit;
        let (name, first) = (&config.name, config.first_workers());
        let has_arrived = || match program {
            Some(NewProgram { program, .. }) => program.is_known(),
            None => shared.workers() >= first,
        };
        while !has_arrived() {
            let has_failed =
                self.pool.as_ref().is_some_and(|pool| pool.phase.get() == Phase::Failed);
            if has_failed {
                return Err(format!("the new master of pool {name} has ended"));
            }
            if program.is_none() && shared.cannot_start() {
                return Err(format!(
                    "the worker script of pool {name} does not start; the lines of sendoff-php in the log say why"
                ));
            }
            if Instant::now() >= deadline {
                let (limit, come) = (limit.as_secs(), shared.workers());
                return Err(format!(
                    "{come} of {first} new workers of pool {name} have started within {limit} s"
                ));
            }
            sleep(WORKERS_CHECK).await;
        }
        Ok(())
    }
}

impl Drop for Arriving<'_> {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            self.running.end_pool(pool);
        }
    }
}
