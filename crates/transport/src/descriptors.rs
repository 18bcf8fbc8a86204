//! How many descriptors the process has left (`RLIMIT_NOFILE`).
//!
//! The kernel gives the lowest free number to a new descriptor, so the number of one that has just come says how many are
//! open: nothing is counted. Connections and handed-over files tell theirs; once half of the limit is used, a number is asked for
//! whenever the level matters. The limit is the process's, so this is, too.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;

/// Without a limit nothing is ever short, as in tests of single parts.
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The lowest free number, when a descriptor came last.
static LOWEST_FREE: AtomicUsize = AtomicUsize::new(0);

/// What can still be afforded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Less than half of the limit is used.
    Plenty,
    /// From 4/8 of the limit on: copies of handed-over files lie in memory instead of files, and one descriptor of each file is
    /// kept instead of three.
    Short,
    /// From 5/8 on: workers are asked to send bytes instead of files, and get no client's socket.
    Scarce,
    /// From 7/8 on: idle connections make room for new ones, or these wait. What is left is for the spools and request bodies of
    /// connections that are open.
    Tight,
    /// From 15/16 on: links are not read, because what comes along with their bytes would be lost.
    Out,
}

/// Sets the limit for the life of the process.
pub fn set_limit(limit: usize) {
    LIMIT.store(limit, Ordering::Relaxed);
}

/// Tells of a descriptor that has just come.
pub fn note(descriptor: impl AsFd) {
    let number = usize::try_from(descriptor.as_fd().as_raw_fd()).unwrap_or(0);
    LOWEST_FREE.store(number, Ordering::Relaxed);
}

/// What can be afforded now.
pub fn level() -> Level {
    let limit = LIMIT.load(Ordering::Relaxed);
    let level = level_of(LOWEST_FREE.load(Ordering::Relaxed), limit);
    if level == Level::Plenty {
        return level;
    }
    match rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 0) {
        Ok(duplicate) => note(&duplicate),
        Err(Errno::MFILE | Errno::NFILE) => LOWEST_FREE.store(limit, Ordering::Relaxed),
        // It has been closed: the next descriptor that comes tells more.
        Err(_) => LOWEST_FREE.store(0, Ordering::Relaxed),
    }
    level_of(LOWEST_FREE.load(Ordering::Relaxed), limit)
}

fn level_of(used: usize, limit: usize) -> Level {
    let sixteenths = used.saturating_mul(16) / limit.max(1);
    match sixteenths {
        0..8 => Level::Plenty,
        8..10 => Level::Short,
        10..14 => Level::Scarce,
        14 => Level::Tight,
        15.. => Level::Out,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_parts_of_the_limit() {
        let levels =
            [511, 512, 639, 640, 895, 896, 959, 960, 1024].map(|used| level_of(used, 1024));
        use Level::{Out, Plenty, Scarce, Short, Tight};
        assert_eq!(levels, [Plenty, Short, Short, Scarce, Scarce, Tight, Tight, Out, Out]);
        assert_eq!(level_of(1000, usize::MAX), Plenty);
    }
}
