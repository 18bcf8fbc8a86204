//! Held files: mapped under a read lease, so that a response names ranges of them.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use sendoff_fastcgi::handover::FileId;
use sendoff_sys::mapping::MappedFile;
use sendoff_worker::{HeldVersion, Timespec};

use crate::{Handle, look, set_errno, status, with};

/// Holds a file under a read lease and maps it (private, read-only) at `addr`. `addr` is the
/// page-aligned start of address space that the caller has reserved, `size` rounded up to whole
/// pages; the worker owns it until sendoff_file_drop(). Takes ownership of `fd`, which is open for
/// reading on a regular file. Once the lease is held, its size must be `size` > 0, and its
/// modification and change times must be those given; otherwise the file has changed and the call
/// is refused. `file` receives its number. A file that is held is in use.
///
/// If another process opens the file for writing later, the helper thread replaces the mapping by a
/// private copy before the writer goes on, so the bytes at `addr` never change while the file is in
/// use. The caller must not use file systems where a lease does not detect every process that
/// writes: FUSE, network file systems, overlayfs (docs/snapshot.md).
///
/// Returns 0, or -1: errno EACCES (not the owner, no CAP_LEASE), EAGAIN (another process has it
/// open for writing), ESTALE (it changed), EMFILE (too many held), EOPNOTSUPP (no guard, or the
/// front has closed it), or an error of fcntl(2) or mmap(2). The address space is then PROT_NONE
/// again.
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
    let identity = HeldVersion { size, mtime: time(mtime), ctime: time(ctime) };
    // SAFETY: the caller gives the address space away; the worker is passed on.
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

/// Announces that the mapping is about to be used. 1: it is complete and the lease is intact. 0:
/// the lease has broken; the mapping must not be used any more and the file should be dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_file_use(worker: *mut Handle, file: u32) -> c_int {
    // SAFETY: passed on.
    unsafe { with(worker, 0, |handle| c_int::from(handle.worker.file_use(FileId(file)))) }
}

/// Ends the use of all files: a break may now discard their mappings instead of copying them, and
/// deleted files are released after some seconds, as if their lease had broken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_files_unuse(worker: *mut Handle) {
    // SAFETY: passed on.
    unsafe { with(worker, (), |handle| handle.worker.files_unuse()) }
}

/// 1 if the lease is intact, else 0. Unlike sendoff_file_use() it changes nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_file_intact(worker: *const Handle, file: u32) -> c_int {
    // SAFETY: passed on.
    unsafe { look(worker, 0, |handle| c_int::from(handle.worker.file_intact(FileId(file)))) }
}

/// Returns the address of a counter that changes when a lease breaks, when a file is dropped, and
/// in a forked child. If sendoff_file_intact() or sendoff_file_use() has returned 1 and the counter
/// still has its value from before that call, they would return 1 again; reading the counter takes
/// no lock. Read it with acquire ordering (__atomic_load_n()).
#[unsafe(no_mangle)]
pub extern "C" fn sendoff_file_epoch() -> *const u32 {
    sendoff_sys::epoch::number().as_ptr()
}

/// Drops the mapping: the address space is PROT_NONE again. The lease ends when the front has
/// released the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_file_drop(worker: *mut Handle, file: u32) {
    // SAFETY: passed on.
    unsafe { with(worker, (), |handle| handle.worker.file_drop(FileId(file))) }
}

/// Writes body bytes: `len` bytes of a held file or a blob, from `offset` on. If the lease has
/// broken, the bytes are copied from the mapping instead. The range must lie inside the mapping.
/// Returns 0, or -1 if the client has gone, or if the file is not held or is shorter.
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
