//! A running event loop: its generation, its pools, and its reactions to orders.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sendoff_compress::Compressor;
use sendoff_config::{Config, FrontConfig, ListenAddress, Listener};
use sendoff_delivery::Snapshots;
use sendoff_delivery::blocked::set_most;
use sendoff_exchange::clients::{Connections, RequestCounts};
use sendoff_exchange::lifecycle::Lifecycle;
use sendoff_exchange::rates::Rates;
use sendoff_exchange::service::Current;
use sendoff_handlers::services::Services;
use sendoff_http3_server as http3;
use sendoff_lua_host::SharedByScripts;
use sendoff_message::request::{Endpoint, Scheme};
use sendoff_observe::gather::{Figures, Gatherer, Reply};
use sendoff_observe::upstreams::upstreams_status;
use sendoff_page_cache::PageCache;
use sendoff_report::access_log::{Flusher, LogSender, Logs};
use sendoff_report::explain::Secret;
use sendoff_report::limits::Limit;
use sendoff_report::meters::Meters;
use sendoff_report::status::{Encryption, PoolStatus, Status, WorkerStatus};
use sendoff_report::workers::PoolReport;
use sendoff_site::sites::Sites;
use sendoff_transport::kernel_has_tls;
use sendoff_upstream_fastcgi::attached::{sweep, tend};
use sendoff_upstream_gateway::tend_gateways;
use sendoff_upstream_worker::claims::Claims;
use sendoff_upstream_worker::deadline::{Deadlines, enforce};
use sendoff_upstream_worker::link::{Link, LocalPool};
use sendoff_upstream_worker::register::NewLink;
use sendoff_upstream_worker::tuner::tune;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_local;
use tokio::time::Instant;

use super::accept::{Admission, accept};
use super::announce::Announce;
use super::budget::DescriptorBudget;
use super::generation::{Generation, NewPool, NewProgram, Tasks};
use super::listener::Listening;
use super::warming::Warming;

/// An order to a running event loop. Dropping `done` reports that it has been followed.
#[derive(Debug)]
pub(super) enum LoopOrder {
    /// Make the pages of sitemaps that are missing. The answer is the number of sites.
    Warm(oneshot::Sender<usize>),
    /// Report the state of the loop.
    Status(mpsc::UnboundedSender<Status>),
    /// Add a pool, in the next place.
    AddPool { pool: NewPool, done: mpsc::Sender<Infallible> },
    /// Serve by this generation from the next request on. `listeners`: changes of listeners;
    /// `None`: none.
    Serve {
        generation: Arc<Generation>,
        listeners: Option<ListenerChanges>,
        done: mpsc::Sender<Infallible>,
    },
    /// End the workers of the pool in this place: no request will ask for it any more.
    EndPool { place: usize },
}

/// Changes in the listeners of an event loop, by place.
#[derive(Debug, Clone, Default)]
pub(super) struct ListenerChanges {
    /// The remaining listeners, with their new settings.
    pub(super) kept: Vec<(usize, Listener)>,
    pub(super) new: Vec<(usize, Listener, Arc<OwnedFd>)>,
}

/// A listener, and the task that accepts its connections until this value is dropped.
enum Accepting {
    Connections {
        listener: Rc<Listening>,
        _task: Tasks,
    },
    /// HTTP/3: the task also carries the packets of open connections, and ends with the last one.
    /// Dropping this value makes it refuse further connections.
    Quic {
        _open: watch::Sender<()>,
    },
}

/// A pool on one event loop, and the tasks that end stuck workers and keep their number right.
pub(super) struct PoolOnLoop {
    pool: LocalPool,
    tasks: Tasks,
    /// The program, if the pool has one; then no workers have links.
    program: Option<NewProgram>,
}

impl PoolOnLoop {
    pub(super) fn new(pool: NewPool, event_loop: usize) -> Self {
        let NewPool { shared, master, config, program } = pool;
        let pool = LocalPool::new(shared);
        let mut tasks = Tasks::default();
        if program.is_some() {
            return Self { pool, tasks, program };
        }
        let slow = config.slow_log.as_ref().map(|log| log.after);
        let deadlines = Deadlines { stuck: config.request_timeout, slow };
        tasks.0.push(spawn_local(pool.clone().attend(event_loop)));
        let LocalPool { shared, links, .. } = pool.clone();
        tasks.0.push(spawn_local(enforce(deadlines, shared, links, master.clone())));
        // One event loop decides for all.
        if let Some(bounds) = config.bounds().filter(|_| event_loop == 0) {
            let LocalPool { shared, links, .. } = pool.clone();
            tasks.0.push(spawn_local(tune(bounds, shared, links, master)));
        }
        Self { pool, tasks, program }
    }
}

/// Objects that all event loops share and that outlive a reload.
#[derive(Clone)]
pub(super) struct SharedByLoops {
    pub(super) explain: Option<Arc<Secret>>,
    pub(super) compressor: Arc<Compressor>,
    pub(super) page_cache: Arc<PageCache>,
    /// Data shared by Lua scripts.
    pub(super) scripts: Arc<SharedByScripts>,
    pub(super) gatherer: Gatherer,
    pub(super) rates: Arc<Rates>,
    pub(super) requests: Arc<RequestCounts>,
    pub(super) connections: Arc<Connections>,
    pub(super) is_leaving: Arc<AtomicBool>,
}

/// An event loop that runs.
pub(super) struct RunningLoop {
    number: usize,
    pub(super) services: Rc<Current<Services>>,
    places: RefCell<Vec<PoolOnLoop>>,
    claims: Rc<Claims>,
    lifecycle: Rc<Lifecycle>,
    /// Indexed by place.
    listeners: RefCell<HashMap<usize, Accepting>>,
    /// Most connections of this loop.
    most: usize,
    log_sender: LogSender,
    flusher: Rc<Flusher>,
    /// The tasks of the current generation.
    tasks: RefCell<Tasks>,
    /// Empty on all event loops but the first.
    warming: Warming,
}

impl RunningLoop {
    pub(super) fn new(
        number: usize,
        generation: &Generation,
        shared: SharedByLoops,
        places: Vec<PoolOnLoop>,
        lifecycle: Rc<Lifecycle>,
        budget: DescriptorBudget,
        log_sender: LogSender,
    ) -> Self {
        let claims = Rc::<Claims>::default();
        limit_memory(&generation.config.front);
        let logs = Logs::new(&generation.config, &generation.logs, &Logs::default(), &log_sender);
        let flusher = Rc::<Flusher>::default();
        flusher.add(logs.new_since(&Logs::default()));
        let (flushes, sender) = (Rc::clone(&flusher), log_sender.clone());
        spawn_local(async move { flushes.run(&sender).await });
        let services = Services {
            number,
            sites: Sites::new(Arc::clone(&generation.config), budget.static_files, &shared.scripts),
            config: Arc::clone(&generation.config),
            explain: shared.explain,
            compressor: shared.compressor,
            page_cache: shared.page_cache,
            markup: Default::default(),
            pools: pools(generation, &places),
            attached: Arc::clone(&generation.attached),
            gateways: Arc::clone(&generation.gateways),
            tls: Arc::clone(&generation.tls),
            tickets: generation.tickets.clone(),
            quic: RefCell::default(),
            challenges: Arc::clone(&generation.challenges),
            channel: generation.channel.clone(),
            claims: Rc::clone(&claims),
            sizes: Rc::default(),
            lending: Rc::default(),
            patience: Rc::default(),
            at_work: Rc::default(),
            auth: Arc::clone(&generation.auth),
            clock: Rc::default(),
            logs,
            meters: Meters::renewed(&generation.config, &Meters::default(), &generation.config),
            gatherer: shared.gatherer,
            rates: shared.rates,
            requests: shared.requests,
            is_leaving: shared.is_leaving,
            _in_use: in_use(generation),
        };
        let tasks = RefCell::new(tasks(number, generation, &lifecycle));
        services.start_page_cache();
        let (services, places) = (Current::new(services), RefCell::new(places));
        let (listeners, most) = (RefCell::default(), budget.connections);
        Self {
            number,
            services,
            places,
            claims,
            lifecycle,
            listeners,
            most,
            log_sender,
            flusher,
            tasks,
            warming: Warming::default(),
        }
    }

    /// Begins to make the pages of sitemaps. One event loop does this for all.
    pub(super) fn warm(self: &Rc<Self>, config: &Config) {
        if self.number == 0 {
            self.warming.serve(self, config);
        }
    }

    /// Ends it.
    pub(super) fn end_warming(&self) {
        self.warming.end();
    }

    /// The scheme and the address of the listener in this place; `None`: it is closed, or one for
    /// HTTP/3.
    pub(super) fn address(&self, place: usize) -> Option<(Scheme, Endpoint)> {
        match self.listeners.borrow().get(&place)? {
            Accepting::Connections { listener, .. } => listener.address(),
            Accepting::Quic { .. } => None,
        }
    }

    /// Accepts connections on a socket from now on.
    ///
    /// # Errors
    /// The event loop cannot watch the socket.
    pub(super) fn listen(
        &self,
        place: usize,
        config: &Listener,
        socket: OwnedFd,
    ) -> io::Result<()> {
        let (services, lifecycle) = (Rc::clone(&self.services), Rc::clone(&self.lifecycle));
        let accepting = if let ListenAddress::Quic(address) = config.address {
            let listener = http3::Listener::new(place, socket.into())?;
            let (open, is_open) = watch::channel(());
            let admission = Admission::new(&services, &lifecycle, self.most);
            let serves = http3::serve(listener, services, lifecycle, admission, is_open);
            spawn_local(async move {
                if let Err(error) = serves.await {
                    tracing::error!(%error, "no HTTP/3 at {address}");
                }
            });
            Accepting::Quic { _open: open }
        } else {
            let listener = Rc::new(Listening::new(place, config, socket)?);
            let accepts = accept(Rc::clone(&listener), services, lifecycle, self.most);
            Accepting::Connections { listener, _task: Tasks(vec![spawn_local(accepts)]) }
        };
        self.listeners.borrow_mut().insert(place, accepting);
        Ok(())
    }

    /// Closes all listeners.
    pub(super) fn close_listeners(&self) {
        self.listeners.borrow_mut().clear();
    }

    /// Opens and closes listeners.
    fn change_listeners(&self, ListenerChanges { kept, new }: ListenerChanges) {
        let kept: HashMap<_, _> = kept.into_iter().collect();
        let mut listeners = self.listeners.borrow_mut();
        let before = listeners.len();
        listeners.retain(|place, accepting| match kept.get(place) {
            Some(config) => {
                if let Accepting::Connections { listener, .. } = accepting {
                    listener.change(config);
                }
                true
            }
            None => false,
        });
        if listeners.len() < before {
            // No site uses the closed listeners any more: their idle connections would get no
            // answer.
            self.lifecycle.evict_all();
        }
        drop(listeners);
        for (place, config, socket) in new {
            let opened = socket.try_clone().and_then(|socket| self.listen(place, &config, socket));
            if let Err(error) = opened {
                tracing::error!(%error, address = %config.address, "an event loop cannot listen");
            }
        }
    }

    /// Follows orders.
    pub(super) async fn follow(self: Rc<Self>, mut orders: mpsc::UnboundedReceiver<LoopOrder>) {
        while let Some(order) = orders.recv().await {
            match order {
                // Fails if the other side no longer waits for the answer.
                LoopOrder::Warm(reply) => drop(reply.send(self.warming.order())),
                LoopOrder::Status(reply) => drop(reply.send(self.status())),
                LoopOrder::AddPool { pool, done: _done } => {
                    self.places.borrow_mut().push(PoolOnLoop::new(pool, self.number));
                }
                LoopOrder::Serve { generation, listeners, done: _done } => {
                    self.serve(&generation);
                    if let Some(listeners) = listeners {
                        self.change_listeners(listeners);
                    }
                    self.warm(&generation.config);
                }
                LoopOrder::EndPool { place } => self.end_pool(place),
            }
        }
    }

    /// Serves by another generation. Statistics stay, and so do unchanged sites.
    fn serve(&self, generation: &Generation) {
        let before = self.services.get();
        limit_memory(&generation.config.front);
        let logs = Logs::new(&generation.config, &generation.logs, &before.logs, &self.log_sender);
        self.flusher.add(logs.new_since(&before.logs));
        let services = Services {
            number: self.number,
            sites: before.sites.renewed(Arc::clone(&generation.config)),
            config: Arc::clone(&generation.config),
            explain: before.explain.clone(),
            compressor: Arc::clone(&before.compressor),
            page_cache: Arc::clone(&before.page_cache),
            markup: Default::default(),
            pools: pools(generation, &self.places.borrow()),
            attached: Arc::clone(&generation.attached),
            gateways: Arc::clone(&generation.gateways),
            tls: Arc::clone(&generation.tls),
            tickets: generation.tickets.clone(),
            quic: RefCell::default(),
            challenges: Arc::clone(&generation.challenges),
            channel: generation.channel.clone(),
            claims: Rc::clone(&self.claims),
            sizes: Rc::clone(&before.sizes),
            lending: Rc::clone(&before.lending),
            patience: Rc::clone(&before.patience),
            at_work: Rc::clone(&before.at_work),
            auth: Arc::clone(&generation.auth),
            clock: Rc::clone(&before.clock),
            logs,
            meters: Meters::renewed(&generation.config, &before.meters, &before.config),
            gatherer: before.gatherer.clone(),
            rates: Arc::clone(&before.rates),
            requests: Arc::clone(&before.requests),
            is_leaving: Arc::clone(&before.is_leaving),
            _in_use: in_use(generation),
        };
        services.start_page_cache();
        if services.sites.parties_differ(&before.sites) {
            // Other connections are checked when their request has been answered.
            self.lifecycle.evict_lent();
        }
        self.services.replace(services);
        *self.tasks.borrow_mut() = tasks(self.number, generation, &self.lifecycle);
    }

    /// Closes the links to the workers of a pool, which ends the workers.
    fn end_pool(&self, place: usize) {
        let mut places = self.places.borrow_mut();
        let Some(PoolOnLoop { pool, tasks, program }) = places.get_mut(place) else { return };
        *tasks = Tasks::default();
        *program = None;
        for link in pool.links.borrow().values() {
            link.close();
        }
    }

    fn status(&self) -> Status {
        let now = Instant::now();
        let worker = |link: &Rc<Link>| WorkerStatus {
            pid: link.pid(),
            request: link.request().map(|request| request.to_string()),
            at_work: link.task().map(|task| task.status(now)),
        };
        let places = self.places.borrow();
        let pool = |pool: &LocalPool| {
            let place = places.iter().find(|place| Arc::ptr_eq(&place.pool.shared, &pool.shared));
            match place.and_then(|place| place.program.as_ref()) {
                Some(program) => {
                    let out_of_memory = pool.shared.report().out_of_memory;
                    PoolStatus { out_of_memory, ..program.status() }
                }
                None => {
                    let PoolReport {
                        waiting,
                        requests,
                        limit_reached,
                        slow,
                        out_of_memory,
                        php,
                        ..
                    } = pool.shared.report();
                    let workers = pool.links.borrow().values().map(worker).collect();
                    let program = None;
                    PoolStatus {
                        waiting,
                        requests,
                        limit_reached,
                        slow,
                        out_of_memory,
                        workers,
                        program,
                        php,
                    }
                }
            }
        };
        let services = self.services.get();
        Status {
            connections: self.lifecycle.connections(),
            idle_connections: self.lifecycle.idle_connections(),
            tls: match services.tls.iter().any(Option::is_some) {
                false => Encryption::None,
                true if kernel_has_tls() => Encryption::ByKernel(self.lifecycle.by_kernel()),
                true => Encryption::ByServer,
            },
            refused: services.meters.refused(),
            sites: services.meters.site_statuses(),
            pools: services.pools.iter().map(pool).collect(),
            upstreams: upstreams_status(&services.attached, &services.gateways),
            limits: Limit::met(),
            requests: services.at_work.status(),
            warming: self.warming.status(),
            fleet: services.gatherer.fleet.status(),
        }
    }

    /// Reports the loop's counters each time that metrics are requested.
    pub(super) async fn report(self: Rc<Self>, mut asked: mpsc::UnboundedReceiver<Reply>) {
        while let Some(reply) = asked.recv().await {
            let services = self.services.get();
            let figures = Figures {
                config: Arc::clone(&services.config),
                status: self.status(),
                sites: services.meters.sites(),
                pools: services.meters.pools(),
            };
            // Fails if the client that asked for the metrics has left.
            let _ = reply.send(figures);
        }
    }

    /// Takes links to new workers as they come.
    pub(super) async fn take_links(
        self: Rc<Self>,
        mut links: mpsc::UnboundedReceiver<NewLink>,
        snapshots: Arc<Snapshots>,
        announce: Arc<Announce>,
    ) {
        while let Some(new) = links.recv().await {
            let pid = new.pid;
            let pools: Vec<_> = self.places.borrow().iter().map(|p| p.pool.clone()).collect();
            let taken = Link::start(new, self.number, &pools, &self.claims, &snapshots);
            if let Err(error) = taken {
                tracing::error!(worker = pid, %error, "a worker could not be taken on");
            }
            announce.when_complete();
        }
    }

    /// Lets the front announce that it serves even if workers of the pool with this number cannot
    /// start.
    pub(super) async fn note_failure(self: Rc<Self>, pool: usize, announce: Arc<Announce>) {
        let pool = self.places.borrow().get(pool).map(|place| Arc::clone(&place.pool.shared));
        if let Some(pool) = pool {
            pool.fails_to_start().await;
            announce.when_complete();
        }
    }
}

/// Divides the memory for clients among the event loops.
fn limit_memory(config: &FrontConfig) {
    let share = config.limits.queued / u64::from(config.threads.max(1));
    set_most(usize::try_from(share).unwrap_or(usize::MAX));
}

/// The pools of a generation, indexed by their numbers in its configuration.
fn pools(generation: &Generation, places: &[PoolOnLoop]) -> Vec<LocalPool> {
    generation.pools.iter().map(|used| places[used.place].pool.clone()).collect()
}

fn in_use(generation: &Generation) -> Vec<watch::Receiver<()>> {
    generation.pools.iter().map(|used| used.in_use.clone()).collect()
}

/// Starts the tasks that belong to a generation.
fn tasks(event_loop: usize, generation: &Generation, lifecycle: &Rc<Lifecycle>) -> Tasks {
    let (lives, idle) = (Rc::clone(lifecycle), generation.config.front.timeouts.idle);
    let mut tasks = vec![spawn_local(async move { lives.end_idle(idle).await })];
    // One event loop does this for all connections and hosts.
    if event_loop == 0 {
        let attached = generation.unique_attached();
        for (hosts, upstream) in &attached {
            upstream.iter().for_each(|upstream| tasks.extend(tend(hosts, upstream)));
        }
        if !attached.is_empty() {
            tasks.push(spawn_local(sweep(attached.into_iter().map(|(hosts, _)| hosts).collect())));
        }
        tasks.extend(tend_gateways(generation.unique_gateways()));
    }
    Tasks(tasks)
}
