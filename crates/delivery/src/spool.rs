//! The spool: bytes that a slow client has not taken yet, in an unlinked temporary file.
//!
//! If the file cannot be made or cannot grow, the spool counts as full, as it does at its limit:
//! the worker waits for the client, and bytes already taken from the worker stay in memory. Once
//! the client has taken everything, the response begins a new spool.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use sendoff_report::limits::Limit;
use sendoff_report::seldom::Seldom;
use sendoff_sys::fdpass;

use super::disk;
use super::in_memory::Gathered;

/// The most bytes of one response on disk. At this limit the worker waits for the client.
const SPOOL_LIMIT: u64 = 1 << 30;

/// Small pieces are gathered in memory up to this size, in bytes, and written together. Otherwise a
/// script that flushes each line to a slow client would cost one `write(2)` per line, 30 times the
/// CPU time that nginx needs.
pub(super) const GATHER: usize = 32 * 1024;

/// Grows while the response is produced faster than the client takes it. Dropped, with its disk
/// blocks, after its last byte has been sent.
#[derive(Debug, Default)]
pub struct Spool {
    /// Created at the first write.
    file: Option<File>,
    /// Bytes in the file.
    written: u64,
    /// The bytes after those in the file; at most [`GATHER`] unless [`is_stuck`](Self::is_stuck).
    gathered: Vec<u8>,
    /// The system refused to make the file or to let it grow.
    is_stuck: bool,
    counted: Gathered,
}

/// The place of a range of the spool.
#[derive(Debug)]
pub enum Spooled<'a> {
    /// In the file, with this number of bytes up to the end of the file.
    InFile(&'a File, u64),
    /// In memory; not empty.
    InMemory(&'a [u8]),
}

impl Spool {
    /// Stores `data` at the end; in memory if the file cannot grow.
    pub fn append(&mut self, data: &[u8]) {
        self.store(data);
        self.counted.set(self.gathered.capacity());
    }

    /// Bytes of memory in use.
    pub(super) fn in_memory(&self) -> usize {
        self.counted.bytes()
    }

    fn store(&mut self, data: &[u8]) {
        if !self.is_stuck && self.gathered.len() + data.len() >= GATHER {
            let mut gathered = std::mem::take(&mut self.gathered);
            let written = self.write(&gathered);
            gathered.drain(..written);
            // Reuse the buffer.
            self.gathered = gathered;
        }
        let written =
            if self.gathered.is_empty() && data.len() >= GATHER { self.write(data) } else { 0 };
        self.gather(&data[written..]);
    }

    /// Each slow client has such a buffer, so its capacity doubles up to [`GATHER`] and not beyond:
    /// a vector's own growth ended at 56 KiB.
    fn gather(&mut self, data: &[u8]) {
        let (len, capacity) = (self.gathered.len() + data.len(), self.gathered.capacity());
        if len > capacity {
            let wanted = (2 * capacity).min(GATHER).max(len);
            self.gathered.reserve_exact(wanted - self.gathered.len());
        }
        self.gathered.extend_from_slice(data);
    }

    /// Writes bytes to the end of the file, which is made if there is none. Returns the number of
    /// bytes written; fewer than all if the system refused more.
    fn write(&mut self, data: &[u8]) -> usize {
        let mut done = 0;
        while done < data.len() && !self.is_stuck {
            match self.write_some(&data[done..]) {
                Ok(written) => {
                    done += written;
                    self.written += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_stuck = true;
                    report(&error);
                }
            }
        }
        done
    }

    fn write_some(&mut self, data: &[u8]) -> io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(disk::temporary_file()?),
        };
        match file.write_at(data, self.written)? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            written => Ok(written),
        }
    }

    /// Bytes stored since the spool was created, sent or not.
    pub fn stored(&self) -> u64 {
        self.written + self.gathered.len() as u64
    }

    /// The place of the bytes from `offset` on; `None` at the end. Stored bytes never change.
    pub fn read(&self, offset: u64) -> Option<Spooled<'_>> {
        match (&self.file, offset.checked_sub(self.written)) {
            (Some(file), None) => Some(Spooled::InFile(file, self.written - offset)),
            (_, Some(offset)) => {
                let rest = self.gathered.get(usize::try_from(offset).ok()?..)?;
                (!rest.is_empty()).then_some(Spooled::InMemory(rest))
            }
            (None, None) => None,
        }
    }

    /// True if the application must wait for the client: [`SPOOL_LIMIT`] is reached, or the file
    /// cannot grow.
    pub fn is_full(&self) -> bool {
        self.stored() >= SPOOL_LIMIT || self.is_stuck()
    }

    /// True if the file cannot grow.
    pub fn is_stuck(&self) -> bool {
        self.is_stuck
    }
}

/// Logs why spools cannot be written.
fn report(error: &io::Error) {
    static SAID: Seldom = Seldom::new();
    if fdpass::is_short(error) {
        Limit::Descriptors.reached();
        return;
    }
    if SAID.is_due() {
        let folder = std::env::temp_dir();
        tracing::warn!(
            %error, folder = %folder.display(),
            "what slow clients have not taken cannot be written to a temporary file; applications wait for these clients"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn pieces_of_any_size_are_gathered_in_a_buffer_of_bounded_size() {
        for size in [1, 1000, 8 * 1024, 10 * 1024, 20 * 1024, GATHER - 1] {
            let (mut spool, piece) = (Spool::default(), vec![b'x'; size]);
            for _ in 0..100 {
                spool.append(&piece);
                let capacity = spool.gathered.capacity();
                assert!(capacity <= GATHER, "{capacity} bytes for pieces of {size}");
            }
            assert_eq!(spool.stored(), 100 * size as u64);
        }
    }
    #[test]
    fn what_does_not_fit_on_the_disk_stays_in_memory_and_the_spool_is_full() {
        let mut spool = Spool::default();
        let piece: Vec<u8> = (0..64 * 1024).map(|n: u32| n.to_be_bytes()[3]).collect();
        spool.append(&piece);
        assert!(!spool.is_full());
        // This descriptor cannot write any more.
        let path = format!("/proc/self/fd/{}", spool.file.as_ref().unwrap().as_raw_fd());
        spool.file = Some(File::open(path).unwrap());
        for _ in 0..3 {
            spool.append(&piece);
        }
        assert!(spool.is_full() && spool.stored() == 4 * piece.len() as u64);
        assert!(
            matches!(spool.read(0), Some(Spooled::InFile(_, len)) if len == piece.len() as u64)
        );
        let Some(Spooled::InMemory(rest)) = spool.read(piece.len() as u64) else { panic!() };
        assert!(rest == piece.repeat(3));
    }
}
