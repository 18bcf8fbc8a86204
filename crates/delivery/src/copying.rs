//! Copies a file that is guarded by a lease. The caller checks the lease afterwards.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use bytes::Bytes;
use sendoff_sys::file::read_exact_at;
use sendoff_sys::memfd;

/// Bytes copied between two checks of the deadline.
const STEP: u64 = 4 << 20;

/// Reads a small file whole.
///
/// # Errors
/// An error of `pread(2)`; `UnexpectedEof` if the file has become shorter.
pub fn into_memory(from: &OwnedFd, len: u64) -> io::Result<Bytes> {
    let mut contents = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    read_exact_at(from, &mut contents, 0)?;
    Ok(contents.into())
}

/// Copies a file into a sealed file in memory.
///
/// # Errors
/// An error of [`memfd::sealed`] or `sendfile(2)`; `UnexpectedEof` if the file has become shorter,
/// `TimedOut` after `deadline`.
pub fn into_sealed(from: &OwnedFd, len: u64, deadline: Instant) -> io::Result<OwnedFd> {
    memfd::sealed(c"sendoff-snapshot", len, |to| copy(from, to, len, deadline))
}

/// Copies a file into a temporary file without a name.
///
/// # Errors
/// An error of `open(2)` or `sendfile(2)`; `UnexpectedEof` if the file has become shorter,
/// `TimedOut` after `deadline`.
pub fn into_unlinked(from: &OwnedFd, len: u64, deadline: Instant) -> io::Result<OwnedFd> {
    let to = tempfile::tempfile()?;
    copy(from, to.as_fd(), len, deadline)?;
    Ok(to.into())
}

fn copy(from: &OwnedFd, to: BorrowedFd<'_>, len: u64, deadline: Instant) -> io::Result<()> {
    let mut at = 0;
    while at < len {
        if Instant::now() >= deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the copying took too long"));
        }
        let step = usize::try_from((len - at).min(STEP)).unwrap_or(usize::MAX);
        // `sendfile` advances `at`.
        match rustix::fs::sendfile(to, from, Some(&mut at), step) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
