//! Explanations.

use std::ffi::{c_char, c_int};

use crate::{Handle, bytes, look, with};

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_explains(worker: *const Handle) -> c_int {
    // SAFETY: passed on.
    unsafe { look(worker, 0, |handle| c_int::from(handle.worker.explains())) }
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid and not in use; `text` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_explain(worker: *mut Handle, text: *const c_char, len: usize) {
    // SAFETY: passed on.
    unsafe { with(worker, (), |handle| handle.worker.explain(bytes(text.cast(), len))) }
}
