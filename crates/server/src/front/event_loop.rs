//! One event loop: a thread with its own listeners, connections, open files and links.

use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use sendoff_delivery::Snapshots;
use sendoff_exchange::lifecycle::{Lifecycle, Stage};
use sendoff_exchange::service::Current;
use sendoff_handlers::services::Services;
use sendoff_observe::gather::Reply;
use sendoff_report::access_log::LogSender;
use sendoff_sys::blocks::keep_on_this_thread;
use sendoff_sys::process::give_back_freed_memory;
use sendoff_upstream_worker::register::NewLink;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_local;

use super::announce::Announce;
use super::budget::DescriptorBudget;
use super::generation::{Generation, NewPool};
use super::loop_pools::PoolOnLoop;
use super::running_loop::{LoopOrder, RunningLoop, SharedByLoops};

/// Freed memory that the front keeps for the next responses, in bytes. Without it a relayed body of
/// 1 MB costs one `brk` and some 25 page faults.
pub(super) const KEPT_MEMORY: usize = 16 << 20;

/// Interval at which further freed memory is given back.
const TRIM_INTERVAL: Duration = Duration::from_secs(2);

/// Time without a request after which a static file is closed; it may be twice as long.
const UNUSED_FILES: Duration = Duration::from_secs(5);

/// An event loop that is about to run.
pub(super) struct EventLoop {
    pub(super) number: usize,
    pub(super) generation: Arc<Generation>,
    pub(super) shared: SharedByLoops,
    /// Indexed by place.
    pub(super) pools: Vec<NewPool>,
    pub(super) snapshots: Arc<Snapshots>,
    pub(super) listeners: Vec<OwnedFd>,
    pub(super) links: mpsc::UnboundedReceiver<NewLink>,
    pub(super) orders: mpsc::UnboundedReceiver<LoopOrder>,
    /// Requests for the loop's counters.
    pub(super) asked: mpsc::UnboundedReceiver<Reply>,
    pub(super) stop: watch::Receiver<Stage>,
    pub(super) announce: Arc<Announce>,
    pub(super) budget: DescriptorBudget,
    pub(super) log_sender: LogSender,
    /// Held while the loop has connections.
    pub(super) busy: watch::Receiver<()>,
    /// Closed once no loop is busy any more.
    pub(super) draining: Arc<watch::Sender<()>>,
}

impl EventLoop {
    /// Runs until the last connection has ended after the stop, and runs `also` beside it. A
    /// failure of `also` ends the loop.
    pub(super) fn run(self, also: impl Future<Output = io::Result<Infallible>>) -> io::Result<()> {
        keep_on_this_thread();
        // Tasks stay on this thread.
        let options = LocalOptions::default();
        let runtime = Builder::new_current_thread().enable_all().build_local(options)?;
        let result = runtime.block_on(async move {
            tokio::select! {
                result = self.serve() => result,
                failed = also => failed.map(|never| match never {}),
            }
        });
        // Drops the remaining connections, which cut their responses.
        drop(runtime);
        result
    }

    async fn serve(self) -> io::Result<()> {
        let Self { number, generation, shared, pools, listeners, links, .. } = self;
        let Self { snapshots, stop, announce, budget, .. } = self;
        let Self { log_sender, busy, draining, orders, asked, .. } = self;
        let lifecycle = Rc::new(Lifecycle::new(stop, Arc::clone(&shared.connections)));
        let mut places = Vec::new();
        for pool in pools {
            places.push(PoolOnLoop::new(pool, number));
        }
        let running = Rc::new(RunningLoop::new(
            number,
            &generation,
            shared,
            places,
            Rc::clone(&lifecycle),
            budget,
            log_sender,
        ));
        let listeners = listeners.into_iter().zip(&generation.config.listen).enumerate();
        for (place, (socket, listener)) in listeners {
            running.listen(place, listener, socket)?;
        }
        if number == 0 {
            spawn_local(give_back_memory());
            let pools = generation.config.pools.iter().enumerate();
            for (pool, _) in pools.filter(|(_, pool)| pool.worker.is_some()) {
                spawn_local(Rc::clone(&running).note_failure(pool, Arc::clone(&announce)));
            }
        }
        running.warm(&generation.config);
        drop(generation);
        spawn_local(close_unused_files(Rc::downgrade(&running.services)));
        spawn_local(Rc::clone(&running).follow(orders));
        spawn_local(Rc::clone(&running).report(asked));
        announce.loop_runs();
        spawn_local(Rc::clone(&running).take_links(links, snapshots, announce));
        lifecycle.reached(Stage::Draining).await;
        running.close_listeners();
        running.end_warming();
        drop(running);
        let kept = lifecycle.end_kept();
        tokio::pin!(kept);
        let cutting = lifecycle.reached(Stage::Cutting);
        tokio::pin!(cutting);
        while lifecycle.connections() > 0 {
            tokio::select! {
                () = lifecycle.connection_closed() => {}
                () = &mut kept => {}
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

/// Closes static files that are not used any more.
async fn close_unused_files(services: Weak<Current<Services>>) {
    loop {
        tokio::time::sleep(UNUSED_FILES).await;
        let Some(services) = services.upgrade() else { return };
        services.get().sites.close_unused_files();
    }
}

/// Gives memory back that a burst of slow clients has left behind. Memory belongs to the process,
/// so only one event loop runs this.
async fn give_back_memory() {
    loop {
        tokio::time::sleep(TRIM_INTERVAL).await;
        give_back_freed_memory(KEPT_MEMORY);
    }
}
