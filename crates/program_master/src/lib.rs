//! The master of a pool with a program: it keeps the processes of the program (`docs/pools.md`).
#![forbid(unsafe_code)]

mod master;
mod output;
mod process;
mod slot;
mod socket;

use std::io;
use std::os::fd::OwnedFd;

use sendoff_config::{Config, PoolConfig, Program};
use sendoff_sandbox::{MemoryWatch, PoolGroup};
use sendoff_sys::process::exit_now;

use master::{Master, Role};

pub use process::check;
pub use socket::PoolListener;

/// Exit status of a process that could not execute the program, as in a shell.
const NOT_RUN: i32 = 127;

/// Keeps the processes until the supervisor or the front no longer needs them. `socket` is the
/// pool socket, whose other end the front has, and `group` the control group of this process.
/// `purges`: the counters by which fragments are purged; `None`: new ones.
/// `report` gets the reason why a new process could not execute the program; that process then
/// ends.
///
/// # Errors
/// The system refuses a call.
pub fn run(
    config: &Config,
    pool: &PoolConfig,
    program: &Program,
    (listener, socket): (PoolListener, OwnedFd),
    purges: Option<OwnedFd>,
    group: Option<PoolGroup>,
    report: impl FnOnce(&io::Error),
) -> io::Result<()> {
    let memory = MemoryWatch::new(group);
    let master = Master::new(config, pool, program, listener, socket, purges, memory)?;
    match master.run()? {
        Role::Master => Ok(()),
        Role::Process(start) => {
            let Err(error) = start.run();
            report(&error);
            exit_now(NOT_RUN)
        }
    }
}
