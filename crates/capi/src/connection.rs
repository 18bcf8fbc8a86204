//! Workers on connections that any web server opens, and the sockets that these come from.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{io, ptr, slice};

use sendoff_worker::{Role, Roles, Worker, listener};

use crate::{Handle, bytes, count, hand_out, look, set_errno, status, with};

/// `SENDOFF_RESPONDER`, `SENDOFF_AUTHORIZER`, `SENDOFF_FILTER`.
const RESPONDER: c_uint = 1;
const AUTHORIZER: c_uint = 2;
const FILTER: c_uint = 4;

fn descriptor(result: io::Result<OwnedFd>) -> c_int {
    match result {
        Ok(fd) => fd.into_raw_fd(),
        Err(error) => {
            set_errno(&error);
            -1
        }
    }
}

/// # Safety
/// `fd` is not closed while `'a` lasts.
unsafe fn borrow<'a>(fd: c_int) -> io::Result<BorrowedFd<'a>> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: per this function's contract; -1 is excluded.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// # Safety
/// `text` is null or NUL-terminated, and stays unchanged for `'a`.
unsafe fn string<'a>(text: *const c_char) -> io::Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: per this function's contract.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// A panic becomes `EIO`.
fn caught<T>(call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `address` is NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_listen(address: *const c_char, backlog: c_int) -> c_int {
    descriptor(caught(|| {
        // SAFETY: per this function's contract.
        let address = unsafe { string(address) }?;
        listener::listen(address.ok_or(io::Error::from_raw_os_error(libc::EINVAL))?, backlog)
    }))
}

/// See `include/sendoff.h`.
///
/// # Safety
/// Nobody closes `fd` meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_is_listener(fd: c_int) -> c_int {
    // SAFETY: per this function's contract.
    let fd = unsafe { borrow(fd) };
    c_int::from(caught(|| fd.map(|fd| listener::is_listener(fd))).unwrap_or(false))
}

/// See `include/sendoff.h`.
///
/// # Safety
/// Nobody closes `fd` meanwhile; `peers` is null or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_accept_connection(fd: c_int, peers: *const c_char) -> c_int {
    descriptor(caught(|| {
        // SAFETY: per this function's contract.
        let (fd, peers) = unsafe { (borrow(fd)?, string(peers)?) };
        listener::accept(fd, peers)
    }))
}

/// See `include/sendoff.h`.
///
/// # Safety
/// Nobody else owns `connection`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_worker_on(connection: c_int, roles: c_uint) -> *mut Handle {
    let taken = Roles {
        responder: roles & RESPONDER != 0,
        authorizer: roles & AUTHORIZER != 0,
        filter: roles & FILTER != 0,
    };
    if connection < 0 {
        set_errno(&io::Error::from_raw_os_error(libc::EBADF));
        return ptr::null_mut();
    }
    // SAFETY: per this function's contract.
    let connection = unsafe { OwnedFd::from_raw_fd(connection) };
    if roles == 0 || roles & !(RESPONDER | AUTHORIZER | FILTER) != 0 {
        set_errno(&io::Error::from_raw_os_error(libc::EINVAL));
        return ptr::null_mut();
    }
    match caught(|| Ok(Worker::on_connection(connection, taken))) {
        Ok(worker) => hand_out(worker),
        Err(error) => {
            set_errno(&error);
            ptr::null_mut()
        }
    }
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is null or came from [`sendoff_worker_on`]; nobody uses it afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_worker_close(worker: *mut Handle) {
    if !worker.is_null() {
        // SAFETY: per this function's contract.
        let handle = unsafe { Box::from_raw(worker) };
        // Nobody is left to tell of a panic.
        let _panicked = catch_unwind(AssertUnwindSafe(|| handle.inner.worker.close()));
    }
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_role(worker: *const Handle) -> c_uint {
    // SAFETY: passed on.
    unsafe {
        look(worker, 0, |handle| match handle.worker.role() {
            Role::Responder => RESPONDER,
            Role::Authorizer => AUTHORIZER,
            Role::Filter => FILTER,
        })
    }
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_request_id(worker: *const Handle) -> c_uint {
    // SAFETY: passed on.
    unsafe { look(worker, 0, |handle| handle.worker.request_id().into()) }
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_keeps_connection(worker: *const Handle) -> c_int {
    // SAFETY: passed on.
    unsafe { look(worker, 0, |handle| c_int::from(handle.worker.keeps_connection())) }
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid and not in use; `buf` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_read_data(
    worker: *mut Handle,
    buf: *mut c_void,
    len: usize,
) -> isize {
    if buf.is_null() || len == 0 {
        return 0;
    }
    // SAFETY: passed on. `read_data` only writes to `buf`, so that it may be uninitialised.
    let result = unsafe {
        with(worker, Err(io::ErrorKind::Other.into()), |handle| {
            handle.worker.read_data(slice::from_raw_parts_mut(buf.cast(), len))
        })
    };
    count(result)
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid and not in use; `data` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_write_stderr(
    worker: *mut Handle,
    data: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: passed on.
    unsafe {
        with(worker, -1, |handle| status(handle.worker.write_stderr(bytes(data.cast(), len))))
    }
}
