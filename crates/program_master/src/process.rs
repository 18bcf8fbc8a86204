//! Setup of a new process before it executes the program: user, root directory, limits,
//! descriptors.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{
    Pid, Signal, chdir, geteuid, getppid, set_parent_process_death_signal, setpgid,
};
use rustix::thread::CapabilitySet;
use sendoff_config::{PoolConfig, Program};
use sendoff_sys::fragments::INHERITED;
use sendoff_sys::process::{find_user, leave_only_standard, pass_on_capabilities, reset_signals};

/// `LANG` for all processes, since they inherit no environment: programs print UTF-8.
const LANG: &str = "C.UTF-8";

/// Standard input, with the listening socket, and the output streams of a process.
#[derive(Debug)]
pub(super) struct Standard {
    pub(super) listener: OwnedFd,
    pub(super) output: OwnedFd,
    pub(super) error: OwnedFd,
}

/// Refuses a configuration with which no process could start.
///
/// # Errors
/// A sentence for the operator.
pub fn check(pool: &PoolConfig) -> Result<(), String> {
    let (name, is_root) = (&pool.name, geteuid().is_root());
    if is_root && pool.account.is_none() {
        return Err(format!("pool {name} names no user, and its program does not run as root"));
    }
    if !is_root && pool.chroot.is_some() {
        return Err(format!("pool {name} has a chroot, which only root can enter"));
    }
    Ok(())
}

/// The environment of processes: variables of the account and of the pool's configuration.
/// Processes inherit no other variables.
pub(super) fn environment(pool: &PoolConfig) -> Vec<(OsString, OsString)> {
    let uid = pool.account.map_or_else(|| geteuid().as_raw(), |account| account.uid);
    let mut all: Vec<(OsString, OsString)> =
        vec![("PATH".into(), Program::PATH.into()), ("LANG".into(), LANG.into())];
    if let Some(user) = find_user(uid) {
        let text = |text: std::ffi::CString| OsString::from_vec(text.into_bytes());
        let (name, home) = (text(user.name), text(user.home));
        all.extend([
            ("USER".into(), name.clone()),
            ("LOGNAME".into(), name),
            ("HOME".into(), home),
        ]);
    }
    all.extend(pool.environment.iter().map(|(name, value)| (name.into(), value.into())));
    all
}

/// Makes a new process execute the program, and ties its life to its master's. The order matters: a
/// change of user resets the tie.
///
/// # Errors
/// The system refuses it; the process must end.
pub(super) fn become_program(
    pool: &PoolConfig,
    program: &Program,
    mut environment: Vec<(OsString, OsString)>,
    standard: &Standard,
    fragments: Option<&[OwnedFd; 2]>,
    master: Pid,
) -> io::Result<Infallible> {
    rustix::stdio::dup2_stdin(&standard.listener)?;
    rustix::stdio::dup2_stdout(&standard.output)?;
    rustix::stdio::dup2_stderr(&standard.error)?;
    // A process group of its own, so that the children of the program end with it.
    setpgid(None, None)?;
    sendoff_sandbox::prefer_when_out_of_memory();
    pool.confines().take_on()?;
    if pool.no_new_privileges {
        sendoff_sandbox::only_signal_children()?;
    }
    // Same as PHP's workers: handing over a file that belongs to another user needs a lease.
    if pool.account.is_some_and(|account| account.uid != 0) {
        pass_on_capabilities(CapabilitySet::LEASE)?;
    }
    let named = |what: String| {
        move |error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"))
    };
    let folder = &pool.chdir;
    chdir(folder)
        .map_err(io::Error::from)
        .map_err(named(format!("its folder {}", folder.display())))?;
    set_parent_process_death_signal(Some(Signal::TERM))?;
    if getppid() != Some(master) {
        return Err(io::Error::other("its master has ended"));
    }
    leave_only_standard()?;
    // The process closes them as soon as it has mapped the memory.
    let inherited = match fragments {
        Some([memory, counters]) => Some([rustix::io::dup(memory)?, rustix::io::dup(counters)?]),
        None => None,
    };
    if let Some([memory, counters]) = &inherited {
        let numbers = format!("{},{}", memory.as_raw_fd(), counters.as_raw_fd());
        environment.push((INHERITED.into(), numbers.into()));
    }
    // The descriptor for the master's signals is closed.
    reset_signals();
    let (name, arguments) = program.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let error =
        Command::new(&program.file).arg0(name).args(arguments).env_clear().envs(environment).exec();
    let file = program.file.display();
    Err(match error.kind() {
        // The file existed when the configuration was read.
        io::ErrorKind::NotFound => {
            io::Error::other(format!("{file} or the interpreter in its first line is missing"))
        }
        _ => named(file.to_string())(error),
    })
}
