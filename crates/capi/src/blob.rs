//! Blobs: constants of a runtime that a worker stores in sealed memory files, so that responses name
//! them instead of their bytes.

use std::ffi::{c_int, c_void};
use std::io;

use sendoff_fastcgi::handover::FileId;
use sendoff_worker::{MAX_BLOB_BYTES, MAX_BLOBS};

use crate::{Handle, bytes, set_errno, with};

/// Maximum number of blobs per worker.
pub const SENDOFF_BLOBS: usize = 64;

/// Maximum number of bytes in all blobs of a worker.
pub const SENDOFF_BLOB_BYTES: u32 = 8u32 << 20;

// The header can only contain plain numbers, so the values are repeated here.
const _: () = assert!(SENDOFF_BLOBS == MAX_BLOBS && SENDOFF_BLOB_BYTES as u64 == MAX_BLOB_BYTES);

/// Copies `len` > 0 bytes into a blob; `blob` receives its number. Blobs are for bytes that are
/// written repeatedly, such as constants of a program: they are stored once, in a sealed memory
/// file (memfd_create(2)) that no process can change, and then named in sendoff_write_file(). They
/// need no lease and no guard.
///
/// `contents` (may be NULL) receives the address of the copy. Address and contents do not change
/// until sendoff_blob_drop(), so a caller can compare its bytes with the copy to find out whether
/// they are still the same.
///
/// Returns 0, or -1: errno ENOSPC (more than SENDOFF_BLOBS, or SENDOFF_BLOB_BYTES in all of them),
/// EMFILE (too many held files), EINVAL (no bytes), EOPNOTSUPP (in a forked child), or an error of
/// memfd_create(2), write(2) or mmap(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_blob_store(
    worker: *mut Handle,
    data: *const c_void,
    len: usize,
    blob: *mut u32,
    contents: *mut *const c_void,
) -> c_int {
    // SAFETY: per this function's contract. If another thread changes the bytes while they are
    // copied, any mixture is stored, which the caller is told to expect.
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

/// Drops a blob. Output that names it is sent nevertheless.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_blob_drop(worker: *mut Handle, blob: u32) {
    // SAFETY: passed on.
    unsafe { with(worker, (), |handle| handle.worker.file_drop(FileId(blob))) }
}
