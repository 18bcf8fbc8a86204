//! System calls that the front may make (seccomp(2)).
//!
//! The list was measured: it contains the calls that fronts in the tests made after their start,
//! and calls that the C library, the runtime and the allocator may use instead on other machines.
//! Any other call fails with `ENOSYS`, as on a kernel that does not know it, so that libraries fall
//! back to older calls.

use std::collections::BTreeMap;
use std::io;

use libc::{c_int, c_long};
use rustix::process::getpid;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

/// Allowed with any arguments. The kernel caches this and skips the filter for them.
const ALLOWED: &[c_long] = &[
    // Memory.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // Threads.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_gettid,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    // The process's own signals.
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_signalfd4,
    // Time.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_timer_create,
    libc::SYS_timer_delete,
    libc::SYS_timer_settime,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    // Descriptors.
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_fcntl,
    libc::SYS_lseek,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_write,
    libc::SYS_writev,
    // Connections. Listeners come from the supervisor, apart from the socket on which FastCGI
    // applications open their channels, which is not in the file system. Landlock limits the ports.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
    // Files, without changes of owners and permissions.
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fdatasync,
    libc::SYS_fgetxattr,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getxattr,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_lgetxattr,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_readlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_unlinkat,
    // The process itself and the machine.
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_getuid,
    libc::SYS_prlimit64,
    libc::SYS_sysinfo,
    libc::SYS_uname,
];

/// Older calls of an architecture, for which newer calls with the same effect exist.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_getdents,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[];

/// Address families of sockets.
const DOMAINS: [c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Requests of `ioctl`: bytes to read, bytes not sent, non-blocking mode, terminal or not. None of
/// them changes a device.
const QUESTIONS: [u64; 4] = [libc::FIONREAD, libc::TIOCOUTQ, libc::FIONBIO, libc::TCGETS];

/// Options of `prctl`: the thread's name, names of its memory, and the auxiliary vector.
const OF_ITSELF: [c_int; 3] = [libc::PR_SET_NAME, PR_SET_VMA, PR_GET_AUXV];

/// From `<linux/prctl.h>`; the `libc` crate lacks it for some C libraries.
const PR_SET_VMA: c_int = 0x5356_4d41;
/// Also from `<linux/prctl.h>`.
const PR_GET_AUXV: c_int = 0x4155_5856;

/// Restricts this thread, and the threads that it starts, to the system calls that the front is
/// known to need; others fail with `ENOSYS`. The process can no longer gain privileges by executing
/// programs, and executing them is refused, too.
///
/// # Errors
/// The kernel has no such filters, or there is no list for this machine.
pub fn allow_only_known() -> io::Result<()> {
    let program = filter().map_err(io::Error::other)?;
    seccompiler::apply_filter(&program).map_err(io::Error::other)
}

fn filter() -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> =
        ALLOWED.iter().chain(OLDER).map(|call| (*call, Vec::new())).collect();
    let is = |argument, values: &[u64]| {
        let values = values.iter().map(|value| rule(argument, SeccompCmpOp::Eq, *value));
        values.collect::<Result<Vec<_>, _>>()
    };
    rules.insert(libc::SYS_socket, is(0, &DOMAINS.map(bits))?);
    rules.insert(libc::SYS_prctl, is(0, &OF_ITSELF.map(bits))?);
    rules.insert(libc::SYS_ioctl, is(1, &QUESTIONS)?);
    // abort(3) signals its own process.
    rules.insert(libc::SYS_tgkill, is(0, &[bits(getpid().as_raw_nonzero().get())])?);
    // Starts threads, not processes. The flags of `clone3` are behind a pointer, which a filter
    // cannot read.
    let thread = bits(libc::CLONE_THREAD);
    rules.insert(libc::SYS_clone, vec![rule(0, SeccompCmpOp::MaskedEq(thread), thread)?]);
    let refused = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let machine = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, refused, SeccompAction::Allow, machine)?.try_into()
}

/// A number of the C library, in the form in which the kernel compares it.
fn bits(number: c_int) -> u64 {
    u64::from(number.cast_unsigned())
}

/// A rule for the lower half of an argument: the kernel ignores the upper half of these.
fn rule(argument: u8, is: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, is, value)?;
    SeccompRule::new(vec![condition])
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::process::Command;
    use std::thread;

    use super::*;

    /// A filter applies to a thread, and to the threads that it starts.
    #[test]
    fn what_is_not_listed_does_not_exist() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let confined = thread::spawn(move || {
            allow_only_known().unwrap();
            let refused = [
                Command::new("true").status().unwrap_err(),
                rustix::fs::chmod("/dev/null", rustix::fs::Mode::RWXU).unwrap_err().into(),
                rustix::net::socket(
                    rustix::net::AddressFamily::VSOCK,
                    rustix::net::SocketType::STREAM,
                    None,
                )
                .unwrap_err()
                .into(),
                rustix::thread::set_name(c"name").map(|()| io::Error::other("named")).unwrap(),
                rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)
                    .unwrap_err()
                    .into(),
            ];
            let refused = refused.map(|error| error.raw_os_error());
            let missing = Some(libc::ENOSYS);
            assert_eq!(refused, [missing, missing, missing, None, missing]);
            TcpStream::connect(address).unwrap();
            let own = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            assert!(own.contains("Seccomp:\t2"), "{own}");
            thread::spawn(|| std::fs::metadata("/").unwrap().is_dir()).join().unwrap()
        });
        assert!(confined.join().unwrap());
        assert!(Command::new("true").status().unwrap().success());
    }
}
