//! A running event loop: its generation, its pools, and its reactions to orders.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sendoff_compress::Compressor;
use sendoff_config::{Config, FrontConfig};
use sendoff_delivery::blocked::set_most;
use sendoff_exchange::clients::{Connections, RequestCounts};
use sendoff_exchange::lifecycle::Lifecycle;
use sendoff_exchange::rates::Rates;
use sendoff_exchange::service::Current;
use sendoff_handlers::services::Services;
use sendoff_lua_host::SharedByScripts;
use sendoff_observe::gather::Gatherer;
use sendoff_page_cache::PageCache;
use sendoff_report::access_log::{Flusher, LogSender, Logs};
use sendoff_report::explain::Secret;
use sendoff_report::meters::Meters;
use sendoff_report::status::Status;
use sendoff_site::sites::Sites;
use sendoff_upstream_fastcgi::attached::{sweep, tend};
use sendoff_upstream_gateway::tend_gateways;
use sendoff_upstream_worker::claims::Claims;
use sendoff_upstream_worker::link::LocalPool;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_local;

use super::budget::DescriptorBudget;
use super::generation::{Generation, NewPool, Tasks};
use super::loop_listeners::{Accepting, ListenerChanges};
use super::loop_pools::PoolOnLoop;
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
    pub(super) number: usize,
    pub(super) services: Rc<Current<Services>>,
    pub(super) places: RefCell<Vec<PoolOnLoop>>,
    pub(super) claims: Rc<Claims>,
    pub(super) lifecycle: Rc<Lifecycle>,
    /// Indexed by place.
    pub(super) listeners: RefCell<HashMap<usize, Accepting>>,
    /// Most connections of this loop.
    pub(super) most: usize,
    log_sender: LogSender,
    flusher: Rc<Flusher>,
    /// The tasks of the current generation.
    tasks: RefCell<Tasks>,
    /// Empty on all event loops but the first.
    pub(super) warming: Warming,
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
