//! The front: event loops, each on its own thread. They share the pools of workers and the state in
//! `running_loop::SharedByLoops`.
//!
//! - `beginning`, `shutdown`: everything before the event loops run, and their end
//! - `running`, `reload`, `running_pool`: the front follows orders, and receives workers
//! - `event_loop`, `running_loop`, `loop_listeners`, `loop_pools`, `loop_status`: the same for one
//!   event loop
//! - `generation`: the configuration and the applications from one reload to the next
//! - `listener`, `accept`, `proxy_header`, `budget`: connections of clients, and descriptors for them
//! - `fleet`, `exporter`, `collector`: threads beside the event loops
//! - `warming`: pages that are made before clients ask for them

mod accept;
mod announce;
mod beginning;
mod budget;
mod collector;
mod event_loop;
mod exporter;
mod fleet;
mod generation;
mod listener;
mod loop_listeners;
mod loop_pools;
mod loop_status;
mod orders;
mod pool_status;
mod proxy_header;
mod reload;
mod running;
mod running_loop;
mod running_pool;
mod shutdown;
mod warming;

use std::cell::Cell;
use std::fs::File;
use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::thread;

use sendoff_config::Config;
use sendoff_lua_host::STACK;
use sendoff_report::explain::Secret;
use sendoff_sys::process::keep_freed_memory;
use sendoff_tls::Vault;

use beginning::Beginning;
use event_loop::KEPT_MEMORY;
use shutdown::{LastWork, Stopper};

pub use orders::{FrontOrder, ListenerSource, LogSource, Orders, PoolSource, Reload};
pub use sendoff_page_cache::Purge;
pub use sendoff_transport::kernel_has_tls;

/// Parts that a front is started with.
#[derive(Debug)]
pub struct Front {
    /// The configuration, the same for all event loops.
    pub config: Config,
    /// The credentials of the sites.
    pub vault: Vault,
    /// The files of access logs, opened for appending, in the order of `Config::log_targets`.
    pub access_logs: Vec<File>,
    /// The secret for `sendoff explain`; `None`: requests cannot be explained.
    pub explain: Option<Secret>,
    /// The listening sockets of each event loop, in the order of `Config::listen`: as many lists as
    /// threads.
    pub listeners: Vec<Vec<OwnedFd>>,
    /// The pool socket of each pool: its master sends new workers on it, or the state of its
    /// program.
    pub pool_sockets: Vec<OwnedFd>,
    /// The counters by which fragments of scripts are purged, which earlier and later fronts have,
    /// too; `None`: counters of this front.
    pub script_purges: Option<OwnedFd>,
}

impl Front {
    /// Follows `orders` until one of them ends the front. Returns when the last response has been
    /// sent, or when the shutdown timeout is over, which cuts the remaining responses. `orders` is
    /// made inside an event loop. `ready` is called once, from any thread, when all workers have
    /// arrived.
    ///
    /// # Errors
    /// An event loop could not be started.
    pub fn run<O: Orders>(
        self,
        ready: impl Fn() + Send + Sync + 'static,
        orders: impl FnOnce() -> io::Result<O>,
    ) -> io::Result<()> {
        keep_freed_memory(KEPT_MEMORY);
        let stopper = Stopper::new();
        let Beginning { loops, beside } = Beginning::of(self, &stopper, ready)?;
        let last = LastWork::of(&beside.means);
        let mut loops = loops.into_iter();
        let first = loops.next().ok_or_else(|| io::Error::other("no event loop was asked for"))?;
        let threads: Vec<_> = loops
            .map(|event_loop| {
                let (name, stopper) = (format!("loop-{}", event_loop.number), stopper.clone());
                thread::Builder::new().name(name).stack_size(STACK).spawn(move || {
                    let result = event_loop.run(pending());
                    // If a loop could not start, the connections that the kernel gives to its
                    // listeners would not be accepted: all loops end, and the supervisor starts a
                    // new front.
                    stopper.drain();
                    result
                })
            })
            .collect::<io::Result<_>>()?;
        let end_by = Cell::new(None);
        let result = first.run(async {
            let mut orders = orders()?;
            let (running, lost) = beside.start();
            running.follow_to_the_end(&mut orders, lost, &stopper, &end_by).await
        });
        for thread in threads {
            thread.join().map_err(|_| io::Error::other("an event loop panicked"))??;
        }
        last.finish(end_by.get());
        result
    }
}
