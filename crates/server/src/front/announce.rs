//! Announces that the front serves.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};

use sendoff_upstream_worker::pool::Pool;

/// Calls `ready` once every event loop runs and the first workers of every pool have arrived. A
/// pool whose worker script fails to boot does not delay it.
pub(super) struct Announce {
    /// Each pool, with its number of first workers.
    pools: Vec<(Arc<Pool>, usize)>,
    ready: Box<dyn Fn() + Send + Sync>,
    said: Once,
    /// Number of event loops that do not run yet.
    loops_missing: AtomicUsize,
}

impl Announce {
    pub(super) fn new(
        loops: usize,
        pools: Vec<(Arc<Pool>, usize)>,
        ready: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (ready, loops_missing) = (Box::new(ready), AtomicUsize::new(loops));
        Arc::new(Self { pools, ready, said: Once::new(), loops_missing })
    }

    /// Notes that one more event loop runs.
    pub(super) fn loop_runs(&self) {
        self.loops_missing.fetch_sub(1, Ordering::SeqCst);
        self.when_complete();
    }

    /// Calls `ready` if nothing is missing any more.
    pub(super) fn when_complete(&self) {
        let loops_run = self.loops_missing.load(Ordering::SeqCst) == 0;
        let is_there =
            |(pool, first): &(Arc<Pool>, usize)| pool.workers() >= *first || pool.cannot_start();
        if loops_run && self.pools.iter().all(is_there) {
            self.said.call_once(|| (self.ready)());
        }
    }
}

impl fmt::Debug for Announce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Announce").field("pools", &self.pools).finish_non_exhaustive()
    }
}
