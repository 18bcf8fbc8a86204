//! The pools on a running event loop: links to their workers, and tasks that end stuck workers and keep
//! their number right.

use std::rc::Rc;
use std::sync::Arc;

use sendoff_delivery::Snapshots;
use sendoff_upstream_worker::deadline::{Deadlines, enforce};
use sendoff_upstream_worker::link::{Link, LocalPool};
use sendoff_upstream_worker::register::NewLink;
use sendoff_upstream_worker::tuner::tune;
use tokio::sync::mpsc;
use tokio::task::spawn_local;

use super::announce::Announce;
use super::generation::{NewPool, NewProgram, Tasks};
use super::running_loop::RunningLoop;

/// A pool on one event loop, and the tasks that end stuck workers and keep their number right.
pub(super) struct PoolOnLoop {
    pub(super) pool: LocalPool,
    pub(super) tasks: Tasks,
    /// The program, if the pool has one; then no workers have links.
    pub(super) program: Option<NewProgram>,
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

impl RunningLoop {
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

    /// Closes the links to the workers of a pool, which ends the workers.
    pub(super) fn end_pool(&self, place: usize) {
        let mut places = self.places.borrow_mut();
        let Some(PoolOnLoop { pool, tasks, program }) = places.get_mut(place) else { return };
        *tasks = Tasks::default();
        *program = None;
        for link in pool.links.borrow().values() {
            link.close();
        }
    }
}
