//! The process that keeps the processes of a pool's program (`docs/pools.md`).

mod master;
mod output;
mod process;
mod slot;
mod socket;

use sendoff_config::Config;
use sendoff_sandbox::{MemoryWatch, PoolGroup};
use sendoff_sys::process::exit_now;
use sendoff_sys::title;

use crate::failure::Failure;
use crate::front::{die_with, take};
use crate::options::OfProgram;
use crate::rights;
use master::{Master, Role};

pub(crate) use socket::PoolListener;

/// Exit status of a process that could not execute the program, as in a shell.
const NOT_RUN: i32 = 127;

/// Keeps the processes until the supervisor or the front no longer needs them.
///
/// # Errors
/// The descriptors or the configuration left by the supervisor are unusable, or the system refuses
/// a call.
pub(crate) fn run(inherited: &OfProgram) -> Result<(), Failure> {
    die_with(rustix::process::getppid())?;
    rights::hide()?;
    let config = Config::read(take(inherited.config_fd)?)
        .map_err(|error| Failure::Internal(format!("the configuration cannot be read: {error}")))?;
    crate::log::start(&config.log);
    let listener =
        PoolListener { socket: take(inherited.listener_fd)?, inode: take(inherited.inode_fd)? };
    let socket = take(inherited.pool_fd)?;
    let group = inherited.group_fd.map(take).transpose()?;
    let group = group.map(PoolGroup::enter).transpose();
    let group = group.map_err(Failure::system("cannot enter the control group of its pool"))?;
    let pool = config.pools.get(inherited.pool);
    let program = pool.and_then(|pool| Some((pool, pool.program.as_ref()?)));
    let (pool, program) = program.ok_or_else(|| {
        Failure::Internal(format!("the configuration has no program {}", inherited.pool))
    })?;
    title::set(&format!("sendoff: program master, pool {}", pool.name));
    process::check(pool)?;
    let role = Master::new(&config, pool, program, listener, socket, MemoryWatch::new(group))
        .and_then(Master::run);
    match role.map_err(Failure::system("cannot keep the processes of a program"))? {
        Role::Master => Ok(()),
        Role::Process(start) => {
            let Err(error) = start.run();
            crate::log::say(&error);
            exit_now(NOT_RUN)
        }
    }
}
