//! Blobs.

use std::ffi::{c_int, c_void};
use std::io;

use sendoff_fastcgi::handover::FileId;

use crate::{Handle, bytes, set_errno, with};

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid and not in use; `data` points to `len` readable bytes; `blob` is valid, `contents` valid or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_blob_store(
    worker: *mut Handle,
    data: *const c_void,
    len: usize,
    blob: *mut u32,
    contents: *mut *const c_void,
) -> c_int {
    // SAFETY: per this function's contract. Should somebody else change the bytes while they are copied, any mixture is
    // stored, which the caller is told to expect.
    let (data, blob) = (unsafe { bytes(data.cast(), len) }, unsafe { blob.as_mut() });
    let Some(blob) = blob else {
        set_errno(&io::Error::from_raw_os_error(libc::EINVAL));
        return -1;
    };
    // SAFETY: the worker is passed on.
    let stored = unsafe {
        with(worker, Err(io::ErrorKind::Other.into()), |handle| {
            let id = handle.worker.blob_store(data)?;
            let address = handle.worker.blob_address(id).ok_or(io::ErrorKind::NotFound)?;
            Ok((id, address))
        })
    };
    match stored {
        Ok((id, address)) => {
            *blob = id.0;
            // SAFETY: per this function's contract.
            if let Some(contents) = unsafe { contents.as_mut() } {
                *contents = address.cast();
            }
            0
        }
        Err(error) => {
            set_errno(&error);
            -1
        }
    }
}

/// See `include/sendoff.h`.
///
/// # Safety
/// `worker` is valid and not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_blob_drop(worker: *mut Handle, blob: u32) {
    // SAFETY: passed on.
    unsafe { with(worker, (), |handle| handle.worker.file_drop(FileId(blob))) }
}
