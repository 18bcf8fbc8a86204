//! Held files.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use sendoff_fastcgi::handover::FileId;
use sendoff_sys::mapping::MappedFile;
use sendoff_worker::{Identity, Timespec};

use crate::{Handle, look, set_errno, status, with};

/// Holds a file under a read lease and maps it (private, read-only) at `addr`, which must be the
/// page-aligned start of `size` rounded up to a page of address space that the caller reserved and
/// gives to the worker until sendoff_file_drop(). Takes ownership of `fd`, open for reading on a
/// regular file whose size must be `size` > 0 once the lease is held, and whose modification and
/// change times must be those given; otherwise the file has changed and the call is refused. `file`
/// receives its number. A file that is held is in use.
///
/// If another process opens the file for writing later, the helper thread replaces the mapping by a
/// private copy before the writer goes on, so what lies at `addr` never changes while the file is
/// in use. The caller keeps away from file systems where a lease does not tell of every process
/// that writes: FUSE, network file systems, overlayfs (docs/snapshot.md).
///
/// 0, or -1: errno EACCES (not the owner, no CAP_LEASE), EAGAIN (a writer has it open), ESTALE (it
/// changed), EMFILE (too many held), EOPNOTSUPP (no guard, or the front has closed it), others from
/// fcntl(2) and mmap(2). The address space is then PROT_NONE again.
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
            handle.worker.file_hold(fd, MappedFile::new(addr, size)?, identity)
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

/// Says that the mapping is about to be used. 1: it is whole and the lease stands. 0: the lease has
/// broken; the mapping must not be used any more and the file should be dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_file_use(worker: *mut Handle, file: u32) -> c_int {
    // SAFETY: passed on.
    unsafe { with(worker, 0, |handle| c_int::from(handle.worker.file_use(FileId(file)))) }
}

/// All files in use are no longer: a break may now discard their mappings instead of copying them,
/// and those that have been deleted are given up after some seconds, as if their lease had broken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_files_unuse(worker: *mut Handle) {
    // SAFETY: passed on.
    unsafe { with(worker, (), |handle| handle.worker.files_unuse()) }
}

/// Whether the lease still stands. Unlike sendoff_file_use() it changes nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_file_intact(worker: *const Handle, file: u32) -> c_int {
    // SAFETY: passed on.
    unsafe { look(worker, 0, |handle| c_int::from(handle.worker.file_intact(FileId(file)))) }
}

/// Address of a counter that changes when a lease breaks or a file is given back, and in a forked
/// child. While it has the value it had before sendoff_file_intact() or sendoff_file_use() returned
/// 1, they would return 1 again; reading it takes no lock. Read it with acquire ordering
/// (__atomic_load_n()).
#[unsafe(no_mangle)]
pub extern "C" fn sendoff_file_epoch() -> *const u32 {
    sendoff_sys::epoch::number().as_ptr()
}

/// Gives the mapping back: the address space is PROT_NONE again. The lease ends when the front has
/// released the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_file_drop(worker: *mut Handle, file: u32) {
    // SAFETY: passed on.
    unsafe { with(worker, (), |handle| handle.worker.file_drop(FileId(file))) }
}

/// Body bytes that are `len` bytes of a held file or a blob from `offset` on. Falls back to bytes
/// by itself if the lease has broken, reading them from the mapping. The range must lie inside the
/// mapping. 0, or -1 if the client has gone, or the file is not held or shorter.
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
