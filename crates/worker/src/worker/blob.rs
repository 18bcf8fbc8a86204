//! Blobs: bytes that an application writes again and again, stored once in a memory file that is
//! sealed against changes.
//!
//! To the front a blob is an open file like any other. Since it cannot change, it needs no lease,
//! no guard and no helper thread.

use std::io;

use rustix::io::Errno;
use sendoff_fastcgi::handover::FileId;
use sendoff_sys::memfd::Sealed;

use super::Worker;
use crate::files::Held;
use crate::numbers::out_of_the_way;

/// Maximum number of blobs per worker; each costs a descriptor.
pub const MAX_BLOBS: usize = 64;

/// Maximum number of bytes in a worker's blobs. The front keeps a copy of each blob of up to 64 KiB
/// per event loop.
pub const MAX_BLOB_BYTES: u64 = 8 << 20;

impl Worker {
    /// Stores a copy of `data` for [`Self::write_file`], until [`Self::file_drop`].
    ///
    /// # Errors
    /// `EINVAL`: no data. `ENOSPC`: too many blobs, or too many bytes in them. `EMFILE`: too many
    /// files. `EOPNOTSUPP`: in a forked child. Also errors of `memfd_create(2)`, `write(2)` and
    /// `mmap(2)`.
    pub fn blob_store(&mut self, data: &[u8]) -> io::Result<FileId> {
        if self.shared.is_forked() {
            return Err(Errno::OPNOTSUPP.into());
        }
        let (mut blobs, mut bytes) = (1, data.len() as u64);
        let state = self.shared.lock();
        for held in state.files.iter().filter(|held| held.as_sealed().is_some()) {
            blobs += 1;
            bytes = bytes.saturating_add(held.size);
        }
        if blobs > MAX_BLOBS || bytes > MAX_BLOB_BYTES {
            return Err(Errno::NOSPC.into());
        }
        let id = state.files.next_id()?;
        drop(state);
        // Without the lock, so that a lease that breaks meanwhile need not wait. Only this thread
        // adds files.
        let contents = Sealed::new(data)?.renumbered(out_of_the_way);
        Ok(self.shared.lock().files.enter(id, Held::sealed(contents)))
    }

    /// The address of a blob's bytes, valid until it is dropped; `None` if there is no such blob.
    #[must_use]
    pub fn blob_address(&self, blob: FileId) -> Option<*const u8> {
        if self.shared.is_forked() {
            return None;
        }
        Some(self.shared.lock().files.get(blob)?.as_sealed()?.bytes().as_ptr())
    }
}
