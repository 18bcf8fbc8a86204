//! What the masters of pools do alike, that of PHP and that of a program: signals, waiting, and the limits of a new process.

use std::io;
use std::path::Path;
use std::time::Instant;

use rustix::event::{PollFd, Timespec, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{
    Gid, Pid, Resource, Rlimit, Signal, Uid, chdir, chroot, getppid, setrlimit, umask,
};
use rustix::thread::CapabilitySet;

use crate::process::become_user;

/// Signals that end a master no longer by themselves. It follows TERM and CHILD; the others are for the supervisor, which does what they
/// ask for, and reach the master, too, if a terminal or `pkill` sends them.
pub const SIGNALS: [Signal; 7] = [
    Signal::TERM,
    Signal::CHILD,
    Signal::INT,
    Signal::QUIT,
    Signal::HUP,
    Signal::USR1,
    Signal::USR2,
];

/// The process that started a master, the supervisor. When it dies, the master gets SIGTERM by the kernel (`PR_SET_PDEATHSIG`), and so does
/// the front, which finishes its requests: it needs the master's processes up to its own end.
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

    /// To be asked when SIGTERM has come: true, once, if the supervisor has died, so that the signal tells only of that.
    pub fn has_just_died(&mut self) -> bool {
        let was_gone = self.is_gone;
        self.is_gone = was_gone || getppid() != self.pid;
        self.is_gone && !was_gone
    }

    /// Whether that was so before.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }
}

/// Polls until something is ready or the time has come; either may be early.
///
/// # Errors
/// Those of `poll(2)`, without `EINTR`.
pub fn poll_until(fds: &mut [PollFd<'_>], deadline: Option<Instant>) -> io::Result<()> {
    let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
    let timeout = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
    match poll(fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What a new process of a pool is confined to. `None` leaves a thing as it is.
#[derive(Debug, Clone, Copy)]
pub struct Confines<'a> {
    /// The permissions that new files do not get (umask(2)).
    pub umask: Option<u32>,
    /// Bytes of memory of its own (`RLIMIT_DATA`).
    pub memory_limit: Option<u64>,
    /// The most descriptors that it may have (`RLIMIT_NOFILE`).
    pub max_open_files: Option<u64>,
    /// The most processes and threads that its user may have when it starts another one (`RLIMIT_NPROC`).
    pub max_processes: Option<u64>,
    /// The most bytes of a core file (`RLIMIT_CORE`).
    pub max_core: Option<u64>,
    /// The folder that is `/` for it, and its working folder at first.
    pub root: Option<&'a Path>,
    /// Its user and group. Root stays root, with all that it may do; another user keeps no capability but `CAP_LEASE`, as far as the
    /// process has it.
    pub account: Option<(u32, u32)>,
}

impl Confines<'_> {
    /// Confines this process.
    ///
    /// # Errors
    /// The kernel refuses. The process may then run with part of the change and should end.
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
