//! Files that header blocks name.

use std::ffi::c_int;
use std::os::fd::{FromRawFd, OwnedFd};

use crate::{Handle, look, status, with};

/// 1 if the front accepts the file that a header block names (X-Sendfile, X-Accel-Redirect), else
/// 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_takes_named(worker: *const Handle) -> c_int {
    // SAFETY: passed on.
    unsafe { look(worker, 0, |handle| c_int::from(handle.worker.takes_named())) }
}

/// Sends the file that the header block names, open for reading, right before the header block is
/// written. Takes ownership of `fd`. Returns 0, or -1 if the client has gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_named(worker: *mut Handle, fd: c_int) -> c_int {
    if fd < 0 {
        return 0;
    }
    // SAFETY: per this function's contract.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: passed on.
    unsafe { with(worker, -1, |handle| status(handle.worker.named(file))) }
}
