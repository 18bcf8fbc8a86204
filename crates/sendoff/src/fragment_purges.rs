//! The counters by which fragments are purged (`docs/fragments.md`). Processes that keep the
//! fragments of a pool one after the other share them, and so do the scripts in fronts: during a
//! reload or an upgrade a purge in one process counts for the fragments of the others.

use std::io;
use std::os::fd::OwnedFd;

use sendoff_config::{Account, Config, PoolConfig};
use sendoff_sys::purges::PurgeCounters;
use serde::{Deserialize, Serialize};

/// The processes that share counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Keeper {
    /// The fronts, for their scripts.
    Scripts,
    /// The masters of a pool with this name. Workers of another user may not change its counters.
    Pool { name: String, account: Option<Account> },
}

impl Keeper {
    pub(crate) fn of_pool(pool: &PoolConfig) -> Self {
        Self::Pool { name: pool.name.clone(), account: pool.account }
    }
}

/// The counters of all processes of a server.
#[derive(Debug, Default)]
pub(crate) struct FragmentPurges(Vec<(Keeper, OwnedFd)>);

impl FragmentPurges {
    /// Adds counters of the server that this one replaces.
    pub(crate) fn add(&mut self, keeper: Keeper, counters: OwnedFd) {
        self.0.push((keeper, counters));
    }

    /// The counters of these processes. `None`: the system refuses them; the processes then have
    /// counters of their own.
    pub(crate) fn of(&mut self, keeper: Keeper) -> Option<OwnedFd> {
        let copy = |fd: &OwnedFd| fd.try_clone();
        let known = self.0.iter().find(|(known, _)| *known == keeper).map(|(_, fd)| copy(fd));
        let made = known.unwrap_or_else(|| {
            let (_, counters) = PurgeCounters::create()?;
            let copied = copy(&counters)?;
            self.add(keeper, counters);
            Ok(copied)
        });
        let refused = |error: &io::Error| {
            tracing::warn!(%error, "purges of fragments do not outlive a reload or an upgrade");
        };
        made.inspect_err(refused).ok()
    }

    /// Forgets the pools that the configuration no longer has.
    pub(crate) fn retain(&mut self, config: &Config) {
        let is_used = |keeper: &Keeper| match keeper {
            Keeper::Scripts => true,
            pool => config.pools.iter().any(|known| Keeper::of_pool(known) == *pool),
        };
        self.0.retain(|(keeper, _)| is_used(keeper));
    }

    /// Copies of all counters, for another server.
    pub(crate) fn copies(&self) -> io::Result<Vec<(Keeper, OwnedFd)>> {
        let copy = |(keeper, fd): &(Keeper, OwnedFd)| Ok((keeper.clone(), fd.try_clone()?));
        self.0.iter().map(copy).collect()
    }
}
