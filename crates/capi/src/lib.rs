//! The C ABI over `sendoff-worker`. `include/sendoff.h` says what each function promises; here stands how.
//!
//! A panic must not unwind into C: it is reported on stderr and answered as a lost link.
#![allow(unsafe_code, reason = "C hands over raw pointers")]

mod blob;
mod channel;
mod connection;
mod explain;
mod files;
mod named;

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{ptr, slice};

use sendoff_worker::{Gone, Stopper, Worker};

pub use blob::*;
pub use channel::*;
pub use connection::*;
pub use explain::*;
pub use files::*;
pub use named::*;

/// `sendoff_worker` in C.
#[derive(Debug)]
pub struct Handle {
    inner: Inner,
    /// Apart, because a signal handler uses it while `inner` is in use.
    stopper: Stopper,
}

#[derive(Debug)]
struct Inner {
    worker: Worker,
    /// The request's parameters. Their pointers lead into `worker` and stand until its next `accept`.
    params: Vec<Param>,
}

/// `sendoff_param` in C.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Param {
    /// NUL-terminated.
    pub name: *const c_char,
    /// Bytes before the NUL.
    pub name_len: usize,
    /// NUL-terminated.
    pub value: *const c_char,
    /// Bytes before the NUL.
    pub value_len: usize,
}

/// Runs `call` on the worker; `lost` is the answer when it panics or `worker` is null.
///
/// # Safety
/// `worker` is null or came from [`sendoff_worker_new`], was not freed, and no other call on it is running.
unsafe fn with<T>(worker: *mut Handle, lost: T, call: impl FnOnce(&mut Inner) -> T) -> T {
    if worker.is_null() {
        return lost;
    }
    // SAFETY: per this function's contract.
    let handle = unsafe { &mut (*worker).inner };
    // A panic may leave a response half written, never memory half valid; the caller then gives up the process.
    catch_unwind(AssertUnwindSafe(|| call(handle))).unwrap_or(lost)
}

/// `with`, for calls that only look.
///
/// # Safety
/// As for `with`.
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

/// See `include/sendoff.h`.
///
/// # Safety
/// `links` points to `link_count` descriptors that, like `guard`, nobody else owns.
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

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is null or came from [`sendoff_worker_new`]; nobody uses it afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_worker_free(worker: *mut Handle) {
    if !worker.is_null() {
        // SAFETY: per this function's contract.
        let handle = unsafe { Box::from_raw(worker) };
        // Nobody is left to tell of a panic.
        let _panicked = catch_unwind(AssertUnwindSafe(|| drop(handle)));
    }
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid and not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_accept(worker: *mut Handle) -> c_int {
    // SAFETY: passed on.
    unsafe {
        with(worker, 0, |handle| {
            handle.params.clear();
            let came = if handle.worker.is_on_connection() {
                handle.worker.accept_on_connection()
            } else {
                Ok(handle.worker.accept())
            };
            match came {
                Ok(true) => {}
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

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid. Async-signal-safe: it may be in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_stop(worker: *const Handle) {
    if !worker.is_null() {
        // SAFETY: per this function's contract. Nobody ever has the stopper mutably.
        unsafe { &(*worker).stopper }.stop();
    }
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid; `count` is writable.
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

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid; `name` points to `name_len` bytes; `len` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_param_get(
    worker: *const Handle,
    name: *const c_char,
    name_len: usize,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: passed on; the parameters' pointers stand until the next `accept`, which cannot run now.
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

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid and not in use; `buf` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_read(worker: *mut Handle, buf: *mut c_void, len: usize) -> isize {
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

fn count(result: std::io::Result<usize>) -> isize {
    match result {
        Ok(n) => n.cast_signed(),
        Err(error) => {
            set_errno(&error);
            -1
        }
    }
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid and not in use; `block` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_write_head(
    worker: *mut Handle,
    block: *const c_char,
    len: usize,
) -> c_int {
    // SAFETY: passed on.
    unsafe { with(worker, -1, |handle| status(handle.worker.write_head(bytes(block.cast(), len)))) }
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid and not in use; `data` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_write(
    worker: *mut Handle,
    data: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: passed on.
    unsafe { with(worker, -1, |handle| status(handle.worker.write(bytes(data.cast(), len)))) }
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid and not in use; `line` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_log(worker: *mut Handle, line: *const c_char, len: usize) {
    // SAFETY: passed on.
    unsafe { with(worker, (), |handle| handle.worker.log(bytes(line.cast(), len))) }
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid and not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_flush(worker: *mut Handle) -> c_int {
    // SAFETY: passed on.
    unsafe { with(worker, -1, |handle| status(handle.worker.flush())) }
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid and not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_aborted(worker: *mut Handle) -> c_int {
    // SAFETY: passed on.
    unsafe { with(worker, 1, |handle| c_int::from(handle.worker.aborted())) }
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid and not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_finish(worker: *mut Handle, app_status: c_int, detach: c_int) {
    // SAFETY: passed on.
    unsafe {
        with(worker, (), |handle| handle.worker.finish(app_status.cast_unsigned(), detach != 0));
    }
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid and not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_ready(worker: *mut Handle) {
    // SAFETY: passed on.
    unsafe { with(worker, (), |handle| handle.worker.ready()) }
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_accepts_files(worker: *const Handle) -> c_int {
    // SAFETY: passed on.
    unsafe { look(worker, 0, |handle| c_int::from(handle.worker.accepts_files())) }
}
