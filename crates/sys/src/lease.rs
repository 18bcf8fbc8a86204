//! Read leases (`fcntl(2)`, "Leases"): the kernel notifies their holder before another process
//! writes to the file.
//!
//! A lease break is signalled to one thread, which reads it from a descriptor. No signal handler
//! runs, and no system call of another thread is interrupted.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::thread::{Builder, JoinHandle};

use rustix::thread::Pid;

/// The real-time signal of lease breaks, counted from `SIGRTMIN`. It goes to a thread that blocks
/// it, so it does not disturb an application that uses the same number.
const SIGNAL: i32 = 7;

/// From `<linux/fcntl.h>`; the `libc` crate lacks it.
const F_SETSIG: i32 = 10;
const F_GETSIG: i32 = 11;
const F_SETOWN_EX: i32 = 15;
const F_OWNER_TID: i32 = 0;

#[repr(C)]
struct OwnerEx {
    kind: i32,
    pid: i32,
}

/// Takes a read lease on the open file. The thread `thread` of this process receives the break
/// signal, with the descriptor number that `file` has now, even if there are duplicates.
///
/// # Errors
/// Errors of `fcntl(2)`: `EACCES` without ownership or `CAP_LEASE`, `EAGAIN` if it is open for
/// writing.
pub fn take(file: BorrowedFd<'_>, thread: Pid) -> io::Result<()> {
    let owner = OwnerEx { kind: F_OWNER_TID, pid: thread.as_raw_nonzero().get() };
    // Signal and owner first, because the lease can break as soon as it exists.
    check(
        // SAFETY: takes an integer.
        unsafe { libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGRTMIN() + SIGNAL) },
    )?;
    check(
        // SAFETY: reads a `struct f_owner_ex`, which `OwnerEx` is.
        unsafe { libc::fcntl(file.as_raw_fd(), F_SETOWN_EX, &raw const owner) },
    )?;
    check(
        // SAFETY: takes an integer.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) },
    )?;
    Ok(())
}

/// The state of the lease on an open file, the same for all processes that share the open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// No process has written since it was taken.
    Stands,
    /// A writer waits for the end of the lease, and has not written yet.
    Breaking,
    /// The lease was never taken, was given up, or was ended by the kernel after
    /// `fs.lease-break-time`. Another process may have written.
    Ended,
}

/// Checks a lease; takes 0.25 µs while it stands.
#[must_use]
pub fn look(file: BorrowedFd<'_>) -> Lease {
    // SAFETY: takes no argument.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) } == libc::F_RDLCK {
        return Lease::Stands;
    }
    // F_GETLEASE cannot tell Breaking from Ended. But whenever a lease ends, the kernel resets its
    // break signal (`lease_modify()` in fs/locks.c). Query F_GETLEASE first, then F_GETSIG: an
    // ended lease cannot come back in between. SAFETY: takes no argument.
    match unsafe { libc::fcntl(file.as_raw_fd(), F_GETSIG) } {
        signal if signal == libc::SIGRTMIN() + SIGNAL => Lease::Breaking,
        _ => Lease::Ended,
    }
}

/// Gives the lease up; writers that wait for it continue.
///
/// # Errors
/// Errors of `fcntl(2)`.
pub fn give_up(file: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes an integer.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) }).map(drop)
}

/// A message of the kernel about leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseBreak {
    /// The lease that was taken under this descriptor number has probably broken. The number may
    /// have been reused since.
    Broken(RawFd),
    /// Signals were lost: any lease may have broken.
    Anything,
}

/// The calling thread's break signals, as a descriptor to wait on. They must be blocked in it
/// ([`spawn_deaf`]).
#[derive(Debug)]
pub struct Breaks {
    fd: OwnedFd,
}

impl Breaks {
    /// Opens the descriptor.
    ///
    /// # Errors
    /// Errors of `signalfd(2)`.
    pub fn open() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set that the other calls then use.
        let fd = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGRTMIN() + SIGNAL);
            // The kernel sends SIGIO instead when its queue of real-time signals is full.
            libc::sigaddset(set.as_mut_ptr(), libc::SIGIO);
            libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        check(fd)?;
        // SAFETY: signalfd has just created it, and it has no other owner.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// The next message, if there is one. Must be called in the thread that [`take`] named.
    ///
    /// # Errors
    /// Errors of `read(2)`.
    pub fn next(&self) -> io::Result<Option<LeaseBreak>> {
        const LEN: usize = size_of::<libc::signalfd_siginfo>();
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        // SAFETY: the buffer is writable for `LEN` bytes.
        let n = unsafe { libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), LEN) };
        if usize::try_from(n) == Ok(LEN) {
            // SAFETY: read filled all of it, and any bytes are a valid signalfd_siginfo.
            let info = unsafe { info.assume_init() };
            let overflow = info.ssi_signo == libc::SIGIO.cast_unsigned();
            return Ok(Some(if overflow {
                LeaseBreak::Anything
            } else {
                LeaseBreak::Broken(info.ssi_fd)
            }));
        }
        let error = io::Error::last_os_error();
        if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) }
    }
}

impl std::os::fd::AsFd for Breaks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Starts a thread in which every signal is blocked, so that signals to the process go to the
/// application's threads.
///
/// # Errors
/// Errors of `pthread_create(3)`.
pub fn spawn_deaf(
    builder: Builder,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises `all`; pthread_sigmask initialises `before`. A thread inherits
    // its maker's mask.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let thread = builder.spawn(run);
    // SAFETY: `before` was initialised above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    thread
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

const _: () = assert!(size_of::<OwnerEx>() == 8, "struct f_owner_ex is two ints");
