//! The server's processes, as `/proc` shows them.

use rustix::fs::fstat;
use rustix::io::{Errno, ioctl_fionread};
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketType, getpeername, getsockname, shutdown,
    sockopt,
};
use rustix::param::clock_ticks_per_second;
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process, pidfd_getfd, pidfd_open,
};
use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The groups of a process that runs as `user` with `group` as its primary group: `group`, and the
/// supplementary groups of the user on this machine. The kernel shows them in ascending order.
///
/// # Panics
/// If `getent` cannot be run, or prints something else.
pub fn groups(user: &str, group: &str) -> BTreeSet<u32> {
    let output = Command::new("getent").arg("group").output().unwrap();
    let of = |line: &str| {
        // name:password:id:members
        let fields: Vec<_> = line.split(':').collect();
        let is_in = fields[0] == group || fields[3].split(',').any(|member| member == user);
        is_in.then(|| fields[2].parse().unwrap())
    };
    String::from_utf8(output.stdout).unwrap().lines().filter_map(of).collect()
}

/// The children of a process, of all its threads.
pub fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|child| child.parse().ok())
        .collect()
}

/// Children, their children, and so on.
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut all = children(pid);
    let mut next = 0;
    while next < all.len() {
        all.extend(children(all[next]));
        next += 1;
    }
    all
}

/// The process that started a process, or has taken it over.
pub fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.get(1)?.parse().ok()
}

/// True if a process has a controlling terminal.
pub fn has_terminal(pid: u32) -> bool {
    stat(pid).is_some_and(|fields| fields[4] != "0")
}

/// The file name of the program that a process runs.
pub fn program(pid: u32) -> String {
    let link = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    link.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// True if a process has PHP in it: a PHP master or a worker.
pub fn is_php(pid: u32) -> bool {
    let program = program(pid);
    program == "sendoff-php" || program.starts_with("php")
}

/// The arguments of a process, its program first.
pub fn arguments(pid: u32) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// When a process was started: together with its id this identifies a process permanently.
pub fn started(pid: u32) -> Option<u64> {
    stat(pid)?.get(19)?.parse().ok()
}

/// The CPU time that a process has used, in all its threads.
pub fn cpu_time(pid: u32) -> Duration {
    let fields = stat(pid).unwrap_or_default();
    // User and system time.
    let ticks: u64 = fields.iter().skip(11).take(2).map(|ticks| ticks.parse().unwrap_or(0)).sum();
    Duration::from_millis(ticks * 1000 / clock_ticks_per_second())
}

/// True while a process runs. A zombie does not.
pub fn runs(pid: u32) -> bool {
    stat(pid).is_some_and(|fields| fields[0] != "Z" && fields[0] != "X")
}

/// The fields of `/proc/PID/stat` from the state on.
fn stat(pid: u32) -> Option<Vec<String>> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = line.rsplit_once(") ")?.1;
    Some(after_name.split_whitespace().map(str::to_owned).collect())
}

/// Private resident memory of a process, in bytes, without shared file pages.
pub fn private_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// The targets of the links in `/proc/PID/fd`: files and sockets that a process has open.
pub fn descriptors(pid: u32) -> Vec<String> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .collect()
}

/// The number of unread bytes in the receive buffers of all sockets of one of our descendants.
pub fn unread(pid: u32) -> u64 {
    // Listening sockets have no such number.
    sockets(pid).iter().filter_map(|socket| ioctl_fionread(socket).ok()).sum()
}

/// Copies of the sockets of one of our descendants. `/proc/PID/net/tcp` would name them too, but the
/// kernel walks through its whole table of connections for it: that took a third of the tests' time.
fn sockets(pid: u32) -> Vec<OwnedFd> {
    let process =
        Pid::from_raw(pid.cast_signed()).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let (Some(process), Ok(entries)) = (process, fs::read_dir(format!("/proc/{pid}/fd"))) else {
        return Vec::new();
    };
    let is_socket = |path: &Path| {
        fs::read_link(path).is_ok_and(|target| target.to_string_lossy().starts_with("socket:"))
    };
    entries
        .flatten()
        .filter(|entry| is_socket(&entry.path()))
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|fd| match pidfd_getfd(&process, fd, PidfdGetfdFlags::empty()) {
            // It was closed, or the process has ended.
            Err(Errno::BADF | Errno::SRCH) => None,
            copy => Some(copy.unwrap_or_else(|error| panic!("socket {fd} of {pid}: {error}"))),
        })
        .collect()
}

/// The inodes and sizes of the constants that a process has open as sealed files.
pub fn blobs(pid: u32) -> Vec<(u64, u64)> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path()).filter(|path| {
        fs::read_link(path).is_ok_and(|target| target.to_string_lossy().starts_with(BLOB))
    });
    paths.filter_map(|path| fs::metadata(path).ok()).map(|blob| (blob.ino(), blob.len())).collect()
}

/// The names of the files of a pool's ring in the front's table of descriptors. The front has them
/// as long as the pool.
pub const RING: [&str; 2] = ["/memfd:sendoff-ring", "/memfd:sendoff-claims"];

/// The kernel's name for blobs in `/proc/PID/fd`.
pub const BLOB: &str = "/memfd:sendoff-blob";

/// The most resident memory that a process has had, in bytes.
///
/// # Panics
/// If there is no such process.
pub fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let kibibytes = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    kibibytes.trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
}

/// The beginning of the kernel's name, in `/proc/PID/fd`, for the front's copies of handed-over
/// files.
pub const SNAPSHOT: &str = "/memfd:sendoff-snapshot";

/// The file of the counters by which fragments of scripts are purged.
pub const PURGES: &str = "/memfd:sendoff-purges";

/// The number of TCP sockets of a process, without listeners.
pub fn connections(pid: u32) -> usize {
    let is_connection = |socket: &OwnedFd| {
        let domain = sockopt::socket_domain(socket).unwrap();
        matches!(domain, AddressFamily::INET | AddressFamily::INET6)
            && sockopt::socket_type(socket).unwrap() == SocketType::STREAM
            && !sockopt::socket_acceptconn(socket).unwrap()
    };
    sockets(pid).into_iter().filter(is_connection).count()
}

/// Shuts down a front's connections to applications, as these do when they end. Links to workers
/// have no name, and connections of clients the port of a listener.
pub fn end_connections_to_applications(front: u32) {
    let (listeners, streams): (Vec<_>, Vec<_>) = sockets(front)
        .into_iter()
        .filter(|socket| sockopt::socket_type(socket).unwrap() == SocketType::STREAM)
        .partition(|socket| sockopt::socket_acceptconn(socket).unwrap());
    let port = |socket: &OwnedFd| {
        let name = getsockname(socket).ok()?;
        SocketAddr::try_from(name).ok().map(|name| name.port())
    };
    let ports: BTreeSet<_> = listeners.iter().filter_map(port).collect();
    for stream in streams {
        let leads_to_application = match getpeername(&stream) {
            Ok(Some(peer)) => match SocketAddrUnix::try_from(peer) {
                Ok(peer) => peer.path().is_some(),
                Err(_) => port(&stream).is_some_and(|port| !ports.contains(&port)),
            },
            Ok(None) | Err(_) => false,
        };
        if leads_to_application {
            let _ = shutdown(&stream, Shutdown::Both);
        }
    }
}

/// The number of UNIX sockets of a process: links, guards, the pool socket. Connections to the
/// engine of a fleet come and go, and do not count. Copies of one socket count once: each runtime
/// of tokio has one of the socket for signals, and a front starts some of its runtimes later.
pub fn unix_sockets(pid: u32) -> usize {
    let is_unix = |socket: &OwnedFd| sockopt::socket_domain(socket).unwrap() == AddressFamily::UNIX;
    let leads_to_engine = |socket: &OwnedFd| {
        let peer = getpeername(socket).ok().flatten();
        let peer = peer.and_then(|peer| SocketAddrUnix::try_from(peer).ok());
        let ending = crate::engine::SOCKET.as_bytes();
        peer.is_some_and(|peer| peer.path_bytes().is_some_and(|path| path.ends_with(ending)))
    };
    let counts = |socket: &OwnedFd| is_unix(socket) && !leads_to_engine(socket);
    let counted = sockets(pid).into_iter().filter(counts);
    counted.map(|socket| fstat(&socket).unwrap().st_ino).collect::<BTreeSet<_>>().len()
}

/// Sends a signal to a process that a scenario started, unless the process has ended.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}
