//! Numbers for the descriptors of held files, out of the application's way.
//!
//! An application's `select(2)` knows no descriptor above 1023, and it expects to open as many files as its limit allows.
//! Where the hard limit leaves room above a small soft limit, held files are numbered there: the limit counts only when a
//! number is given, so it is raised for that one call, and the application neither sees them nor runs out earlier. Where
//! it does not, few files are held.

use std::os::fd::OwnedFd;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files one worker holds at most: a descriptor and two mappings each, and a break may have to copy them.
pub const MAX_HELD: usize = 256;

/// A limit above this has room for the application and for held files. Numbers are kept low even then: the kernel's table
/// of descriptors is as long as the highest number.
const SMALL_LIMIT: u64 = 4096;

/// With a large limit, held files are numbered from here on: right behind what `select(2)` can handle.
const BEHIND_SELECT: i32 = 1024;

/// Without room above it, a small limit is shared: this part of it for held files.
const PART: u64 = 16;

/// How many files may be held.
pub(crate) fn most_held() -> usize {
    let limit = getrlimit(Resource::Nofile);
    match (limit.current, room_above(&limit)) {
        (Some(soft), None) if soft <= SMALL_LIMIT => {
            usize::try_from(soft / PART).unwrap_or(MAX_HELD).min(MAX_HELD)
        }
        _ => MAX_HELD,
    }
}

/// Moves a descriptor out of the application's way, or returns it as it is if no such number is free.
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
            // It was allowed before.
            let _restored = setrlimit(Resource::Nofile, limit);
            duplicate.ok()
        }
        None if soft > SMALL_LIMIT => Some(rustix::io::fcntl_dupfd_cloexec(&fd, BEHIND_SELECT)),
        // At the end of the application's own numbers.
        None => {
            let first = i32::try_from(soft.saturating_sub(soft / PART));
            first.map(|first| rustix::io::fcntl_dupfd_cloexec(&fd, first)).ok()
        }
    };
    duplicate.and_then(Result::ok).unwrap_or(fd)
}

/// How many numbers may be used above a small soft limit.
fn room_above(limit: &Rlimit) -> Option<u64> {
    let soft = limit.current.filter(|soft| *soft <= SMALL_LIMIT)?;
    let room = limit.maximum.map_or(u64::MAX, |hard| hard.saturating_sub(soft));
    (room >= MAX_HELD as u64).then_some(MAX_HELD as u64)
}
