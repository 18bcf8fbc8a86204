//! Ranges of files that are read before they are sent, where `sendfile` cannot be used.

use std::cell::RefCell;
use std::io;
use std::os::fd::BorrowedFd;

/// Bytes per read of a file.
const AT_ONCE: usize = 64 * 1024;

thread_local! {
    /// Buffer for these reads, one per event loop thread.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Reads the beginning of a range of a file and passes it to `send`, which returns the number of
/// bytes taken. Returns 0 if the file ends before the range.
///
/// # Errors
/// The errors of pread(2) and `send`.
pub(super) fn send_copied(
    file: BorrowedFd<'_>,
    offset: u64,
    len: usize,
    send: impl FnOnce(&[u8]) -> io::Result<usize>,
) -> io::Result<usize> {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.resize(AT_ONCE, 0);
        match rustix::io::pread(file, &mut scratch[..len.min(AT_ONCE)], offset)? {
            0 => Ok(0),
            n => send(&scratch[..n]),
        }
    })
}
