//! The front and the masters with which the server starts, before they run: all that they inherit.

use std::io;
use std::os::fd::OwnedFd;

use rustix::pipe::PipeFlags;
use sendoff_config::{Config, ListenAddress};
use sendoff_sys::master::make_room_for;

use super::state::pool_sockets;
use crate::children::Recipe;
use crate::explain::Door;
use crate::failure::Failure;
use crate::fragment_purges::{FragmentPurges, Keeper};
use crate::groups::ControlGroups;
use crate::listen::{Listeners, SocketFile, tcp};

/// Descriptors that the supervisor needs without pools: listeners, pipes, sockets.
const DESCRIPTORS: usize = 256;
/// Descriptors per pool: both ends of the pool socket, the configuration, the counters of purges
/// twice, and two more to wait for calls or for a program's listening socket.
const DESCRIPTORS_PER_POOL: usize = 7;

/// The first children, and the supervisor's end of what it shares with them.
pub(super) struct FirstChildren {
    pub(super) front: Recipe,
    /// In the order of the pools.
    pub(super) masters: Vec<Recipe>,
    pub(super) groups: ControlGroups,
    /// The read end of the pipe on which the front reports that it is ready.
    pub(super) ready: OwnedFd,
    pub(super) addresses: Vec<ListenAddress>,
    pub(super) files: Vec<SocketFile>,
    /// The file with the secret of `sendoff explain`.
    pub(super) door: Option<Door>,
    /// The line for people that says what is served.
    pub(super) line: String,
}

impl FirstChildren {
    /// `keys`: the sealed credentials. `purges`: the counters by which fragments are purged.
    /// `succeeds`: another server runs, which this one replaces.
    pub(super) fn of(
        config: &Config,
        listeners: Listeners,
        keys: OwnedFd,
        purges: &mut FragmentPurges,
        succeeds: bool,
    ) -> Result<Self, Failure> {
        let (ready, ready_out) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
            .map_err(io::Error::from)
            .map_err(Failure::system("cannot make a pipe"))?;
        let (door, secret) = Door::open(&tcp(&listeners.addresses)).unzip();
        let urls = listeners.urls();
        let Listeners { of_loops, addresses, files, .. } = listeners;
        let sealed = config
            .seal()
            .map_err(|error| Failure::System(format!("cannot store the configuration: {error}")))?;
        let sealed = || sealed.try_clone().map_err(Failure::system("cannot copy a descriptor"));
        make_room_for((DESCRIPTORS + DESCRIPTORS_PER_POOL * config.pools.len()) as u64);
        let (mut masters, mut pools) = (Vec::new(), Vec::new());
        let groups = ControlGroups::new(succeeds);
        for (number, group) in groups.of(config.pools.iter()).into_iter().enumerate() {
            let (front, php) = pool_sockets().map_err(Failure::system("cannot make sockets"))?;
            let counters = purges.of(Keeper::of_pool(&config.pools[number]));
            masters.push(Recipe::master(config, number, sealed()?, php, group)?.purging(counters));
            pools.push(front);
        }
        let front = Recipe::front(config, sealed()?, keys, of_loops, pools, ready_out, secret)?;
        let front = front.purging(purges.of(Keeper::Scripts));
        let roots: Vec<_> =
            config.sites.iter().map(|site| site.root.display().to_string()).collect();
        let line = format!("sendoff: serving {} at {urls}", roots.join(", "));
        Ok(Self { front, masters, groups, ready, addresses, files, door, line })
    }
}
