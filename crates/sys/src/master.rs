//! Code that both kinds of masters of pools share: signals, waiting, and the limits of a process.

use std::io;
use std::path::Path;
use std::time::Instant;

use rustix::event::{PollFd, Timespec, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{
    Gid, Pid, Resource, Rlimit, Signal, Uid, chdir, chroot, getppid, getrlimit, setrlimit, umask,
};
use rustix::thread::CapabilitySet;

use crate::process::become_user;

/// Signals that a master handles itself. It obeys TERM and CHILD. The others are meant for the
/// supervisor, but also reach the master if a terminal or `pkill` sends them.
pub const SIGNALS: [Signal; 7] = [
    Signal::TERM,
    Signal::CHILD,
    Signal::INT,
    Signal::QUIT,
    Signal::HUP,
    Signal::USR1,
    Signal::USR2,
];

/// The supervisor, which is the process that started a master. When it dies, the kernel sends
/// SIGTERM to the master (`PR_SET_PDEATHSIG`) and to the front. The front finishes its requests,
/// and needs the master's processes until its own end.
#[derive(Debug)]
pub struct Supervisor {
    pid: Option<Pid>,
    is_gone: bool,
}

impl Supervisor {
    /// The parent of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self { pid: getppid(), is_gone: false }
    }

    /// Call it after a SIGTERM. Returns true, once, if the supervisor has died, so that the signal
    /// means only that.
    pub fn notice_death(&mut self) -> bool {
        let was_gone = self.is_gone;
        self.is_gone = was_gone || getppid() != self.pid;
        self.is_gone && !was_gone
    }

    /// True if the last call of [`Self::notice_death`] found the supervisor dead.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }
}

/// Raises the soft limit of open files of this process to `needed`, or to the hard limit if that is
/// lower. Returns the limit before, for processes that should keep it: select(2) accepts no
/// descriptor above 1023. If the limit stays too low, opening a descriptor fails later and reports
/// the error.
pub fn make_room_for(needed: u64) -> Rlimit {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        let raised = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limit });
    }
    limit
}

/// Polls until a descriptor is ready or the deadline has passed; may return early.
///
/// # Errors
/// Errors of `poll(2)`, except `EINTR`.
pub(crate) fn poll_until(fds: &mut [PollFd<'_>], deadline: Option<Instant>) -> io::Result<()> {
    let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
    let timeout = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
    match poll(fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The limits of a new process of a pool. `None` leaves a property unchanged.
#[derive(Debug, Clone, Copy)]
pub struct Confines<'a> {
    /// Permissions that new files must not have (umask(2)).
    pub umask: Option<u32>,
    /// Maximum number of bytes of private memory (`RLIMIT_DATA`).
    pub memory_limit: Option<u64>,
    /// Maximum number of descriptors (`RLIMIT_NOFILE`).
    pub max_open_files: Option<u64>,
    /// Maximum number of processes and threads of its user, checked when it starts another one
    /// (`RLIMIT_NPROC`).
    pub max_processes: Option<u64>,
    /// Maximum size of a core file in bytes (`RLIMIT_CORE`).
    pub max_core: Option<u64>,
    /// The root directory, which is also its first working folder.
    pub root: Option<&'a Path>,
    /// User and group. Root stays root with all its privileges; another user keeps only
    /// `CAP_LEASE`, if the process has it.
    pub account: Option<(u32, u32)>,
}

impl Confines<'_> {
    /// Applies the limits to this process.
    ///
    /// # Errors
    /// The kernel refuses one of them. The process may then run with a part of the change and
    /// should end.
    pub fn take_on(&self) -> io::Result<()> {
        if let Some(mask) = self.umask {
            umask(Mode::from_raw_mode(mask));
        }
        let limits = [
            (Resource::Data, self.memory_limit),
            (Resource::Nofile, self.max_open_files),
            (Resource::Nproc, self.max_processes),
            (Resource::Core, self.max_core),
        ];
        for (resource, limit) in limits {
            if limit.is_some() {
                setrlimit(resource, Rlimit { current: limit, maximum: limit })?;
            }
        }
        let enter = || -> io::Result<()> {
            if let Some(root) = self.root {
                chroot(root)?;
                chdir("/")?;
            }
            Ok(())
        };
        match self.account {
            Some((uid @ 1.., gid)) => {
                become_user(Uid::from_raw(uid), Gid::from_raw(gid), CapabilitySet::LEASE, enter)
            }
            Some(_) | None => enter(),
        }
    }
}
