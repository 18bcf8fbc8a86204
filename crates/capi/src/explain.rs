//! Explanations: the origin of each piece of a response, for `sendoff explain`.

use std::ffi::{c_char, c_int};

use crate::{Handle, bytes, look, with};

/// 1 if the front wants this response explained (`sendoff explain`), else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_explains(worker: *const Handle) -> c_int {
    // SAFETY: passed on.
    unsafe { look(worker, 0, |handle| c_int::from(handle.worker.explains())) }
}

/// Explains the output that follows, in the format of docs/handover.md (EXPLAIN); at most 1024
/// bytes are used. Has no effect unless sendoff_explains() returns 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_explain(worker: *mut Handle, text: *const c_char, len: usize) {
    // SAFETY: passed on.
    unsafe { with(worker, (), |handle| handle.worker.explain(bytes(text.cast(), len))) }
}
