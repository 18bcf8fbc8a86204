//! Reading files.

use std::io;
use std::os::fd::AsFd;

use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread, retry_on_intr};

/// Fills `buffer` with the bytes of a file from `offset` on. The position of the file stays as it
/// is.
///
/// # Errors
/// Errors of `pread(2)`; `UnexpectedEof` if the file ends too early.
pub fn read_exact_at(file: impl AsFd, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match retry_on_intr(|| pread(&file, &mut *buffer, offset))? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                offset += read as u64;
                buffer = &mut buffer[read..];
            }
        }
    }
    Ok(())
}

/// Reads `len` bytes of a file from `offset` on into an empty vector, which is not filled with zeros
/// before: a writer was held for 1.2 s instead of 2.3 to 4.1 s by half a gigabyte, in a build
/// without optimization.
///
/// # Errors
/// Errors of `pread(2)`; `ENOMEM`; `UnexpectedEof` if the file ends too early.
pub fn read_range(file: impl AsFd, offset: u64, len: u64, out: &mut Vec<u8>) -> io::Result<()> {
    let len = usize::try_from(len).map_err(|_| Errno::NOMEM)?;
    out.clear();
    out.try_reserve_exact(len).map_err(|_| Errno::NOMEM)?;
    while out.len() < len {
        let at = offset + out.len() as u64;
        if retry_on_intr(|| pread(&file, spare_capacity(out), at))? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    // The allocator may have given more room than was asked for.
    out.truncate(len);
    Ok(())
}
