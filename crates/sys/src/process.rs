//! Processes: fork, change of user, signals through a descriptor.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::mpsc;
use std::thread;

use rustix::process::{Gid, Pid, Signal, Uid, setsid};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Maximum size in bytes of a user's entry in the user database; a larger entry is an error.
const MAX_ENTRY: usize = 1 << 20;

/// The kernel's limit for one process (`NGROUPS_MAX`).
const MAX_GROUPS: usize = 65536;

/// The two sides of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forked {
    /// The process that forked, with its new child.
    Parent(Pid),
    /// The new process.
    Child,
}

/// Lets the program of a command begin in a session of its own (setsid(2)), without a terminal.
pub fn in_new_session(command: &mut Command) {
    let begin = || match setsid() {
        Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    };
    // SAFETY: between fork and exec the child makes this one system call, and touches no memory
    // that another thread may have locked.
    unsafe { command.pre_exec(begin) };
}

/// Forks. The child has copies of all descriptors, even close-on-exec ones, and must close those
/// that it does not need. It has only the calling thread: a lock that another thread held stays
/// locked in the child, so a process should fork before it starts threads.
///
/// # Errors
/// Errors of `fork(2)`.
pub fn fork() -> io::Result<Forked> {
    // SAFETY: changes no memory of this process, and the child's memory is a copy, in which the C
    // library makes its allocator usable.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Pid::from_raw(pid).map_or(Forked::Child, Forked::Parent))
}

/// The real-time signal number `n`, counted from the first number that the C library leaves to
/// programs. Programs and libraries rarely use these signals, so a handler rarely conflicts with
/// another one.
#[must_use]
pub fn real_time_signal(n: u8) -> Signal {
    let first = libc::SIGRTMIN();
    let number = first + libc::c_int::from(n).min(libc::SIGRTMAX() - first);
    // SAFETY: it is between SIGRTMIN and SIGRTMAX, so the kernel knows it and the C library does
    // not use it.
    unsafe { Signal::from_raw_unchecked(number) }
}

/// Makes writes beyond the file size limit (`RLIMIT_FSIZE`) fail with `EFBIG`; by default they end
/// the process. The signal is caught, not ignored, so that programs that this process executes have
/// its default action.
///
/// # Errors
/// Errors of `sigaction(2)`.
pub fn survive_large_files() -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: zeroes are a valid `sigaction`, and `nothing` is a handler that touches nothing.
    let set = unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGXFSZ, &raw const action, ptr::null_mut())
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Keeps descriptors that this process has inherited, beside its standard ones, from the programs
/// that it executes. Kernels before 5.11 cannot do that at once and leave them.
pub fn keep_inherited_descriptors() {
    // SAFETY: the call changes only flags of descriptors, none of which is closed.
    let _old_kernel =
        unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Ends the process at once: no exit handlers, no destructors. For a forked child, whose parent
/// runs them, or a thread that must not wait for the others.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: does not return.
    unsafe { libc::_exit(status) }
}

/// Changes permanently to another user with all groups of that user. The process keeps the
/// capabilities in `keep` that it has; programs that it executes do not inherit them. `enter` runs
/// after the groups have been looked up, and before the process gives up its privileges: it may
/// change the root directory, where the files that name groups may be missing.
///
/// # Errors
/// The kernel refuses. The process may then run with a part of the change and should end.
pub fn become_user(
    uid: Uid,
    gid: Gid,
    keep: CapabilitySet,
    enter: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let keep = rustix::thread::capabilities(None)?.permitted & keep;
    set_groups(uid, gid)?;
    enter()?;
    rustix::thread::set_keep_capabilities(true)?;
    // SAFETY: plain calls; libc changes every thread.
    if unsafe { libc::setgid(gid.as_raw()) != 0 || libc::setuid(uid.as_raw()) != 0 } {
        return Err(io::Error::last_os_error());
    }
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() },
    )?;
    Ok(())
}

/// Changes permanently to the user and group `own`, without capabilities, but opens and creates
/// files as the user of `files`, with all groups of that user. New files belong to the user of
/// `files` and to the group of `own`. The permission to signal and to trace depends only on `own`,
/// so processes of the user of `files` can do neither to this process.
///
/// Call it before other threads start: only the calling thread and its later children are changed
/// completely.
///
/// # Errors
/// The kernel refuses, for instance because `own` does not exist in this user namespace. The
/// process may then run with a part of the change, and should end or [become another
/// user](become_user).
pub fn become_user_with_files_of(own: (Uid, Gid), files: (Uid, Gid)) -> io::Result<()> {
    set_groups(files.0, files.1)?;
    rustix::thread::set_keep_capabilities(true)?;
    // SAFETY: plain calls; libc changes every thread.
    if unsafe { libc::setgid(own.1.as_raw()) != 0 || libc::setuid(own.0.as_raw()) != 0 } {
        return Err(io::Error::last_os_error());
    }
    let only = |set| CapabilitySets {
        effective: set,
        permitted: set,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, only(CapabilitySet::SETUID))?;
    let files = files.0.as_raw();
    // SAFETY: plain calls, which change this thread. They return the previous user, never an error;
    // the second one changes nothing, because there is no such user.
    let now = unsafe {
        libc::setfsuid(files);
        libc::setfsuid(u32::MAX)
    };
    rustix::thread::set_capabilities(None, only(CapabilitySet::empty()))?;
    if now.cast_unsigned() == files { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Lets the next program that this process executes have these capabilities, as far as the process
/// has them.
///
/// # Errors
/// The kernel refuses.
pub fn pass_on_capabilities(passed: CapabilitySet) -> io::Result<()> {
    let own = rustix::thread::capabilities(None)?;
    let passed = own.permitted & passed;
    rustix::thread::set_capabilities(None, CapabilitySets { inheritable: passed, ..own })?;
    for capability in passed {
        rustix::thread::configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

fn set_groups(uid: Uid, gid: Gid) -> io::Result<()> {
    // SAFETY: the result points to libc's own memory, used before the next such call in this
    // thread.
    let account = unsafe { libc::getpwuid(uid.as_raw()) };
    let result = if account.is_null() {
        let only = [gid.as_raw()];
        // SAFETY: the array has the length given.
        unsafe { libc::setgroups(only.len(), only.as_ptr()) }
    } else {
        // SAFETY: `account` is a valid entry whose name is a C string.
        unsafe { libc::initgroups(CStr::from_ptr((*account).pw_name).as_ptr(), gid.as_raw()) }
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The groups of a process that has become this user ([`become_user`]).
///
/// # Errors
/// The user's name, or the groups, cannot be looked up.
pub fn groups_of(uid: u32, gid: u32) -> io::Result<Vec<u32>> {
    let mut text = vec![0; 1024];
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut found = ptr::null_mut();
    let result = loop {
        // SAFETY: all pointers are valid, and the buffer has the length given.
        let result = unsafe {
            let (buffer, length) = (text.as_mut_ptr(), text.len());
            libc::getpwuid_r(uid, entry.as_mut_ptr(), buffer, length, &raw mut found)
        };
        if result != libc::ERANGE || text.len() > MAX_ENTRY {
            break result;
        }
        text.resize(text.len() * 2, 0);
    };
    if result != 0 {
        return Err(io::Error::from_raw_os_error(result));
    }
    if found.is_null() {
        return Ok(vec![gid]);
    }
    // SAFETY: `found` points to `entry`, which has been filled in; the name is a C string in
    // `text`.
    let name = unsafe { (*found).pw_name };
    let mut groups: Vec<u32> = vec![0; 64];
    loop {
        let mut count = libc::c_int::try_from(groups.len()).map_err(io::Error::other)?;
        // SAFETY: the name is a C string, and the array has the length given.
        if unsafe { libc::getgrouplist(name, gid, groups.as_mut_ptr(), &raw mut count) } >= 0 {
            groups.truncate(usize::try_from(count).map_err(io::Error::other)?);
            return Ok(groups);
        }
        if groups.len() > MAX_GROUPS {
            return Err(io::Error::other("the user has too many groups"));
        }
        groups.resize(groups.len() * 2, 0);
    }
}

/// A user's ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// User id.
    pub uid: u32,
    /// Id of the login group.
    pub gid: u32,
}

/// The account with this name (`getpwnam(3)`). Not thread-safe: call it at the start of a program.
#[must_use]
pub fn find_account(name: &str) -> Option<Account> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name is a C string; the result points to libc's own memory and is read at once.
    unsafe { libc::getpwnam(name.as_ptr()).as_ref() }
        .map(|entry| Account { uid: entry.pw_uid, gid: entry.pw_gid })
}

/// The id of the group with this name (`getgrnam(3)`). Not thread-safe: call it at the start of a
/// program.
#[must_use]
pub fn find_group(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name is a C string; the result points to libc's own memory and is read at once.
    unsafe { libc::getgrnam(name.as_ptr()).as_ref() }.map(|entry| entry.gr_gid)
}

/// A user's name and home folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The login name.
    pub name: CString,
    /// The home folder.
    pub home: CString,
}

/// The user with this id (`getpwuid(3)`). Not thread-safe: call it at the start of a program.
#[must_use]
pub fn find_user(uid: u32) -> Option<User> {
    // SAFETY: the result points to libc's own memory, which holds C strings and is read at once.
    unsafe {
        let entry = libc::getpwuid(uid).as_ref()?;
        let text = |text| CStr::from_ptr(text).to_owned();
        Some(User { name: text(entry.pw_name), home: text(entry.pw_dir) })
    }
}

/// Unblocks all signals and ignores none, for a child that executes a program: the program that
/// started this one may have blocked or ignored some (`nohup`, `perf record`).
pub fn reset_signals() {
    // SAFETY: sigemptyset initialises the set; no handler is installed. The C library refuses its own
    // signals, and the kernel SIGKILL and SIGSTOP.
    unsafe {
        for signal in 1..=libc::SIGRTMAX() {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = MaybeUninit::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
}

/// Signals that are read from a descriptor instead of interrupting the process.
#[derive(Debug)]
pub struct SignalFd {
    fd: OwnedFd,
    before: libc::sigset_t,
}

impl SignalFd {
    /// Blocks `signals` in this thread; from now on they arrive at this descriptor.
    ///
    /// # Errors
    /// Errors of `signalfd(2)`.
    pub fn new(signals: &[Signal]) -> io::Result<Self> {
        let mut set = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set; the others take valid pointers.
        let (fd, before) = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in signals {
                libc::sigaddset(set.as_mut_ptr(), signal.as_raw());
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
            let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
            (libc::signalfd(-1, set.as_ptr(), flags), before.assume_init())
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just created it, and it has no other owner.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) }, before })
    }

    /// The next pending signal; `None` if there is none.
    pub fn take(&mut self) -> Option<Signal> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer has the size given; a full read initialises it.
        let info = unsafe {
            let n = libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), size);
            if usize::try_from(n) != Ok(size) {
                return None;
            }
            info.assume_init()
        };
        i32::try_from(info.ssi_signo).ok().and_then(Signal::from_named_raw)
    }

    /// Restores the signal mask from before [`SignalFd::new`]; for a child after a fork.
    pub fn unblock(self) {
        // SAFETY: the set was filled in by the kernel.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Takes ownership of a descriptor that the parent left open under a known number, and marks it
/// close-on-exec. Call it at the start of a program, once for each number.
///
/// # Errors
/// There is no such descriptor, or it is standard input, output or error.
pub fn take_inherited(number: RawFd) -> io::Result<OwnedFd> {
    if number <= libc::STDERR_FILENO {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: fcntl on a number that is no descriptor fails and does nothing else.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and the parent left it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Marks every descriptor except standard input, output and error as close-on-exec.
///
/// # Errors
/// Errors of `close_range(2)`.
pub fn leave_only_standard() -> io::Result<()> {
    let (first, flags) = (libc::STDERR_FILENO.unsigned_abs() + 1, libc::CLOSE_RANGE_CLOEXEC);
    // SAFETY: closes nothing now; the numbers are no pointers.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, flags) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Closes descriptors of which other processes decide how long that takes: connections with
/// `SO_LINGER`, and sockets in which such connections wait. A thread that ends gets copies and is
/// their last owner: then the kernel does not linger (`PF_EXITING` in `inet_release()` and its kind),
/// however deep they are. The caller waits until the thread has its copies, which takes 0.1 ms.
///
/// # Errors
/// The thread could not be started, or the kernel is older than 5.9: they are closed as usual.
pub fn close_without_lingering(descriptors: impl IntoIterator<Item = OwnedFd>) -> io::Result<()> {
    let descriptors: Vec<_> = descriptors.into_iter().collect();
    let Some(last) = descriptors.iter().map(AsRawFd::as_raw_fd).max() else { return Ok(()) };
    let (tell_copied, copied) = mpsc::channel();
    let (tell_closed, closed) = mpsc::channel::<()>();
    thread::Builder::new().name("closer".into()).spawn(move || {
        let own = copy_descriptors_up_to(last);
        let has_copies = own.is_ok();
        let _waits = tell_copied.send(own);
        if has_copies {
            let _dropped = closed.recv();
        }
    })?;
    copied.recv().map_err(io::Error::other)??;
    drop(descriptors);
    drop(tell_closed);
    Ok(())
}

/// Gives the calling thread a table of descriptors of its own, with copies of the descriptors up to
/// the number `last`.
fn copy_descriptors_up_to(last: RawFd) -> io::Result<()> {
    let first = last.unsigned_abs() + 1;
    // SAFETY: closes descriptors in the new table only, which nothing owns; the numbers are no
    // pointers.
    let done =
        unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_UNSHARE) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Lets the C library keep up to `bytes` of freed memory at the end of each heap (`mallopt(3)`,
/// `M_TRIM_THRESHOLD`) instead of returning it to the kernel, which would fill every page with
/// zeros when it is allocated again. Allocations larger than `bytes / 16` still come from the
/// kernel and are returned at once.
pub fn keep_freed_memory(bytes: usize) {
    let set = |parameter, bytes: usize| {
        let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        // SAFETY: sets a parameter of the allocator, under its lock. If it refuses, memory is
        // trimmed as usual.
        unsafe { libc::mallopt(parameter, value) };
    };
    set(libc::M_TRIM_THRESHOLD, bytes);
    // Setting one of the two parameters stops glibc from adapting both, so both are set.
    set(libc::M_MMAP_THRESHOLD, bytes / 16);
}

/// Returns freed memory to the kernel if the C library keeps more than `bytes` of it. By itself the
/// C library returns only memory after the last allocation of a heap, so one small allocation may
/// keep hundreds of megabytes. The check takes microseconds, the return about 0.1 ms per megabyte.
/// Returns true if memory was returned.
pub fn give_back_freed_memory(bytes: usize) -> bool {
    // SAFETY: reads the allocator's statistics, under its locks.
    let freed = unsafe { libc::mallinfo2() }.fordblks;
    // SAFETY: gives free pages to the kernel, under the allocator's locks; memory in use stays as
    // it is.
    freed > bytes && unsafe { libc::malloc_trim(bytes) } == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_that_id_shows() {
        let users = std::fs::read_to_string("/etc/passwd").unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for line in users.lines() {
            let fields: Vec<_> = line.split(':').collect();
            let [uid, gid] = [2, 3].map(|at| fields[at].parse().unwrap());
            // A second name of the same user may be in other groups.
            if !seen.insert(uid) {
                continue;
            }
            let shown = Command::new("id").args(["-G", fields[0]]).output().unwrap();
            let shown = String::from_utf8(shown.stdout).unwrap();
            let mut expected: Vec<u32> =
                shown.split_whitespace().map(|group| group.parse().unwrap()).collect();
            let mut groups = groups_of(uid, gid).unwrap();
            expected.sort_unstable();
            groups.sort_unstable();
            assert_eq!(groups, expected, "{line}");
        }
        assert_eq!(groups_of(4_000_000_001, 7).unwrap(), [7], "a user without a name");
    }
}
