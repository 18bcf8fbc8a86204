//! Setup of a new worker before it serves: user, root directory, limits, environment.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal, geteuid, getppid, set_parent_process_death_signal};
use sendoff_config::PoolConfig;
use sendoff_sys::process::{exit_now, find_user};

use crate::failure::Failure;

/// Refuses a configuration with which no worker could start.
pub(crate) fn check(pool: &PoolConfig) -> Result<(), Failure> {
    let (name, is_root) = (&pool.name, geteuid().is_root());
    if is_root && pool.account.is_none() {
        return Err(Failure::System(format!(
            "pool {name} names no user, and scripts do not run as root"
        )));
    }
    if !is_root && pool.chroot.is_some() {
        return Err(Failure::System(format!(
            "pool {name} has a chroot, which only root can enter"
        )));
    }
    Ok(())
}

/// The environment of scripts, each `NAME=VALUE`: variables of the account and of the pool's
/// configuration.
pub(crate) fn environment(pool: &PoolConfig) -> Result<Vec<CString>, Failure> {
    let uid = pool.account.map_or_else(|| geteuid().as_raw(), |account| account.uid);
    let mut all = Vec::new();
    if let Some(user) = find_user(uid) {
        let listed = |name: &str| pool.environment.iter().any(|(listed, _)| listed == name);
        let own = [("USER", user.name), ("HOME", user.home)];
        let own = own.into_iter().filter(|(name, _)| !listed(name));
        all.extend(own.map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat()));
    }
    all.extend(pool.environment.iter().map(|(name, value)| format!("{name}={value}").into_bytes()));
    let texts = all.into_iter().map(CString::new).collect::<Result<_, _>>();
    texts.map_err(|_| Failure::Internal(format!("the environment of pool {} has a NUL", pool.name)))
}

/// Makes a pipe the standard output and standard error of this process, in place of the server's
/// log: a script could truncate a file, or end the stream to the journal for all processes.
///
/// # Errors
/// Errors of `dup2(2)`.
pub(crate) fn print_to(pipe: OwnedFd) -> io::Result<()> {
    rustix::stdio::dup2_stdout(&pipe)?;
    rustix::stdio::dup2_stderr(&pipe)?;
    Ok(())
}

/// Makes a new process a worker of the pool, and ties its life to its master's. The order matters:
/// a change of user resets the tie.
///
/// # Errors
/// The system refuses it; the process must end.
pub(crate) fn prepare(pool: &PoolConfig, master: Pid) -> io::Result<()> {
    sendoff_sandbox::prefer_when_out_of_memory();
    pool.confines().take_on()?;
    if pool.account.is_none_or(|account| account.uid == 0) {
        // Without a change of user the worker would stay hidden like the master. Workers of php-fpm
        // are not hidden.
        sendoff_sandbox::show()?;
    }
    if pool.no_new_privileges {
        sendoff_sandbox::only_signal_children()?;
    }
    // On this signal the worker ends after its request.
    set_parent_process_death_signal(Some(Signal::TERM))?;
    if getppid() != Some(master) {
        // The master ended before the line above, which would otherwise have ended this process,
        // also silently.
        exit_now(1);
    }
    Ok(())
}
