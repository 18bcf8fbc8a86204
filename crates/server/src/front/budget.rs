//! Division of the process's descriptors (`RLIMIT_NOFILE`) at the start. `descriptors.rs` counts
//! the open ones and tells what to give up when they become short.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Resource, getrlimit};
use sendoff_config::{Config, PoolConfig};
use sendoff_transport::descriptors;

/// Descriptors for event loops, logs, standard streams, sockets to the supervisor and temporary
/// files of request bodies; with a small limit, an eighth of it.
const RESERVED: usize = 128;

/// Descriptors that are always open: standard streams, logs, sockets to the supervisor.
const OPEN_AT_START: usize = 12;

/// Descriptors of an event loop: epoll, wake-up, timers, the site's folders.
const OPEN_PER_LOOP: usize = 6;

/// Most copies of handed-over files, even with plenty of descriptors.
const MOST_SNAPSHOTS: usize = 512;

/// Smallest share of each part, even with a small limit: a front must be able to answer some
/// requests.
pub(super) const LEAST: usize = 16;

/// Descriptors for each purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DescriptorBudget {
    /// Clients' connections, per event loop. With one further descriptor per connection they all
    /// fit. At this number idle connections are closed for new ones; if none is idle, more are
    /// accepted while descriptors last (`accept.rs`).
    pub(super) connections: usize,
    /// Static files that are kept open, per event loop.
    pub(super) static_files: usize,
    /// Copies of handed-over files, of all event loops together.
    pub(super) snapshots: usize,
}

/// The limit of open files is too small to answer requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TooFew {
    limit: usize,
    needed: usize,
}

impl fmt::Display for TooFew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, needed } = self;
        write!(
            f,
            "a limit of {limit} open files is too small for so many workers and event loops, at least {needed} are needed (ulimit -n)"
        )
    }
}

impl DescriptorBudget {
    /// Divides the limit of this process, and tells `descriptors.rs` the limit. `listeners`: the
    /// sockets of each event loop.
    ///
    /// # Errors
    /// The limit is too small to start.
    pub(super) fn of_process(config: &Config, listeners: &[Vec<OwnedFd>]) -> io::Result<Self> {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let first_workers: usize = config.pools.iter().map(PoolConfig::first_workers).sum();
        let most_workers = config.pools.iter().map(PoolConfig::most_workers).sum();
        let of_loop = listeners.first().map_or(0, Vec::len);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let loops = listeners.len();
        let checked = Self::check(limit, loops, of_loop, first_workers);
        checked.map_err(|too_few| io::Error::other(too_few.to_string()))?;
        descriptors::set_limit(limit);
        // Pools rarely have all their workers at the same time: the links that are counted take at
        // most half of the descriptors.
        let workers = (limit / (4 * loops.max(1))).clamp(first_workers, most_workers);
        Ok(Self::new(limit, loops, of_loop, workers))
    }

    /// Divides `limit` descriptors among `loops` event loops with `listeners` listeners each, where
    /// up to `workers` workers have a link to every loop and a guard socket.
    ///
    /// Half of the rest is for connections, a quarter for static files, an eighth for copies of
    /// handed-over files and an eighth for their originals, spools and request bodies.
    fn new(limit: usize, loops: usize, listeners: usize, workers: usize) -> Self {
        let fixed = RESERVED.min(limit / 8) + loops * listeners + workers * (loops + 1);
        let rest = limit.saturating_sub(fixed) / loops.max(1);
        Self {
            connections: (rest / 2).max(LEAST),
            static_files: (rest / 4).max(LEAST),
            snapshots: (rest * loops / 8).clamp(LEAST, MOST_SNAPSHOTS),
        }
    }

    /// Checks that `limit` descriptors suffice to start: for the descriptors that are open before
    /// the first client comes and for [`LEAST`] connections, below the part that is kept free
    /// (`descriptors.rs`).
    fn check(limit: usize, loops: usize, listeners: usize, workers: usize) -> Result<(), TooFew> {
        let open = OPEN_AT_START + loops * (OPEN_PER_LOOP + listeners) + workers * (loops + 1);
        let needed = ((open + LEAST) * 8).div_ceil(7);
        if limit < needed { Err(TooFew { limit, needed }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_needed_for_workers_is_shared() {
        let budget = DescriptorBudget::new(4096, 2, 1, 32);
        assert_eq!(
            budget,
            DescriptorBudget { connections: 967, static_files: 483, snapshots: 483 }
        );
        let budget = DescriptorBudget::new(256, 2, 1, 4);
        assert_eq!(budget, DescriptorBudget { connections: 52, static_files: 26, snapshots: 26 });
        assert_eq!(DescriptorBudget::new(64, 2, 1, 32).connections, LEAST);
        let budget = DescriptorBudget::new(1 << 20, 64, 3, 256);
        assert!(64 * (budget.connections + budget.static_files) < 1 << 20);
    }

    #[test]
    fn a_limit_that_leaves_no_room_for_clients_is_refused() {
        assert_eq!(DescriptorBudget::check(256, 1, 1, 4), Ok(()));
        assert_eq!(DescriptorBudget::check(64, 1, 1, 4), Ok(()));
        assert_eq!(DescriptorBudget::check(100, 2, 1, 32), Err(TooFew { limit: 100, needed: 158 }));
    }
}
