//! `sendoff-php`: starts PHP once and keeps workers forked from it. `sendoff serve` runs it.

mod engine;
mod failure;
mod log;
mod master;
mod pool;
mod settings;
mod slot;
mod start;
mod watch;

use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::process::ExitCode;

use clap::Parser;
use rustix::process::{Resource, Signal, getppid, set_parent_process_death_signal, setrlimit};
use sendoff_config::php_ini;
use sendoff_config::{Config, PoolConfig, Snapshot};
use sendoff_sandbox::{MemoryWatch, PoolGroup};
use sendoff_sys::process::{exit_now, take_inherited};
use sendoff_sys::title;

use engine::{Engine, Startup};
use failure::Failure;
use log::log;
use master::{Master, Role};
use pool::Ends;
use slot::WorkerStart;

/// Keeps PHP workers running and gives their sockets to the front. Its configuration is in an
/// inherited file.
#[derive(Debug, Parser)]
#[command(version)]
struct Inherited {
    /// The configuration (inherited descriptor).
    #[arg(long, value_name = "N")]
    config_fd: RawFd,
    /// The number of the pool in the configuration.
    #[arg(long, value_name = "N")]
    pool: usize,
    /// The socket on which the front receives workers (inherited descriptor).
    #[arg(long, value_name = "N")]
    pool_fd: RawFd,
    /// The file for the messages that PHP prints at its start, which the supervisor reads
    /// (inherited descriptor).
    #[arg(long, value_name = "N")]
    said_fd: Option<RawFd>,
    /// The folder of the pool's control group, if it has one (inherited descriptor).
    #[arg(long, value_name = "N")]
    group_fd: Option<RawFd>,
}

fn main() -> ExitCode {
    let inherited = Inherited::parse();
    match run(&inherited) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            log(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(inherited: &Inherited) -> Result<(), Failure> {
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
    let config = Config::read(take("--config-fd", inherited.config_fd)?)
        .map_err(|error| Failure::Internal(format!("the configuration cannot be read: {error}")))?;
    let socket = take("--pool-fd", inherited.pool_fd)?;
    let no_pool = || Failure::Internal(format!("the configuration has no pool {}", inherited.pool));
    let pool = config.pools.get(inherited.pool).ok_or_else(no_pool)?;
    let ini_dir = php_ini::folder();
    title::set(&format!("sendoff: php master, pool {}", pool.name));
    start::check(pool)?;
    let environment = start::environment(pool)?;
    let said_file = inherited.said_fd.map(|number| take("--said-fd", number)).transpose()?;
    let said = said_file.as_ref();
    let (environment, orphan_time) = (&environment[..], config.shutdown_timeout);
    let startup = Startup { ini_dir: &ini_dir, pool, environment, orphan_time, said };
    let engine = Engine::start(&startup).ok_or(Failure::Php)?;
    drop(said_file);
    let role = Master::new(&config, pool, socket, MemoryWatch::new(group))
        .and_then(Master::run)
        .map_err(Failure::system("cannot keep workers"))?;
    match role {
        Role::Master => Ok(()),
        Role::Worker(start) => serve(pool, &engine, start),
    }
}

fn take(option: &str, number: RawFd) -> Result<OwnedFd, Failure> {
    take_inherited(number).map_err(|error| Failure::Internal(format!("{option} {number}: {error}")))
}

/// Sets up a worker and serves requests until its end.
fn serve(pool: &PoolConfig, engine: &Engine, start: WorkerStart) -> ! {
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
    exit_now(engine.serve(links, guard, slow, status, busy.as_fd(), pool.max_requests))
}
