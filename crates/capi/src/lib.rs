//! The C ABI of `sendoff-worker`. `make header` generates `include/sendoff.h` from this crate: the
//! comments on exported items are for C programmers, and the conventions of all functions are in
//! `cbindgen.toml`.
//!
//! A panic must not unwind into C: it is reported on stderr and returned to the caller as a lost
//! link.
#![allow(unsafe_code, reason = "C hands over raw pointers")]
#![allow(
    clippy::missing_safety_doc,
    reason = "what a caller owes every function stands once, in the conventions of cbindgen.toml"
)]

// The order of the modules is the order in the header, after this file. The empty lines keep
// rustfmt from sorting them.
mod named;

mod explain;

mod connection;

mod files;

mod blob;

mod fragments;

mod channel;

mod sender;

mod tunnel;

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use std::{ptr, slice};

use libc::ssize_t;
use sendoff_sys::title;
use sendoff_worker::{Gone, Stopper, Worker};

pub use blob::*;
pub use channel::*;
pub use connection::*;
pub use explain::*;
pub use files::*;
pub use fragments::*;
pub use named::*;
pub use sender::*;
pub use tunnel::*;

/// A worker serves requests, one at a time. It is created by sendoff_worker_new(),
/// sendoff_worker_on() or sendoff_channel_open(), and freed by sendoff_worker_free() or
/// sendoff_worker_close().
#[derive(Debug)]
pub struct Handle {
    inner: Inner,
    /// Separate, because a signal handler uses it while `inner` is in use.
    stopper: Stopper,
}

#[derive(Debug)]
struct Inner {
    worker: Worker,
    /// The request's parameters. Their pointers lead into `worker` and are valid until its next
    /// `accept`.
    params: Vec<Param>,
}

/// One request parameter. Both strings are followed by a NUL byte that their length does not count.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Param {
    /// The name, such as `REQUEST_METHOD`.
    pub name: *const c_char,
    /// Length of the name in bytes.
    pub name_len: usize,
    /// The value, such as `POST`.
    pub value: *const c_char,
    /// Length of the value in bytes.
    pub value_len: usize,
}

/// Runs `call` on the worker; returns `lost` if `call` panics or `worker` is null.
///
/// # Safety
/// `worker` is null, or comes from a function of this library that makes workers, was not freed,
/// and no other call on it is running.
unsafe fn with<T>(worker: *mut Handle, lost: T, call: impl FnOnce(&mut Inner) -> T) -> T {
    if worker.is_null() {
        return lost;
    }
    // SAFETY: per this function's contract.
    let handle = unsafe { &mut (*worker).inner };
    // A panic may leave a response incomplete, but memory is always valid; the caller then gives up
    // the process.
    catch_unwind(AssertUnwindSafe(|| call(handle))).unwrap_or(lost)
}

/// Like [`with`], for calls that only read.
///
/// # Safety
/// Same as for [`with`].
unsafe fn look<T>(worker: *const Handle, lost: T, call: impl FnOnce(&Inner) -> T) -> T {
    if worker.is_null() {
        return lost;
    }
    // SAFETY: per this function's contract.
    let handle = unsafe { &(*worker).inner };
    catch_unwind(AssertUnwindSafe(|| call(handle))).unwrap_or(lost)
}

/// # Safety
/// `data` is null with `len` 0, or points to `len` bytes that stay unchanged for `'a`.
unsafe fn bytes<'a>(data: *const u8, len: usize) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: per this function's contract.
    unsafe { slice::from_raw_parts(data, len) }
}

fn set_errno(error: &std::io::Error) {
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = error.raw_os_error().unwrap_or(libc::EIO) };
}

fn status(result: Result<(), Gone>) -> c_int {
    if result.is_ok() { 0 } else { -1 }
}

fn hand_out(worker: Worker) -> *mut Handle {
    let stopper = worker.stopper();
    let inner = Inner { worker, params: Vec::new() };
    Box::into_raw(Box::new(Handle { inner, stopper }))
}

/// Makes the worker of this process, for links that a front created. Takes ownership of
/// `link_count` connected UNIX stream sockets (at most 255) and of the guard socket (UNIX,
/// SOCK_SEQPACKET; -1: no guard, every sendoff_file_hold() is refused). Call it after the last
/// fork: it starts a thread. Returns NULL (errno) if a thread or a descriptor cannot be created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_worker_new(
    links: *const c_int,
    link_count: usize,
    guard: c_int,
) -> *mut Handle {
    // SAFETY: the caller gives `link_count` descriptors and their ownership.
    let own = |fd: c_int| unsafe { OwnedFd::from_raw_fd(fd) };
    let links = if links.is_null() {
        Vec::new()
    } else {
        // SAFETY: per this function's contract.
        unsafe { slice::from_raw_parts(links, link_count) }.iter().map(|fd| own(*fd)).collect()
    };
    let guard = (guard >= 0).then(|| own(guard));
    match catch_unwind(|| Worker::new(links, guard)) {
        Ok(Ok(worker)) => hand_out(worker),
        Ok(Err(error)) => {
            set_errno(&error);
            ptr::null_mut()
        }
        Err(_) => ptr::null_mut(),
    }
}

/// Frees the worker, drops its files and closes its sockets. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_worker_free(worker: *mut Handle) {
    if !worker.is_null() {
        // SAFETY: per this function's contract.
        let handle = unsafe { Box::from_raw(worker) };
        // No caller is left to whom a panic could be reported.
        let _panicked = catch_unwind(AssertUnwindSafe(|| drop(handle)));
    }
}

/// Ends the current request and waits for the next one. 1: there is a request. 0: the front closed
/// a link, asked the process to end, or violated the protocol (logged to stderr); the process
/// should exit. On a connection, 0: no further request will come on it, and it should be closed; -1
/// with errno EINTR: a signal handler ran before a request began.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_accept(worker: *mut Handle) -> c_int {
    // SAFETY: passed on.
    unsafe {
        with(worker, 0, |handle| {
            handle.params.clear();
            let came = if handle.worker.is_on_connection() {
                handle.worker.accept_on_connection()
            } else {
                title::set_busy(false);
                Ok(handle.worker.accept())
            };
            match came {
                Ok(true) => title::set_busy(true),
                Ok(false) => return 0,
                Err(error) => {
                    set_errno(&error);
                    return -1;
                }
            }
            handle.params.extend(handle.worker.params_with_nul().map(|(name, value)| Param {
                name: name.as_ptr().cast(),
                name_len: name.len() - 1,
                value: value.as_ptr().cast(),
                value_len: value.len() - 1,
            }));
            1
        })
    }
}

/// Makes sendoff_accept() return 0 once no request is waiting. May be called from a signal handler,
/// even while another call on the worker is running, and does nothing in a forked child. A request
/// that sendoff_accept() has begun to read on a connection is not affected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_stop(worker: *const Handle) {
    if !worker.is_null() {
        // SAFETY: per this function's contract. No mutable reference to the stopper exists.
        unsafe { &(*worker).stopper }.stop();
    }
}

/// The request's parameters, in the order the front sent them, without SENDOFF_ACCEPT. `count`
/// receives their number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_params(worker: *const Handle, count: *mut usize) -> *const Param {
    // SAFETY: passed on; `count` per this function's contract.
    unsafe {
        look(worker, ptr::null(), |handle| {
            if let Some(count) = count.as_mut() {
                *count = handle.params.len();
            }
            handle.params.as_ptr()
        })
    }
}

/// The value of one parameter, NUL-terminated, or NULL if there is no such parameter. `len`
/// receives its length and may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_param_get(
    worker: *const Handle,
    name: *const c_char,
    name_len: usize,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: passed on; the parameters' pointers are valid until the next `accept`, which cannot
    // run now.
    unsafe {
        look(worker, ptr::null(), |handle| {
            let name = bytes(name.cast(), name_len);
            let found =
                handle.params.iter().find(|param| bytes(param.name.cast(), param.name_len) == name);
            let Some(param) = found else { return ptr::null() };
            if let Some(len) = len.as_mut() {
                *len = param.value_len;
            }
            param.value
        })
    }
}

/// Reads the request body. Returns the number of bytes read, 0 at its end, -1 on an error (errno).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_read(
    worker: *mut Handle,
    buf: *mut c_void,
    len: usize,
) -> ssize_t {
    if buf.is_null() || len == 0 {
        return 0;
    }
    // SAFETY: passed on. `read` only writes to `buf`, so that it may be uninitialised.
    let result = unsafe {
        with(worker, Err(std::io::ErrorKind::Other.into()), |handle| {
            handle.worker.read(slice::from_raw_parts_mut(buf.cast(), len))
        })
    };
    count(result)
}

/// Waits until sendoff_read() would not wait: bytes of the request body, its end or an error have
/// come. Returns 1 then. Returns 0 if the descriptor `wake` (-1: none) can be read, if `timeout`
/// milliseconds are over (-1: no limit), or if a signal handler ran.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_await_body(
    worker: *mut Handle,
    wake: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller does not close `wake` during the call, and -1 is excluded.
    let wake = (wake >= 0).then(|| unsafe { BorrowedFd::borrow_raw(wake) });
    let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
    // SAFETY: passed on.
    unsafe { with(worker, 1, |handle| c_int::from(handle.worker.await_body(wake, timeout))) }
}

fn count(result: std::io::Result<usize>) -> ssize_t {
    match result {
        Ok(n) => n.cast_signed(),
        Err(error) => {
            set_errno(&error);
            -1
        }
    }
}

/// Writes the CGI header block (RFC 3875 section 6), with the empty line that ends it. Returns 0,
/// or -1 if the client has gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_write_head(
    worker: *mut Handle,
    block: *const c_char,
    len: usize,
) -> c_int {
    // SAFETY: passed on.
    unsafe { with(worker, -1, |handle| status(handle.worker.write_head(bytes(block.cast(), len)))) }
}

/// Writes the head of an interim response (103 Early Hints; RFC 9110 section 15.2): a CGI header
/// block whose Status is 1xx, with the empty line that ends it. May be called several times before
/// sendoff_write_head(). The head is sent before the call returns. Returns 1; 0 if it was not sent,
/// because the final head has been written or the server has not announced that it supports interim
/// heads; -1 if the client has gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_write_interim(
    worker: *mut Handle,
    block: *const c_char,
    len: usize,
) -> c_int {
    // SAFETY: passed on.
    unsafe {
        with(worker, -1, |handle| match handle.worker.write_interim(bytes(block.cast(), len)) {
            Ok(sent) => c_int::from(sent),
            Err(Gone) => -1,
        })
    }
}

/// Writes body bytes. They are copied, or sent before the call returns, so `data` may be reused.
/// Returns 0, or -1 if the client has gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_write(
    worker: *mut Handle,
    data: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: passed on.
    unsafe { with(worker, -1, |handle| status(handle.worker.write(bytes(data.cast(), len)))) }
}

/// Writes an entry about this request to the server's log; it may have several lines. A missing
/// newline at the end is added. May also be called between sendoff_finish() with `detach` and
/// sendoff_ready().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_log(worker: *mut Handle, line: *const c_char, len: usize) {
    // SAFETY: passed on.
    unsafe { with(worker, (), |handle| handle.worker.log(bytes(line.cast(), len))) }
}

/// Sends the queued output. Returns 0, or -1 if the client has gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_flush(worker: *mut Handle) -> c_int {
    // SAFETY: passed on.
    unsafe { with(worker, -1, |handle| status(handle.worker.flush())) }
}

/// 1 if the client has gone, else 0. Checks the link without waiting. While the body is arriving,
/// it finds that out once the bytes that have arrived are read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_aborted(worker: *mut Handle) -> c_int {
    // SAFETY: passed on.
    unsafe { with(worker, 1, |handle| c_int::from(handle.worker.aborted())) }
}

/// Ends the response. With `detach` nonzero the process goes on working on the request (further
/// output is discarded) and calls sendoff_ready() when it can take another one. A second call is
/// ignored. An `app_status` other than 0 means that the response may be incomplete; the front does
/// not cache it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_finish(worker: *mut Handle, app_status: c_int, detach: c_int) {
    // SAFETY: passed on.
    unsafe {
        with(worker, (), |handle| handle.worker.finish(app_status.cast_unsigned(), detach != 0));
    }
}

/// Announces that a process that went on working after sendoff_finish() can take another request.
/// sendoff_accept() announces it, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_ready(worker: *mut Handle) {
    // SAFETY: passed on.
    unsafe { with(worker, (), |handle| handle.worker.ready()) }
}

/// 1 if the front accepts file segments in this request (the request announced it), else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_accepts_files(worker: *const Handle) -> c_int {
    // SAFETY: passed on.
    unsafe { look(worker, 0, |handle| c_int::from(handle.worker.accepts_files())) }
}
