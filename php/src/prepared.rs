//! The master around the start of PHP: what comes before it, and the workers after it.

use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Resource, Signal, getppid, set_parent_process_death_signal, setrlimit};
use sendoff_config::{Config, PoolConfig, Snapshot};
use sendoff_sandbox::{MemoryWatch, PoolGroup};
use sendoff_sys::process::exit_now;
use sendoff_sys::title;

use crate::engine::{StartArguments, serve_requests};
use crate::failure::Failure;
use crate::inherited::{Inherited, take};
use crate::master::{Master, Role};
use crate::pool::Ends;
use crate::purges;
use crate::slot::WorkerStart;
use crate::start;

/// A master that is tied to the supervisor, in the control group of its pool, and has read its
/// configuration.
#[derive(Debug)]
pub(crate) struct Prepared {
    config: Config,
    /// The number of the pool in the configuration.
    number: usize,
    socket: OwnedFd,
    said: Option<OwnedFd>,
    /// The pipe on which the supervisor learns that PHP has started.
    started: Option<OwnedFd>,
    memory: MemoryWatch,
}

impl Prepared {
    /// Does what comes before the start of PHP.
    ///
    /// # Errors
    /// The descriptors or the configuration are unusable, or no worker could start.
    pub(crate) fn new(inherited: &Inherited) -> Result<Self, Failure> {
        let parent = getppid();
        set_parent_process_death_signal(Some(Signal::TERM))
            .map_err(io::Error::from)
            .map_err(Failure::system("cannot tie its life to the supervisor's"))?;
        if getppid() != parent {
            return Err(Failure::System("the supervisor is gone".to_owned()));
        }
        sendoff_sandbox::hide().map_err(Failure::system("cannot hide from other processes"))?;
        // This comes first: the pool must be charged for the memory that PHP's start allocates.
        let group = inherited.group_fd.map(|number| take("--group-fd", number)).transpose()?;
        let group = group.map(PoolGroup::enter).transpose();
        let group = group.map_err(Failure::system("cannot enter the control group of its pool"))?;
        let config = Config::read(take("--config-fd", inherited.config_fd)?).map_err(|error| {
            Failure::Internal(format!("the configuration cannot be read: {error}"))
        })?;
        let socket = take("--pool-fd", inherited.pool_fd)?;
        let number = inherited.pool;
        let no_pool = || Failure::Internal(format!("the configuration has no pool {number}"));
        start::check(config.pools.get(number).ok_or_else(no_pool)?)?;
        let purges = inherited.purges_fd.map(|number| take("--purges-fd", number)).transpose()?;
        purges.into_iter().for_each(purges::inherit);
        let said = inherited.said_fd.map(|number| take("--said-fd", number)).transpose()?;
        let started =
            inherited.started_fd.map(|number| take("--started-fd", number)).transpose()?;
        Ok(Self { config, number, socket, said, started, memory: MemoryWatch::new(group) })
    }

    fn pool(&self) -> &PoolConfig {
        &self.config.pools[self.number]
    }

    /// The title of this process in `ps`.
    pub(crate) fn show_title(&self) {
        title::set(&format!("sendoff: php master, pool {}", self.pool().name));
    }

    /// Arguments of PHP's start; `None` if a text of them contains a NUL.
    ///
    /// # Errors
    /// The environment of the pool is unusable.
    pub(crate) fn arguments(&self) -> Result<Option<StartArguments>, Failure> {
        let environment = start::environment(self.pool())?;
        let orphan_time = self.config.shutdown_timeout;
        Ok(StartArguments::new(self.pool(), environment, orphan_time, self.said.as_ref()))
    }

    /// Keeps workers, once PHP has started, until the front or the supervisor ends the master. It
    /// does not return in workers.
    ///
    /// # Errors
    /// The system refuses what a master needs.
    pub(crate) fn keep_workers(self) -> Result<(), Failure> {
        let Self { config, number, socket, said, started, memory } = self;
        drop(said);
        if let Some(started) = started {
            // A failed write means that the supervisor has ended, which ends this process, too.
            let _ = rustix::io::write(&started, b"s");
        }
        let pool = &config.pools[number];
        let role = Master::new(&config, pool, socket, memory)
            .and_then(Master::run)
            .map_err(Failure::system("cannot keep workers"))?;
        match role {
            Role::Master => Ok(()),
            Role::Worker(start) => serve(pool, start),
        }
    }
}

/// Sets up a worker and serves requests until its end.
fn serve(pool: &PoolConfig, start: WorkerStart) -> ! {
    title::set_for_worker(&format!("sendoff: php worker, pool {}", pool.name));
    let WorkerStart { ends, busy, slow, status, output, master, open_files } = start;
    let prepared = start::print_to(output).and_then(|()| {
        setrlimit(Resource::Nofile, open_files)?;
        start::prepare(pool, master)
    });
    if let Err(error) = prepared {
        // The master names the worker. A failed write cannot be reported anywhere.
        let _ = writeln!(io::stderr(), "it cannot be prepared: {error}");
        exit_now(1);
    }
    let Ends { links, guard } = ends;
    // Without leases the guard is unused, but the front expects the worker to keep its end open.
    let (guard, _kept) = match pool.snapshot {
        Snapshot::Lease => (Some(guard), None),
        Snapshot::Copy => (None, Some(guard)),
    };
    exit_now(serve_requests(links, guard, slow, status, busy.as_fd(), pool.max_requests))
}
