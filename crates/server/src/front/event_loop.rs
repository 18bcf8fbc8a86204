//! One event loop: a thread with its own listeners, connections, open files and links.

use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sendoff_config::Config;
use sendoff_sys::process::give_back_freed_memory;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_local;

use super::accept::accept;
use super::announce::Announce;
use super::budget::Budget;
use super::listener::Listening;
use crate::delivery::Snapshots;
use crate::handler::services::Services;
use crate::lifecycle::{Lifecycle, Stage};
use crate::observe::access_log::{AccessLog, FLUSH_INTERVAL};
use crate::observe::explain::Secret;
use crate::observe::status::{PoolStatus, Status, WorkerStatus};
use crate::site::sites::Sites;
use crate::upstream::{
    Application, Channel, Deadlines, Link, LocalPool, Master, NewLink, Pool, enforce, sweep, tune,
};

/// Freed memory that the front keeps for the next responses, in bytes. Without it a relayed body of 1 MB costs one `brk` and some
/// 25 page faults.
pub(super) const KEPT_MEMORY: usize = 16 << 20;

/// How often freed memory beyond it is given back.
const TRIM_INTERVAL: Duration = Duration::from_secs(2);

/// What a running event loop is told.
#[derive(Debug)]
pub(super) enum LoopOrder {
    /// Say what the loop is doing.
    Status(mpsc::UnboundedSender<Status>),
}

/// An event loop that is about to run.
pub(super) struct EventLoop {
    pub(super) number: usize,
    pub(super) config: Arc<Config>,
    pub(super) explain: Option<Arc<Secret>>,
    /// By the number of the pool.
    pub(super) pools: Vec<Arc<Pool>>,
    pub(super) snapshots: Arc<Snapshots>,
    /// Those of each site.
    pub(super) applications: Arc<[Vec<Arc<Application>>]>,
    pub(super) channel: Option<Channel>,
    /// As many as `Config::listen` has, in its order.
    pub(super) listeners: Vec<OwnedFd>,
    pub(super) links: mpsc::UnboundedReceiver<NewLink>,
    pub(super) orders: mpsc::UnboundedReceiver<LoopOrder>,
    /// By the number of the pool.
    pub(super) masters: Vec<Master>,
    pub(super) stop: watch::Receiver<Stage>,
    pub(super) announce: Arc<Announce>,
    pub(super) budget: Budget,
    pub(super) access_log: Option<AccessLog>,
    /// Held while the loop has connections.
    pub(super) busy: watch::Receiver<()>,
    /// Closed when no loop is busy any more.
    pub(super) draining: Arc<watch::Sender<()>>,
}

impl EventLoop {
    /// Runs until the last connection has ended after the stop and, beside it, `also`.
    /// A failure of `also` ends the loop.
    pub(super) fn run(self, also: impl Future<Output = io::Result<Infallible>>) -> io::Result<()> {
        // Tasks stay on this thread.
        let options = LocalOptions::default();
        let runtime = Builder::new_current_thread().enable_all().build_local(options)?;
        let result = runtime.block_on(async move {
            tokio::select! {
                result = self.serve() => result,
                failed = also => failed.map(|never| match never {}),
            }
        });
        // With it go the connections that are left: they cut their responses.
        drop(runtime);
        result
    }

    async fn serve(self) -> io::Result<()> {
        let Self { number, config, explain, pools, applications, listeners, links, .. } = self;
        let Self { snapshots, channel, masters, stop, announce, budget, .. } = self;
        let Self { access_log, busy, draining, orders, .. } = self;
        let services = Rc::new(Services {
            number,
            sites: Sites::new(Arc::clone(&config), budget.static_files),
            config: Arc::clone(&config),
            explain,
            pools: pools.into_iter().map(LocalPool::new).collect(),
            applications,
            channel,
            claims: Rc::default(),
            sizes: Default::default(),
            choice: Default::default(),
            patience: Default::default(),
            auth: Default::default(),
            clock: Default::default(),
            access_log,
        });
        let lifecycle = Rc::new(Lifecycle::new(stop));
        for (place, (socket, listener)) in listeners.into_iter().zip(&config.listen).enumerate() {
            let listener = Listening::new(place, listener, socket)?;
            let (services, lifecycle) = (Rc::clone(&services), Rc::clone(&lifecycle));
            spawn_local(accept(listener, services, lifecycle, budget.connections));
        }
        if services.access_log.is_some() {
            spawn_local(flush_access_log(Rc::clone(&services)));
        }
        let applications = unique(&services.applications);
        if number == 0 && !applications.is_empty() {
            spawn_local(sweep(applications));
        }
        if number == 0 {
            spawn_local(give_back_memory());
        }
        look_after_workers(&services, &masters);
        let (lives, idle) = (Rc::clone(&lifecycle), config.front.timeouts.idle);
        spawn_local(async move { lives.end_idle(idle).await });
        spawn_local(follow(orders, Rc::clone(&services), Rc::clone(&lifecycle)));
        announce.loop_runs();
        spawn_local(take_links(Rc::clone(&services), links, snapshots, announce));
        lifecycle.reached(Stage::Draining).await;
        lifecycle.evict_all();
        let cutting = lifecycle.reached(Stage::Cutting);
        tokio::pin!(cutting);
        while lifecycle.connections() > 0 {
            tokio::select! {
                () = lifecycle.connection_closed() => {}
                () = &mut cutting => {
                    let connections = lifecycle.connections();
                    tracing::warn!(connections, "the front ends now: connections are cut");
                    break;
                }
            }
        }
        // A worker ends when one of its links is closed, and another loop may still need it.
        drop(busy);
        draining.closed().await;
        Ok(())
    }
}

/// Every application once.
fn unique(of_sites: &[Vec<Arc<Application>>]) -> Arc<[Arc<Application>]> {
    let mut all: Vec<Arc<Application>> = Vec::new();
    for application in of_sites.iter().flatten() {
        if !all.iter().any(|known| Arc::ptr_eq(known, application)) {
            all.push(Arc::clone(application));
        }
    }
    all.into()
}

/// Starts the tasks that keep workers neither stuck nor too many nor too few.
fn look_after_workers(services: &Services, masters: &[Master]) {
    for ((config, pool), master) in services.config.pools.iter().zip(&services.pools).zip(masters) {
        let slow = config.slow_log.as_ref().map(|log| log.after);
        let deadlines = Deadlines { stuck: config.request_timeout, slow };
        let LocalPool { shared, links } = pool.clone();
        spawn_local(enforce(deadlines, shared, links, master.clone()));
        // One event loop decides for all.
        if let Some(bounds) = config.bounds().filter(|_| services.number == 0) {
            let LocalPool { shared, links } = pool.clone();
            spawn_local(tune(bounds, shared, links, master.clone()));
        }
    }
}

/// Does what the loop is told.
async fn follow(
    mut orders: mpsc::UnboundedReceiver<LoopOrder>,
    services: Rc<Services>,
    lifecycle: Rc<Lifecycle>,
) {
    while let Some(order) = orders.recv().await {
        match order {
            // It fails if the answer is not waited for any more.
            LoopOrder::Status(reply) => drop(reply.send(status(&services, &lifecycle))),
        }
    }
}

fn status(services: &Services, lifecycle: &Lifecycle) -> Status {
    let worker = |link: &Rc<Link>| WorkerStatus {
        pid: link.pid(),
        request: link.request().map(|request| request.to_string()),
    };
    let pool = |pool: &LocalPool| PoolStatus {
        waiting: pool.shared.waiting(),
        workers: pool.links.borrow().values().map(worker).collect(),
    };
    Status {
        connections: lifecycle.connections(),
        idle_connections: lifecycle.idle_connections(),
        pools: services.pools.iter().map(pool).collect(),
    }
}

/// Takes on workers as they come.
async fn take_links(
    services: Rc<Services>,
    mut links: mpsc::UnboundedReceiver<NewLink>,
    snapshots: Arc<Snapshots>,
    announce: Arc<Announce>,
) {
    while let Some(new) = links.recv().await {
        let pid = new.pid;
        let Services { number, pools, claims, .. } = &*services;
        if let Err(error) = Link::start(new, *number, pools, claims, &snapshots) {
            tracing::error!(worker = pid, %error, "a worker could not be taken on");
        }
        announce.when_complete();
    }
}

/// Gives memory back that a burst of slow clients has left behind. The memory is the whole process's, so one event loop does.
async fn give_back_memory() {
    loop {
        tokio::time::sleep(TRIM_INTERVAL).await;
        give_back_freed_memory(KEPT_MEMORY);
    }
}

async fn flush_access_log(services: Rc<Services>) {
    while let Some(log) = &services.access_log {
        tokio::time::sleep(FLUSH_INTERVAL).await;
        log.flush();
    }
}
