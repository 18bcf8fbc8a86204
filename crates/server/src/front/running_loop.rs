//! An event loop that runs: what it serves by, its pools, and what it does when it is told something.

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::spawn_local;

use super::announce::Announce;
use super::generation::{Generation, NewPool, Tasks};
use crate::compress::Compressor;
use crate::delivery::Snapshots;
use crate::handler::services::Services;
use crate::lifecycle::Lifecycle;
use crate::observe::access_log::{AccessLog, FLUSH_INTERVAL};
use crate::observe::explain::Secret;
use crate::observe::status::{PoolStatus, Status, WorkerStatus};
use crate::service::Current;
use crate::site::sites::Sites;
use crate::upstream::{Claims, Deadlines, Link, LocalPool, NewLink, enforce, sweep, tune};

/// What a running event loop is told. The loop answers by dropping `done`.
#[derive(Debug)]
pub(super) enum LoopOrder {
    /// Say what the loop is doing.
    Status(mpsc::UnboundedSender<Status>),
    /// Take on a pool, in the next place.
    AddPool { pool: NewPool, done: mpsc::Sender<Infallible> },
    /// Serve by this from the next request on. `log` takes the place of the access log, if it is given.
    Serve {
        generation: Arc<Generation>,
        log: Option<Option<AccessLog>>,
        done: mpsc::Sender<Infallible>,
    },
    /// No request will ask for the pool in this place any more: end its workers.
    EndPool { place: usize },
}

/// A pool on one event loop, and the tasks that keep its workers neither stuck nor too many nor too few.
pub(super) struct Place {
    pool: LocalPool,
    tasks: Tasks,
}

impl Place {
    pub(super) fn new(pool: NewPool, event_loop: usize) -> Self {
        let NewPool { shared, master, config } = pool;
        let pool = LocalPool::new(shared);
        let mut tasks = Tasks::default();
        let slow = config.slow_log.as_ref().map(|log| log.after);
        let deadlines = Deadlines { stuck: config.request_timeout, slow };
        let LocalPool { shared, links } = pool.clone();
        tasks.0.push(spawn_local(enforce(deadlines, shared, links, master.clone())));
        // One event loop decides for all.
        if let Some(bounds) = config.bounds().filter(|_| event_loop == 0) {
            let LocalPool { shared, links } = pool.clone();
            tasks.0.push(spawn_local(tune(bounds, shared, links, master)));
        }
        Self { pool, tasks }
    }
}

/// What all event loops share, whatever the configuration says.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) explain: Option<Arc<Secret>>,
    pub(super) compressor: Arc<Compressor>,
}

/// An event loop that runs.
pub(super) struct RunningLoop {
    number: usize,
    pub(super) services: Rc<Current<Services>>,
    places: RefCell<Vec<Place>>,
    claims: Rc<Claims>,
    lifecycle: Rc<Lifecycle>,
    /// Those of the current generation.
    tasks: RefCell<Tasks>,
}

impl RunningLoop {
    pub(super) fn new(
        number: usize,
        generation: &Generation,
        shared: Shared,
        places: Vec<Place>,
        lifecycle: Rc<Lifecycle>,
        open_files: usize,
        access_log: Option<AccessLog>,
    ) -> Self {
        let claims = Rc::<Claims>::default();
        let services = Services {
            number,
            sites: Sites::new(Arc::clone(&generation.config), open_files),
            config: Arc::clone(&generation.config),
            explain: shared.explain,
            compressor: shared.compressor,
            pools: pools(generation, &places),
            applications: Arc::clone(&generation.applications),
            tls: Arc::clone(&generation.tls),
            channel: generation.channel.clone(),
            claims: Rc::clone(&claims),
            sizes: Rc::default(),
            choice: Rc::default(),
            patience: Rc::default(),
            auth: Rc::default(),
            clock: Rc::default(),
            access_log: access_log.map(log_kept),
            _in_use: in_use(generation),
        };
        let tasks = RefCell::new(tasks(number, generation, &lifecycle));
        let (services, places) = (Current::new(services), RefCell::new(places));
        Self { number, services, places, claims, lifecycle, tasks }
    }

    /// Does what the loop is told.
    pub(super) async fn follow(self: Rc<Self>, mut orders: mpsc::UnboundedReceiver<LoopOrder>) {
        while let Some(order) = orders.recv().await {
            match order {
                // It fails if the answer is not waited for any more.
                LoopOrder::Status(reply) => drop(reply.send(self.status())),
                LoopOrder::AddPool { pool, done: _done } => {
                    self.places.borrow_mut().push(Place::new(pool, self.number));
                }
                LoopOrder::Serve { generation, log, done: _done } => self.serve(&generation, log),
                LoopOrder::EndPool { place } => self.end_pool(place),
            }
        }
    }

    /// Serves by another generation. What was learned stays, and so do sites that are the same.
    fn serve(&self, generation: &Generation, log: Option<Option<AccessLog>>) {
        let before = self.services.get();
        let access_log = match log {
            Some(log) => log.map(log_kept),
            None => before.access_log.clone(),
        };
        self.services.replace(Services {
            number: self.number,
            sites: before.sites.renewed(Arc::clone(&generation.config)),
            config: Arc::clone(&generation.config),
            explain: before.explain.clone(),
            compressor: Arc::clone(&before.compressor),
            pools: pools(generation, &self.places.borrow()),
            applications: Arc::clone(&generation.applications),
            tls: Arc::clone(&generation.tls),
            channel: generation.channel.clone(),
            claims: Rc::clone(&self.claims),
            sizes: Rc::clone(&before.sizes),
            choice: Rc::clone(&before.choice),
            patience: Rc::clone(&before.patience),
            auth: Rc::clone(&before.auth),
            clock: Rc::clone(&before.clock),
            access_log,
            _in_use: in_use(generation),
        });
        *self.tasks.borrow_mut() = tasks(self.number, generation, &self.lifecycle);
    }

    /// Closes the links to the workers of a pool, which ends them.
    fn end_pool(&self, place: usize) {
        let mut places = self.places.borrow_mut();
        let Some(Place { pool, tasks }) = places.get_mut(place) else { return };
        *tasks = Tasks::default();
        for link in pool.links.borrow().values() {
            link.close();
        }
    }

    fn status(&self) -> Status {
        let worker = |link: &Rc<Link>| WorkerStatus {
            pid: link.pid(),
            request: link.request().map(|request| request.to_string()),
        };
        let pool = |pool: &LocalPool| PoolStatus {
            waiting: pool.shared.waiting(),
            workers: pool.links.borrow().values().map(worker).collect(),
        };
        Status {
            connections: self.lifecycle.connections(),
            idle_connections: self.lifecycle.idle_connections(),
            pools: self.services.get().pools.iter().map(pool).collect(),
        }
    }

    /// Takes on workers as they come.
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
}

/// The pools of a generation, by their numbers in its configuration.
fn pools(generation: &Generation, places: &[Place]) -> Vec<LocalPool> {
    generation.pools.iter().map(|used| places[used.place].pool.clone()).collect()
}

fn in_use(generation: &Generation) -> Vec<watch::Receiver<()>> {
    generation.pools.iter().map(|used| used.in_use.clone()).collect()
}

/// The tasks that belong to a generation.
fn tasks(event_loop: usize, generation: &Generation, lifecycle: &Rc<Lifecycle>) -> Tasks {
    let (lives, idle) = (Rc::clone(lifecycle), generation.config.front.timeouts.idle);
    let mut tasks = vec![spawn_local(async move { lives.end_idle(idle).await })];
    let applications = generation.unique_applications();
    // One event loop looks after all connections.
    if event_loop == 0 && !applications.is_empty() {
        tasks.push(spawn_local(sweep(applications)));
    }
    Tasks(tasks)
}

/// The log, with the task that passes its lines on in time.
fn log_kept(log: AccessLog) -> Rc<AccessLog> {
    let log = Rc::new(log);
    spawn_local(flush(Rc::downgrade(&log)));
    log
}

async fn flush(log: Weak<AccessLog>) {
    loop {
        tokio::time::sleep(FLUSH_INTERVAL).await;
        match log.upgrade() {
            Some(log) => log.flush(),
            None => return,
        }
    }
}
