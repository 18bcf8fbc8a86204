//! A temporary file without a name for what a slow client has not taken yet.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

/// Bytes of one response that may wait on disk. Beyond it the worker waits for the client, as behind every server.
const SPOOL_LIMIT: u64 = 1 << 30;

/// Small pieces are gathered in memory up to this size, in bytes, and written at once: a script that flushes line by line
/// behind a slow client would otherwise cost a `write(2)` per line, 30 times what nginx needs.
pub(super) const GATHER: usize = 32 * 1024;

/// Grows while a response is produced faster than it is taken; its blocks go back when the last byte is sent.
#[derive(Debug, Default)]
pub(super) struct Spool {
    /// Made when something is written for the first time.
    file: Option<File>,
    /// Bytes in the file.
    written: u64,
    /// What follows them; at most [`GATHER`] bytes unless no file could be made.
    gathered: Vec<u8>,
}

/// Where bytes of the spool lie.
#[derive(Debug)]
pub(super) enum Spooled<'a> {
    /// As many as are wanted, at most this many.
    InFile(&'a File, u64),
    /// At least one.
    InMemory(&'a [u8]),
}

impl Spool {
    /// Stores `data` at the end.
    pub(super) fn append(&mut self, data: &[u8]) -> io::Result<()> {
        if self.gathered.len() + data.len() >= GATHER {
            if !self.has_file()? {
                self.gathered.extend_from_slice(data);
                return Ok(());
            }
            let gathered = std::mem::take(&mut self.gathered);
            self.write(&gathered)?;
            // The buffer is used again.
            self.gathered = gathered;
            self.gathered.clear();
        }
        if data.len() >= GATHER {
            return self.write(data);
        }
        self.gathered.extend_from_slice(data);
        Ok(())
    }

    /// Makes the file if there is none; `false` where no descriptor is left for it.
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

    /// Bytes stored since it was made.
    pub(super) fn len(&self) -> u64 {
        self.written + self.gathered.len() as u64
    }

    /// The bytes from `offset` on; nothing that is sent from there ever changes. `None` at the end.
    pub(super) fn read(&self, offset: u64) -> Option<Spooled<'_>> {
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
    pub(super) fn is_full(&self) -> bool {
        self.len() >= SPOOL_LIMIT || self.file.is_none() && self.gathered.len() >= GATHER
    }
}
