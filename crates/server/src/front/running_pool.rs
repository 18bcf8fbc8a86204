//! A pool of a running front: the front receives its workers, waits for the first of them, and ends
//! them once no request uses the pool.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sendoff_config::PoolConfig;
use sendoff_upstream_fastcgi::attached::Attached;
use sendoff_upstream_worker::master::Master;
use sendoff_upstream_worker::pool::Pool;
use sendoff_upstream_worker::register::receive_workers;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, sleep};

use super::generation::{NewPool, NewProgram, Tasks};
use super::pool_status::answer;
use super::running::RunningFront;
use super::running_loop::LoopOrder;

/// Longest time for the first workers of a new pool to arrive, beside the time limit for the start
/// of PHP.
const WORKERS_TIMEOUT: Duration = Duration::from_secs(60);

/// Interval between two checks whether they have arrived.
const WORKERS_CHECK: Duration = Duration::from_millis(5);

/// A pool whose workers the front receives.
pub(super) struct RunningPool {
    pub(super) place: usize,
    pub(super) shared: Arc<Pool>,
    /// Closed once no user of the pool is left.
    pub(super) users: watch::Sender<()>,
    receives: JoinHandle<()>,
    /// Tells the meaning of the socket's end.
    pub(super) phase: Rc<Cell<Phase>>,
    /// The program's application, if the pool has a program.
    pub(super) application: Option<Attached>,
}

/// The state of a pool, which gives the end of its socket a meaning.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
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
    /// Receives the workers of a pool and answers their questions about its state, or receives the
    /// state of its program. Goes on after the stop: open requests may need replacements of
    /// workers.
    pub(super) fn receive(
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

    /// Adds a pool to every event loop, and then receives its workers.
    pub(super) async fn add_pool(
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
    pub(super) fn end_pool(&self, pool: &RunningPool) {
        self.tell(|| LoopOrder::EndPool { place: pool.place });
        pool.receives.abort();
    }
}

/// A new pool, which is removed again unless the reload that brings it succeeds.
pub(super) struct Arriving<'r> {
    pub(super) pool: Option<Rc<RunningPool>>,
    pub(super) running: &'r RunningFront,
}

impl Arriving<'_> {
    /// Keeps the pool: the reload has succeeded.
    pub(super) fn stay(mut self) {
        self.pool.take();
    }

    /// Waits for the first workers, or for the first message about the program.
    pub(super) async fn arrive(
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
