//! How many descriptors the process has left (`RLIMIT_NOFILE`).
//!
//! Connections, handed-over files and spools are added up as they come, and nothing is subtracted when they go. Once the sum reaches half
//! of the limit, the kernel is asked for the exact number whenever the level matters. The limit is the process's, so this is, too.
//!
//! The number of a new descriptor is the lowest free one, a lower bound of the count: higher numbers may be in use after an early
//! descriptor was closed.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::BytesMut;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use sendoff_sys::fdpass;

/// Without a limit nothing is ever short, as in tests of single parts.
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Descriptors that were open when the kernel was asked last, and those that have come since.
static USED: AtomicUsize = AtomicUsize::new(0);

/// `/proc/self/fd`; `None`: it cannot be opened.
static FOLDER: OnceLock<Option<OwnedFd>> = OnceLock::new();

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
    /// From 7/8 on: idle connections make room for new ones, or these wait. What is left is for what connections that are open need.
    Tight,
    /// From 15/16 on: spools stay in memory, and their workers wait for the clients. What is left is for what cannot be done without:
    /// files that workers hand over all the same, new workers, request bodies, files to be served.
    Out,
}

/// Sets the limit for the life of the process.
pub fn set_limit(limit: usize) {
    FOLDER.get_or_init(|| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, c"/proc/self/fd", flags, Mode::empty()).ok()
    });
    LIMIT.store(limit, Ordering::Relaxed);
}

/// Tells of a descriptor that has just come.
pub fn note(descriptor: impl AsFd) {
    let least = number(descriptor) + 1;
    let more = |used: usize| Some((used + 1).max(least));
    let _ = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
}

fn number(descriptor: impl AsFd) -> usize {
    usize::try_from(descriptor.as_fd().as_raw_fd()).unwrap_or(0)
}

/// What can be afforded now.
pub fn level() -> Level {
    level_with(0)
}

/// The level with `more` open descriptors than now.
pub fn level_with(more: usize) -> Level {
    let limit = LIMIT.load(Ordering::Relaxed);
    let level = level_of(USED.load(Ordering::Relaxed).saturating_add(more), limit);
    if level == Level::Plenty {
        return level;
    }
    let used = open_now().unwrap_or_else(|| lowest_free(limit));
    USED.store(used, Ordering::Relaxed);
    level_of(used.saturating_add(more), limit)
}

/// Receives bytes and descriptors from a UNIX socket. Once half of the limit is used, nothing is taken for which there are too few: the
/// kernel would drop the descriptors, and what follows on the socket would be of no use.
///
/// # Errors
/// Those of [`fdpass::try_receive`]. After [`fdpass::is_short`] the message is still in the socket.
pub fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut BytesMut,
    descriptors: &mut VecDeque<OwnedFd>,
) -> io::Result<usize> {
    let before = descriptors.len();
    let received = if level() > Level::Plenty {
        fdpass::try_receive_whole(socket, buffer, descriptors)
    } else {
        // Some were lost if there were too few.
        let lost = |error| if fdpass::is_short(&error) { io::Error::other(error) } else { error };
        fdpass::try_receive(socket, buffer, descriptors).map_err(lost)
    };
    descriptors.iter().skip(before).for_each(note);
    received
}

/// Open descriptors; `None` before Linux 6.2, which shows no number.
fn open_now() -> Option<usize> {
    let stat = rustix::fs::fstat(FOLDER.get()?.as_ref()?).ok()?;
    usize::try_from(stat.st_size).ok().filter(|&open| open > 0)
}

/// The lowest free number: at least as many descriptors are open.
fn lowest_free(limit: usize) -> usize {
    match rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 0) {
        Ok(duplicate) => number(duplicate),
        Err(Errno::MFILE | Errno::NFILE) => limit,
        // It has been closed.
        Err(_) => 0,
    }
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

    /// Other tests of this process open and close descriptors, too, but not hundreds.
    #[test]
    fn a_low_number_that_was_closed_hides_no_open_descriptors() {
        const COUNT: usize = 500;
        let own = std::fs::File::open("/dev/null").unwrap();
        set_limit(usize::MAX);
        let many: Vec<_> = (0..COUNT).map(|_| own.try_clone().unwrap()).collect();
        drop(own);
        assert!(lowest_free(usize::MAX) < COUNT);
        // `None`: an old kernel.
        assert!(open_now().is_none_or(|open| open >= COUNT));
        drop(many);
        assert!(open_now().is_none_or(|open| open < COUNT));
    }
}
