//! Descriptors that the process has left (`RLIMIT_NOFILE`).
//!
//! Connections, handed-over files and spools are counted when they open, but not when they close.
//! Once the sum reaches half of the limit, the kernel is asked for the exact number at each
//! decision. The limit applies to the process, so the counter is global.
//!
//! Kernels before 6.2 do not report the number. There the lowest free number is the lower bound:
//! higher numbers may be in use after a lower one was closed.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::BytesMut;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use sendoff_sys::fdpass;

use crate::foreign::check_kinds;

/// Soft limit of descriptors. Unlimited until it is set, as in unit tests.
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Descriptors that were open when the kernel was last asked, plus those opened since.
static USED: AtomicUsize = AtomicUsize::new(0);

/// `/proc/self/fd`; `None` if it cannot be opened.
static FOLDER: OnceLock<Option<OwnedFd>> = OnceLock::new();

/// Stages of descriptor shortage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Less than half of the limit is used.
    Plenty,
    /// From 4/8 of the limit: copies of handed-over files are kept in memory instead of files, with
    /// one descriptor per file instead of three.
    Short,
    /// From 5/8: workers are asked to send bytes instead of files, and get no client's socket.
    Scarce,
    /// From 7/8: idle connections are closed for new ones, or new ones wait. The rest is for the
    /// needs of open connections.
    Tight,
    /// From 15/16: spools stay in memory, and their workers wait for the clients. The rest is for
    /// indispensable descriptors: files that workers hand over nevertheless, new workers, request
    /// bodies, files to be served.
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

/// Counts a descriptor that was just opened.
pub fn note(descriptor: impl AsFd) {
    let least = number(descriptor) + 1;
    let more = |used: usize| Some((used + 1).max(least));
    let _ = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
}

fn number(descriptor: impl AsFd) -> usize {
    usize::try_from(descriptor.as_fd().as_raw_fd()).unwrap_or(0)
}

/// The current level.
pub fn level() -> Level {
    level_with(0)
}

/// The level with `more` further open descriptors.
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

/// Receives bytes and descriptors from a UNIX socket. Once half of the limit is used, a message is
/// received only if there is room for all its descriptors: the kernel would drop the others, and
/// the rest of the stream would be useless.
///
/// # Errors
/// Descriptors have come that are not of files, or the errors of [`fdpass::try_receive`]. After
/// [`fdpass::is_short`] the message is still in the socket.
pub fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut BytesMut,
    descriptors: &mut VecDeque<OwnedFd>,
) -> io::Result<usize> {
    let before = descriptors.len();
    let received = if level() > Level::Plenty {
        fdpass::try_receive_whole(socket, buffer, descriptors)
    } else {
        // With too few free descriptors some were lost.
        let lost = |error| if fdpass::is_short(&error) { io::Error::other(error) } else { error };
        fdpass::try_receive(socket, buffer, descriptors).map_err(lost)
    };
    descriptors.iter().skip(before).for_each(note);
    check_kinds(descriptors, before)?;
    received
}

/// Number of open descriptors; `None` before Linux 6.2, which does not report it.
fn open_now() -> Option<usize> {
    let stat = rustix::fs::fstat(FOLDER.get()?.as_ref()?).ok()?;
    usize::try_from(stat.st_size).ok().filter(|&open| open > 0)
}

/// The lowest free number: at least this many descriptors are open.
fn lowest_free(limit: usize) -> usize {
    match rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 0) {
        Ok(duplicate) => number(duplicate),
        Err(Errno::MFILE | Errno::NFILE) => limit,
        // Standard error has been closed.
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
        let open = || std::fs::File::open("/dev/null").unwrap();
        set_limit(usize::MAX);
        // As many as other tests do not take at once when they are free again.
        let low: Vec<_> = (0..COUNT / 5).map(|_| open()).collect();
        let many: Vec<_> = (0..COUNT).map(|_| open()).collect();
        drop(low);
        assert!(lowest_free(usize::MAX) < COUNT);
        // `None` on an old kernel.
        assert!(open_now().is_none_or(|open| open >= COUNT));
        drop(many);
        assert!(open_now().is_none_or(|open| open < COUNT));
    }
}
