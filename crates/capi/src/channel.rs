//! Links that the process opens itself.

use std::ffi::{c_char, c_int};
use std::panic::catch_unwind;
use std::ptr;

use sendoff_fastcgi::channel::Announcement;
use sendoff_worker::Worker;

use crate::{Handle, Inner, bytes, look, set_errno, status, with};

/// Makes the worker of this process and opens its links to the front that announced them, which may
/// take up to a second. `announcement` is the value of the request parameter SENDOFF_CHANNEL. Call
/// it after the last fork: it starts a thread. Returns NULL (errno) if the front cannot be reached
/// from here or does not answer, or if a thread or a descriptor cannot be created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_channel_open(
    announcement: *const c_char,
    len: usize,
) -> *mut Handle {
    // SAFETY: per this function's contract.
    let announcement = unsafe { bytes(announcement.cast(), len) };
    let opened = catch_unwind(|| {
        let invalid = || std::io::Error::from_raw_os_error(libc::EINVAL);
        Worker::register(&Announcement::decode(announcement).ok_or_else(invalid)?)
    });
    match opened {
        Ok(Ok(worker)) => {
            let stopper = worker.stopper();
            let inner = Inner { worker, params: Vec::new() };
            Box::into_raw(Box::new(Handle { inner, stopper }))
        }
        Ok(Err(error)) => {
            set_errno(&error);
            ptr::null_mut()
        }
        Err(_) => ptr::null_mut(),
    }
}

/// 1 if the front has gone, else 0. The worker must be freed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_channel_lost(worker: *const Handle) -> c_int {
    // SAFETY: passed on.
    unsafe { look(worker, 1, |handle| c_int::from(handle.worker.is_lost())) }
}

/// Begins a request, with its own `announcement`: files may be held and used until its end.
/// `accept` is the value of its parameter SENDOFF_ACCEPT, or NULL. Returns 0, or -1 if the request
/// belongs to another front, or if the front has gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_channel_begin(
    worker: *mut Handle,
    announcement: *const c_char,
    len: usize,
    accept: *const c_char,
    accept_len: usize,
) -> c_int {
    // SAFETY: passed on.
    unsafe {
        with(worker, -1, |handle| {
            let accept = bytes(accept.cast(), accept_len);
            let begun = Announcement::decode(bytes(announcement.cast(), len))
                .is_some_and(|announcement| handle.worker.begin_elsewhere(&announcement, accept));
            if begun { 0 } else { -1 }
        })
    }
}

/// Tells the front that the rest of the body comes from this worker; once per request. Returns 0,
/// or -1 if the front could not be told: the body must then continue where it began.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_channel_claim(worker: *mut Handle) -> c_int {
    // SAFETY: passed on.
    unsafe { with(worker, -1, |handle| status(handle.worker.claim())) }
}

/// Ends the request, and the response if it was claimed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_channel_end(worker: *mut Handle) {
    // SAFETY: passed on.
    unsafe { with(worker, (), |handle| handle.worker.end_elsewhere()) }
}
