//! Numbers for the descriptors of held files that do not limit the application.
//!
//! `select(2)` handles descriptors up to 1023, and an application expects to open as many files as
//! its soft limit allows. If a small soft limit is below the hard limit, held files get numbers
//! above it: the limit is checked only when a number is assigned, so it is raised for that one
//! call, and the application neither sees these descriptors nor runs out earlier. If the hard limit
//! leaves no room, few files are held.

use std::os::fd::OwnedFd;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limit on the files that one worker holds: each has a descriptor and two mappings, and a break
/// may have to copy it.
pub const MAX_HELD: usize = 256;

/// A higher soft limit has room for both the application and held files. Numbers are kept low even
/// then, because the kernel's table of descriptors is as long as the highest number.
const SMALL_LIMIT: u64 = 4096;

/// With a high soft limit, the first number of held files: the first that `select(2)` cannot
/// handle.
const BEHIND_SELECT: i32 = 1024;

/// If the hard limit leaves no room above a small soft limit: divisor of the soft limit that gives
/// the number of held files.
const PART: u64 = 16;

/// Number of files that may be held.
pub(crate) fn most_held() -> usize {
    let limit = getrlimit(Resource::Nofile);
    match (limit.current, room_above(&limit)) {
        (Some(soft), None) if soft <= SMALL_LIMIT => {
            usize::try_from(soft / PART).unwrap_or(MAX_HELD).min(MAX_HELD)
        }
        _ => MAX_HELD,
    }
}

/// Moves a descriptor to such a number, or returns it unchanged if none is free.
pub(crate) fn out_of_the_way(fd: OwnedFd) -> OwnedFd {
    let limit = getrlimit(Resource::Nofile);
    let soft = limit.current.unwrap_or(u64::MAX);
    let duplicate = match room_above(&limit) {
        Some(room) => {
            let raised = Rlimit { current: Some(soft + room), maximum: limit.maximum };
            if setrlimit(Resource::Nofile, raised).is_err() {
                return fd;
            }
            let duplicate =
                i32::try_from(soft).map(|soft| rustix::io::fcntl_dupfd_cloexec(&fd, soft));
            // Restoring cannot fail: this limit was in force before.
            let _restored = setrlimit(Resource::Nofile, limit);
            duplicate.ok()
        }
        None if soft > SMALL_LIMIT => Some(rustix::io::fcntl_dupfd_cloexec(&fd, BEHIND_SELECT)),
        // The highest of the application's own numbers.
        None => {
            let first = i32::try_from(soft.saturating_sub(soft / PART));
            first.map(|first| rustix::io::fcntl_dupfd_cloexec(&fd, first)).ok()
        }
    };
    duplicate.and_then(Result::ok).unwrap_or(fd)
}

/// Number of descriptors that may be used above a small soft limit; `None` if there is no room.
fn room_above(limit: &Rlimit) -> Option<u64> {
    let soft = limit.current.filter(|soft| *soft <= SMALL_LIMIT)?;
    let room = limit.maximum.map_or(u64::MAX, |hard| hard.saturating_sub(soft));
    (room >= MAX_HELD as u64).then_some(MAX_HELD as u64)
}
