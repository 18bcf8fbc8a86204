//! Held files. Until the snapshot guard exists every hold is refused, so no other call meets a file.

use std::ffi::{c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};

use crate::{Handle, set_errno};

/// See `include/sendoff.h`.
///
/// # Safety
/// Nobody else owns `fd`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_file_hold(
    _worker: *mut Handle,
    fd: c_int,
    _addr: *mut c_void,
    _size: u64,
    _mtime: *const libc::timespec,
    _ctime: *const libc::timespec,
    _file: *mut u32,
) -> c_int {
    // SAFETY: per this function's contract.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    set_errno(&std::io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    -1
}

/// See `include/sendoff.h`.
#[unsafe(no_mangle)]
pub extern "C" fn sendoff_file_use(_worker: *mut Handle, _file: u32) -> c_int {
    0
}

/// See `include/sendoff.h`.
#[unsafe(no_mangle)]
pub extern "C" fn sendoff_files_unuse(_worker: *mut Handle) {}

/// See `include/sendoff.h`.
#[unsafe(no_mangle)]
pub extern "C" fn sendoff_file_intact(_worker: *const Handle, _file: u32) -> c_int {
    0
}

/// See `include/sendoff.h`.
#[unsafe(no_mangle)]
pub extern "C" fn sendoff_file_drop(_worker: *mut Handle, _file: u32) {}

/// See `include/sendoff.h`.
#[unsafe(no_mangle)]
pub extern "C" fn sendoff_write_file(
    _worker: *mut Handle,
    _file: u32,
    _offset: u64,
    _len: u64,
) -> c_int {
    -1
}
