//! Held files.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use sendoff_fastcgi::handover::FileId;
use sendoff_sys::mapping::Region;
use sendoff_worker::{Identity, Timespec};

use crate::{Handle, look, set_errno, status, with};

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid and not in use; nobody else owns `fd`; the caller reserved `size` bytes of address space at `addr`
/// and gives them away; `mtime`, `ctime` and `file` are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_file_hold(
    worker: *mut Handle,
    fd: c_int,
    addr: *mut c_void,
    size: u64,
    mtime: *const libc::timespec,
    ctime: *const libc::timespec,
    file: *mut u32,
) -> c_int {
    if fd < 0 {
        set_errno(&io::Error::from_raw_os_error(libc::EBADF));
        return -1;
    }
    // SAFETY: per this function's contract.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: per this function's contract.
    let (Some(mtime), Some(ctime), Some(file)) =
        (unsafe { (mtime.as_ref(), ctime.as_ref(), file.as_mut()) })
    else {
        set_errno(&io::Error::from_raw_os_error(libc::EINVAL));
        return -1;
    };
    let time = |time: &libc::timespec| Timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_nsec };
    let identity = Identity { size, mtime: time(mtime), ctime: time(ctime) };
    // SAFETY: the address space is the caller's gift; the worker is passed on.
    let held = unsafe {
        with(worker, Err(io::ErrorKind::Other.into()), |handle| {
            handle.worker.file_hold(fd, Region::new(addr, size)?, identity)
        })
    };
    match held {
        Ok(id) => {
            *file = id.0;
            0
        }
        Err(error) => {
            set_errno(&error);
            -1
        }
    }
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid and not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_file_use(worker: *mut Handle, file: u32) -> c_int {
    // SAFETY: passed on.
    unsafe { with(worker, 0, |handle| c_int::from(handle.worker.file_use(FileId(file)))) }
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid and not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_files_unuse(worker: *mut Handle) {
    // SAFETY: passed on.
    unsafe { with(worker, (), |handle| handle.worker.files_unuse()) }
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_file_intact(worker: *const Handle, file: u32) -> c_int {
    // SAFETY: passed on.
    unsafe { look(worker, 0, |handle| c_int::from(handle.worker.file_intact(FileId(file)))) }
}

/// See `include/sendoff.h`.
#[unsafe(no_mangle)]
pub extern "C" fn sendoff_file_epoch() -> *const u32 {
    sendoff_sys::epoch::number().as_ptr()
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid and not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_file_drop(worker: *mut Handle, file: u32) {
    // SAFETY: passed on.
    unsafe { with(worker, (), |handle| handle.worker.file_drop(FileId(file))) }
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid and not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_write_file(
    worker: *mut Handle,
    file: u32,
    offset: u64,
    len: u64,
) -> c_int {
    // SAFETY: passed on.
    unsafe {
        with(worker, -1, |handle| status(handle.worker.write_file(FileId(file), offset, len)))
    }
}
