//! The process that is the master of a pool's program (`docs/pools.md`), and the socket of the pool.

use std::io;

use sendoff_config::Config;
use sendoff_control::runtime_folder;
use sendoff_program_master::PoolListener;
use sendoff_sandbox::PoolGroup;
use sendoff_sys::title;

use crate::failure::Failure;
use crate::front::{die_with, take};
use crate::options::OfProgram;
use crate::rights;

/// Opens the listening socket of a pool with a program.
///
/// # Errors
/// The runtime folder is unusable, or the system has no descriptor left.
pub(crate) fn listen() -> io::Result<PoolListener> {
    let folder = runtime_folder::candidates().into_iter().next();
    let folder = folder.ok_or_else(|| io::Error::other("there is no folder for sockets"))?;
    let in_folder =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.display()));
    runtime_folder::make(&folder).map_err(in_folder)?;
    PoolListener::open_in(&folder).map_err(in_folder)
}

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
    let purges = inherited.purges_fd.map(take).transpose()?;
    let group = inherited.group_fd.map(take).transpose()?;
    let group = group.map(PoolGroup::enter).transpose();
    let group = group.map_err(Failure::system("cannot enter the control group of its pool"))?;
    let pool = config.pools.get(inherited.pool);
    let program = pool.and_then(|pool| Some((pool, pool.program.as_ref()?)));
    let (pool, program) = program.ok_or_else(|| {
        Failure::Internal(format!("the configuration has no program {}", inherited.pool))
    })?;
    title::set(&format!("sendoff: program master, pool {}", pool.name));
    sendoff_program_master::check(pool).map_err(Failure::System)?;
    let say = |error: &io::Error| crate::log::say(error);
    sendoff_program_master::run(&config, pool, program, (listener, socket), purges, group, say)
        .map_err(Failure::system("cannot keep the processes of a program"))
}
