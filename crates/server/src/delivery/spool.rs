//! The spool: bytes that a slow client has not taken yet, in an unlinked temporary file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

use super::in_memory::Gathered;

/// Bytes of one response that may wait on disk. When this limit is reached the worker waits for the client.
const SPOOL_LIMIT: u64 = 1 << 30;

/// Small pieces are gathered in memory up to this size, in bytes, and written together. Otherwise a script that flushes
/// each line to a slow client would cost one `write(2)` per line, 30 times the CPU time that nginx needs.
pub(super) const GATHER: usize = 32 * 1024;

/// Grows while the response is produced faster than the client takes it. Dropped, with its disk blocks, after its last
/// byte has been sent.
#[derive(Debug, Default)]
pub(crate) struct Spool {
    /// Created at the first write.
    file: Option<File>,
    /// Bytes in the file.
    written: u64,
    /// The bytes after those in the file; at most [`GATHER`] unless no file could be created.
    gathered: Vec<u8>,
    counted: Gathered,
}

/// Where a range of the spool lies.
#[derive(Debug)]
pub(crate) enum Spooled<'a> {
    /// In the file, with this number of bytes up to the end of the file.
    InFile(&'a File, u64),
    /// In memory; not empty.
    InMemory(&'a [u8]),
}

impl Spool {
    /// Stores `data` at the end.
    pub(crate) fn append(&mut self, data: &[u8]) -> io::Result<()> {
        let stored = self.store(data);
        self.counted.set(self.gathered.capacity());
        stored
    }

    /// Bytes of memory that it takes.
    pub(super) fn in_memory(&self) -> usize {
        self.counted.bytes()
    }

    fn store(&mut self, data: &[u8]) -> io::Result<()> {
        if self.gathered.len() + data.len() >= GATHER {
            if !self.has_file()? {
                self.gather(data);
                return Ok(());
            }
            let gathered = std::mem::take(&mut self.gathered);
            self.write(&gathered)?;
            // Reuse the buffer.
            self.gathered = gathered;
            self.gathered.clear();
        }
        if data.len() >= GATHER {
            return self.write(data);
        }
        self.gather(data);
        Ok(())
    }

    /// Each slow client has such a buffer, so it doubles up to [`GATHER`] and not beyond: a vector's own growth ended at 56 KiB.
    fn gather(&mut self, data: &[u8]) {
        let (len, capacity) = (self.gathered.len() + data.len(), self.gathered.capacity());
        if len > capacity {
            let wanted = (2 * capacity).min(GATHER).max(len);
            self.gathered.reserve_exact(wanted - self.gathered.len());
        }
        self.gathered.extend_from_slice(data);
    }

    /// Creates the file if there is none; `false` if no descriptor is left for it.
    fn has_file(&mut self) -> io::Result<bool> {
        if self.file.is_none() {
            let made = tempfile::tempfile();
            let out_of = [Errno::MFILE, Errno::NFILE].map(|error| Some(error.raw_os_error()));
            if made.as_ref().is_err_and(|error| out_of.contains(&error.raw_os_error())) {
                return Ok(false);
            }
            self.file = Some(made?);
        }
        Ok(true)
    }

    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        let file = self.file.as_ref().ok_or_else(|| io::Error::other("a spool without a file"))?;
        file.write_all_at(data, self.written)?;
        self.written += data.len() as u64;
        Ok(())
    }

    /// Bytes stored since the spool was created, sent or not.
    pub(crate) fn len(&self) -> u64 {
        self.written + self.gathered.len() as u64
    }

    /// The bytes from `offset` on; `None` at the end. Stored bytes never change.
    pub(crate) fn read(&self, offset: u64) -> Option<Spooled<'_>> {
        match (&self.file, offset.checked_sub(self.written)) {
            (Some(file), None) => Some(Spooled::InFile(file, self.written - offset)),
            (_, Some(offset)) => {
                let rest = self.gathered.get(usize::try_from(offset).ok()?..)?;
                (!rest.is_empty()).then_some(Spooled::InMemory(rest))
            }
            (None, None) => None,
        }
    }

    /// Whether the application must wait for the client: [`SPOOL_LIMIT`] is reached, or no file could be made.
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= SPOOL_LIMIT || self.file.is_none() && self.gathered.len() >= GATHER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_are_gathered_in_a_buffer_of_bounded_size() {
        for size in [1, 1000, 8 * 1024, 10 * 1024, 20 * 1024, GATHER - 1] {
            let (mut spool, piece) = (Spool::default(), vec![b'x'; size]);
            for _ in 0..100 {
                spool.append(&piece).unwrap();
                let capacity = spool.gathered.capacity();
                assert!(capacity <= GATHER, "{capacity} bytes for pieces of {size}");
            }
            assert_eq!(spool.len(), 100 * size as u64);
        }
    }
}
