//! Files as whole responses on connections.

use std::ffi::{c_char, c_int};
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use sendoff_worker::{BodyPart, BodyTransfer};

use crate::{Handle, bytes, with};

/// Hands over files on connections. Created by sendoff_sender_new(). Any number of threads may
/// share a sender until it is freed: it holds each file once for all of them.
#[derive(Debug)]
pub struct Sender {
    inner: sendoff_worker::Sender,
}

/// Makes a sender that holds at most `most` files. Call it after the last fork: it starts a thread
/// when a front first announces that it accepts files.
#[unsafe(no_mangle)]
pub extern "C" fn sendoff_sender_new(most: usize) -> *mut Sender {
    Box::into_raw(Box::new(Sender { inner: sendoff_worker::Sender::new(most) }))
}

/// Frees a sender, drops its files and closes its links. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_sender_free(sender: *mut Sender) {
    if !sender.is_null() {
        // SAFETY: per this function's contract.
        let sender = unsafe { Box::from_raw(sender) };
        // No caller is left to whom a panic could be reported.
        let _panicked = catch_unwind(AssertUnwindSafe(|| drop(sender)));
    }
}

/// Announces once, for a worker of sendoff_worker_on(), that responses may be sent by
/// sendoff_send_file(). A Sendoff front then announces its channel with each request. Other web
/// servers are not affected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_sends_files(worker: *mut Handle) {
    // SAFETY: passed on.
    unsafe { with(worker, (), |handle| handle.worker.hands_over()) }
}

/// Sends the response of a worker of sendoff_worker_on(): a header block as for
/// sendoff_write_head(), and a body of `len` bytes of the open file `fd`, from `offset` on. Only
/// sendoff_finish() may follow. If the front accepts files and a lease can guard this one, the file
/// is handed over; a later change by another process does not change the response. Otherwise the
/// file is read and sent. If reading fails, or the file is too short, the connection is closed
/// without an end of the response, so that the client does not take the response as complete; the
/// log has the reason. `fd` may be closed afterwards; its position is not used.
///
/// Returns 1: handed over. 0: copied (or the response has no body). -1: the client has gone, or the
/// connection was closed; sendoff_accept() will return 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_send_file(
    worker: *mut Handle,
    sender: *const Sender,
    head: *const c_char,
    head_len: usize,
    fd: c_int,
    offset: u64,
    len: u64,
) -> c_int {
    if fd < 0 || sender.is_null() {
        return -1;
    }
    // SAFETY: per this function's contract, for the duration of the call.
    let (sender, file) = unsafe { (&(*sender).inner, BorrowedFd::borrow_raw(fd)) };
    // SAFETY: passed on.
    let sent = unsafe {
        with(worker, None, |handle| {
            sender.send(&mut handle.worker, bytes(head.cast(), head_len), file, offset, len).ok()
        })
    };
    match sent {
        Some(BodyTransfer::HandedOver) => 1,
        Some(BodyTransfer::Copied) => 0,
        None => -1,
    }
}

/// A part of a body.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// Its bytes.
    pub data: *const c_char,
    /// Their number.
    pub len: usize,
    /// 0, or the place of the fragment with these bytes, from sendoff_fragment_bytes().
    pub place: u64,
}

/// Sends a response on the connection of `worker`, with the header block `head` and a body of `count`
/// parts. Fragments of at least 16 KiB that are sent again are stored in memory files, which the
/// front sends, if all other bytes together have at most 16 KiB. The caller ends the response
/// afterwards. Returns 1 if the front has them, 0 if the bytes were sent, -1 if the client has gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_send_parts(
    worker: *mut Handle,
    sender: *const Sender,
    head: *const c_char,
    head_len: usize,
    parts: *const Part,
    count: usize,
) -> c_int {
    if sender.is_null() || parts.is_null() {
        return -1;
    }
    // SAFETY: per this function's contract, for the duration of the call.
    let (sender, parts) = unsafe { (&(*sender).inner, std::slice::from_raw_parts(parts, count)) };
    let part = |part: &Part| {
        // SAFETY: as above.
        let data = unsafe { bytes(part.data.cast(), part.len) };
        match part.place {
            number @ 1.. if part.len >= SMALLEST => BodyPart::Kept { bytes: data, number },
            _ => BodyPart::Bytes(data),
        }
    };
    let parts: Vec<_> = parts.iter().map(part).collect();
    // SAFETY: passed on.
    let sent = unsafe {
        with(worker, None, |handle| {
            sender.send_parts(&mut handle.worker, bytes(head.cast(), head_len), &parts).ok()
        })
    };
    match sent {
        Some(BodyTransfer::HandedOver) => 1,
        Some(BodyTransfer::Copied) => 0,
        None => -1,
    }
}

/// The smallest fragment that is worth a memory file, in bytes.
const SMALLEST: usize = 16 * 1024;
