//! Workers on connections that any web server opens, and their listening sockets.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{io, ptr, slice};

use libc::ssize_t;
use sendoff_worker::{Role, Roles, Worker, listener};

use crate::{Handle, bytes, count, hand_out, look, set_errno, status, with};

// The suffix makes the constants unsigned in C, too.

/// The application is asked for a response (FastCGI 1.0, section 6.2).
pub const SENDOFF_RESPONDER: c_uint = 1u32;

/// The application decides whether a client may have a response (section 6.3).
pub const SENDOFF_AUTHORIZER: c_uint = 2u32;

/// The application is asked to change a file (section 6.4).
pub const SENDOFF_FILTER: c_uint = 4u32;

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

/// Opens a listening socket. `address`, NUL-terminated, is a path or `:port`, `host:port`,
/// `[v6]:port`. An existing socket at the path is replaced; any other file is an error. Returns the
/// descriptor, or -1 (errno).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_listen(address: *const c_char, backlog: c_int) -> c_int {
    descriptor(caught(|| {
        // SAFETY: per this function's contract.
        let address = unsafe { string(address) }?;
        listener::listen(address.ok_or(io::Error::from_raw_os_error(libc::EINVAL))?, backlog)
    }))
}

/// 1 if the descriptor is a listening socket, else 0. A FastCGI application is started with one as
/// descriptor 0, a CGI program is not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_is_listener(fd: c_int) -> c_int {
    // SAFETY: per this function's contract.
    let fd = unsafe { borrow(fd) };
    c_int::from(caught(|| fd.map(|fd| listener::is_listener(fd))).unwrap_or(false))
}

/// Waits for a connection on a listening socket, blocking or not. Returns its descriptor, which is
/// never 0, 1 or 2, or -1: errno EINTR if a signal handler ran (one installed without SA_RESTART),
/// or another error of accept(2). `peers`, NUL-terminated or NULL, is a comma-separated list of IP
/// addresses, as servers give it in the environment variable FCGI_WEB_SERVER_ADDRS: TCP connections
/// from other addresses are closed. UNIX connections that stay silent for 2 s are closed, too.
/// Several threads and processes may wait on one socket.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_accept_connection(listener: c_int, peers: *const c_char) -> c_int {
    descriptor(caught(|| {
        // SAFETY: per this function's contract.
        let (fd, peers) = unsafe { (borrow(listener)?, string(peers)?) };
        listener::accept(fd, peers)
    }))
}

/// Makes a worker for a connection, and takes ownership of the connection. `roles`: the roles of
/// the application, SENDOFF_RESPONDER and so on, joined by `|`; requests for other roles are
/// refused. sendoff_accept() on this worker returns as soon as the parameters have arrived; the
/// body is read as it arrives. The worker has no guard and starts no thread. Returns NULL on
/// failure: errno EINVAL, EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_worker_on(connection: c_int, roles: c_uint) -> *mut Handle {
    let taken = Roles {
        responder: roles & SENDOFF_RESPONDER != 0,
        authorizer: roles & SENDOFF_AUTHORIZER != 0,
        filter: roles & SENDOFF_FILTER != 0,
    };
    if connection < 0 {
        set_errno(&io::Error::from_raw_os_error(libc::EBADF));
        return ptr::null_mut();
    }
    // SAFETY: per this function's contract.
    let connection = unsafe { OwnedFd::from_raw_fd(connection) };
    if roles == 0 || roles & !(SENDOFF_RESPONDER | SENDOFF_AUTHORIZER | SENDOFF_FILTER) != 0 {
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

/// Ends the response, closes the connection and frees a worker of sendoff_worker_on(). If the
/// server is still sending, its request is read first (until it is silent for 2 s): otherwise it
/// might lose the response. NULL is allowed. (sendoff_worker_free() only closes the descriptor. Use
/// it in a parent that leaves the connection to its child, and, after sendoff_flush(), for a
/// response that fails after its head: without an end the client does not take the response as
/// complete.)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_worker_close(worker: *mut Handle) {
    if !worker.is_null() {
        // SAFETY: per this function's contract.
        let handle = unsafe { Box::from_raw(worker) };
        // No caller is left to whom a panic could be reported.
        let _panicked = catch_unwind(AssertUnwindSafe(|| handle.inner.worker.close()));
    }
}

/// SENDOFF_RESPONDER, SENDOFF_AUTHORIZER or SENDOFF_FILTER: the role that the current request asks
/// for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_role(worker: *const Handle) -> c_uint {
    // SAFETY: passed on.
    unsafe {
        look(worker, 0, |handle| match handle.worker.role() {
            Role::Responder => SENDOFF_RESPONDER,
            Role::Authorizer => SENDOFF_AUTHORIZER,
            Role::Filter => SENDOFF_FILTER,
        })
    }
}

/// FastCGI's id of the current request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_request_id(worker: *const Handle) -> c_uint {
    // SAFETY: passed on.
    unsafe { look(worker, 0, |handle| handle.worker.request_id().into()) }
}

/// 1 if another request may come on this connection, else 0: sendoff_accept() will then return 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_keeps_connection(worker: *const Handle) -> c_int {
    // SAFETY: passed on.
    unsafe { look(worker, 0, |handle| c_int::from(handle.worker.keeps_connection())) }
}

/// Like sendoff_read(), for the file that a filter has to change (FCGI_DATA). Read the body to its
/// end first: bytes of the file that arrive before are kept in memory. Other roles have no such
/// file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_read_data(
    worker: *mut Handle,
    buf: *mut c_void,
    len: usize,
) -> ssize_t {
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

/// Queues bytes for the server's log unchanged, whereas sendoff_log() writes lines. Returns 0, or
/// -1 if the client has gone.
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
