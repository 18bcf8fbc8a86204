//! Files that header blocks name.

use std::ffi::c_int;
use std::os::fd::{FromRawFd, OwnedFd};

use crate::{Handle, look, status, with};

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_takes_named(worker: *const Handle) -> c_int {
    // SAFETY: passed on.
    unsafe { look(worker, 0, |handle| c_int::from(handle.worker.takes_named())) }
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid and not in use; nobody else owns `fd`.
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
