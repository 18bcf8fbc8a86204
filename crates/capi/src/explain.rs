//! Explanations.

use std::ffi::{c_char, c_int};

use crate::{Handle, bytes, look, with};

/// Whether the front wants this response explained (`sendoff explain`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_explains(worker: *const Handle) -> c_int {
    // SAFETY: passed on.
    unsafe { look(worker, 0, |handle| c_int::from(handle.worker.explains())) }
}

/// Explains the output that follows, in the form of docs/handover.md (EXPLAIN). At most 1024 bytes
/// count. Nothing happens unless sendoff_explains().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_explain(worker: *mut Handle, text: *const c_char, len: usize) {
    // SAFETY: passed on.
    unsafe { with(worker, (), |handle| handle.worker.explain(bytes(text.cast(), len))) }
}
