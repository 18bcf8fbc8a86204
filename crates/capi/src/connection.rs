//! Workers on connections that any web server opens, and the sockets that these come from.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{io, ptr, slice};

use libc::ssize_t;
use sendoff_worker::{Role, Roles, Worker, listener};

use crate::{Handle, bytes, count, hand_out, look, set_errno, status, with};

// Unsigned in C, too, which the suffix brings about.

/// The application is asked for a response (FastCGI 1.0, section 6.2).
pub const SENDOFF_RESPONDER: c_uint = 1u32;

/// The application is asked whether a client may have a response (section 6.3).
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

/// Opens a listening socket: `address`, NUL-terminated, is a path or `:port`, `host:port`,
/// `[v6]:port`. A socket that lies at the path is replaced; any other file makes it fail. The
/// descriptor, or -1 (errno).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_listen(address: *const c_char, backlog: c_int) -> c_int {
    descriptor(caught(|| {
        // SAFETY: per this function's contract.
        let address = unsafe { string(address) }?;
        listener::listen(address.ok_or(io::Error::from_raw_os_error(libc::EINVAL))?, backlog)
    }))
}

/// Whether the descriptor is a listening socket. A FastCGI application is started with one as
/// descriptor 0, a CGI program is not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_is_listener(fd: c_int) -> c_int {
    // SAFETY: per this function's contract.
    let fd = unsafe { borrow(fd) };
    c_int::from(caught(|| fd.map(|fd| listener::is_listener(fd))).unwrap_or(false))
}

/// Waits for a connection on a listening socket, blocking or not. Its descriptor, which is never 0,
/// 1 or 2, or -1: errno EINTR if a signal handler ran (one installed without SA_RESTART), or others
/// of accept(2). `peers`, NUL-terminated or NULL, is a list of IP addresses with commas, as servers
/// give it in the environment variable FCGI_WEB_SERVER_ADDRS: TCP connections from others are
/// closed. UNIX connections that stay silent for 2 s are closed, too. Several threads and processes
/// may wait on one socket.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_accept_connection(listener: c_int, peers: *const c_char) -> c_int {
    descriptor(caught(|| {
        // SAFETY: per this function's contract.
        let (fd, peers) = unsafe { (borrow(listener)?, string(peers)?) };
        listener::accept(fd, peers)
    }))
}

/// Makes a worker for a connection, of which it takes ownership. `roles`: what the application can
/// be, SENDOFF_RESPONDER and so on, joined by `|`; servers that ask for another are refused.
/// sendoff_accept() on it returns as soon as the parameters have arrived; the body is read as it
/// comes. It has no guard and starts no thread. NULL: errno EINVAL, EBADF.
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
/// might lose the response. NULL is allowed. (sendoff_worker_free() only closes the descriptor: right
/// for a parent that leaves the connection to its child, and, after sendoff_flush(), for a response
/// that fails after its head: without an end the client does not take it for a whole one.)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_worker_close(worker: *mut Handle) {
    if !worker.is_null() {
        // SAFETY: per this function's contract.
        let handle = unsafe { Box::from_raw(worker) };
        // There is no caller left who could be told of a panic.
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

/// Whether another request may come on this connection. If not, sendoff_accept() will return 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_keeps_connection(worker: *const Handle) -> c_int {
    // SAFETY: passed on.
    unsafe { look(worker, 0, |handle| c_int::from(handle.worker.keeps_connection())) }
}

/// As sendoff_read(), of the file that a filter is to change (FCGI_DATA). Read the body to its end
/// first: what arrives of it meanwhile is kept in memory. Other roles have none.
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

/// Queues bytes for the server's log as they are, where sendoff_log() writes lines. 0, or -1 if the
/// client has gone.
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
