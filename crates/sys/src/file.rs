//! Reading files.

use std::io;
use std::os::fd::AsFd;

use rustix::io::{pread, retry_on_intr};

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
