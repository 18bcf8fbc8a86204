//! Request bodies. By default a body is received completely before a worker is taken: in memory up
//! to a limit, otherwise in an unlinked file. An application may also get its body while it arrives
//! (`stream.rs`).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use http::StatusCode;

use super::stream::BodyStream;

/// The largest body that is kept in memory and sent to the worker as `STDIN` records, in bytes.
const MEMORY_LIMIT: usize = 64 * 1024;

/// Bytes that are gathered before they are written to the file, because a client may send its body
/// in chunks of one byte.
const WRITE_BUFFER: usize = 64 * 1024;

/// Memory for all bodies that are being received. Above it a body goes to a file early, and through
/// a small buffer: 60 connections of HTTP/2 with 120 unfinished bodies each took 700 MB.
const MEMORY_OF_ALL: usize = 32 << 20;

/// Memory that each body may have nevertheless.
const MEMORY_OF_EACH: usize = 4 * 1024;

/// The log's reason for refusing a request whose body cannot be written to disk.
pub const NOT_STORED: &str = "its body cannot be stored";

/// The status of the response to a request whose body cannot be written to disk. Logs the error.
pub fn not_stored(error: &io::Error, request: &str) -> StatusCode {
    tracing::error!(request, %error, "a request body cannot be stored");
    match error.kind() {
        // A process whose files may not grow further (`RLIMIT_FSIZE`) gets `FileTooLarge`.
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            StatusCode::INSUFFICIENT_STORAGE
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// A request body.
#[derive(Debug, Clone)]
pub enum Body {
    /// In memory.
    Memory(Bytes),
    /// In an unlinked file.
    File {
        /// Open for reading and writing.
        descriptor: Rc<OwnedFd>,
        /// The length in bytes.
        len: u64,
    },
    /// Still arriving.
    Stream(BodyStream),
}

impl Default for Body {
    /// No bytes.
    fn default() -> Self {
        Self::Memory(Bytes::new())
    }
}

impl Body {
    /// The length in bytes; 0 if the body is still arriving and the client has not announced its
    /// length.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.known_len().unwrap_or(0)
    }

    /// The length in bytes; `None`: the body is still arriving and the client has not announced its
    /// length.
    #[must_use]
    pub fn known_len(&self) -> Option<u64> {
        match self {
            Self::Memory(bytes) => Some(bytes.len() as u64),
            Self::File { len, .. } => Some(*len),
            Self::Stream(stream) => stream.known_len(),
        }
    }

    /// True if the body is known to have no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known_len() == Some(0)
    }

    /// True once all bytes have arrived from the client.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        match self {
            Self::Memory(_) | Self::File { .. } => true,
            Self::Stream(stream) => stream.is_complete(),
        }
    }

    /// True if the body can be sent to another upstream after one has begun to read it.
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        !matches!(self, Self::Stream(_))
    }

    /// True if an upstream has begun to read the body and no other upstream can get it.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        matches!(self, Self::Stream(stream) if stream.is_spent())
    }
}

/// A body that is being received.
#[derive(Debug)]
pub struct BodyStore {
    state: State,
    held: HeldMemory,
}

/// Memory of one body that is being received.
#[derive(Debug, Default)]
struct HeldMemory(usize);

/// The same of all bodies.
static HELD: AtomicUsize = AtomicUsize::new(0);

impl HeldMemory {
    fn set(&mut self, bytes: usize) {
        HELD.fetch_add(bytes, Ordering::Relaxed);
        HELD.fetch_sub(self.0, Ordering::Relaxed);
        self.0 = bytes;
    }

    fn is_scarce() -> bool {
        HELD.load(Ordering::Relaxed) > MEMORY_OF_ALL
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[derive(Debug)]
enum State {
    Memory(BytesMut),
    File {
        file: BufWriter<File>,
        len: u64,
    },
    /// The handler does not use the body: its bytes are dropped.
    Discarded,
}

impl BodyStore {
    /// Keeps the body.
    #[must_use]
    pub fn keep() -> Self {
        Self { state: State::Memory(BytesMut::new()), held: HeldMemory::default() }
    }

    /// Drops the body.
    #[must_use]
    pub fn discard() -> Self {
        Self { state: State::Discarded, held: HeldMemory::default() }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// The temporary file cannot be written.
    pub fn push(&mut self, data: &[u8]) -> io::Result<()> {
        match &mut self.state {
            State::Discarded => {}
            State::Memory(memory) => {
                let len = memory.len() + data.len();
                let is_scarce = HeldMemory::is_scarce();
                if len <= if is_scarce { MEMORY_OF_EACH } else { MEMORY_LIMIT } {
                    memory.extend_from_slice(data);
                    self.held.set(memory.capacity());
                    return Ok(());
                }
                let buffer = if is_scarce { MEMORY_OF_EACH } else { WRITE_BUFFER };
                let mut file = BufWriter::with_capacity(buffer, tempfile::tempfile()?);
                file.write_all(memory)?;
                file.write_all(data)?;
                self.state = State::File { file, len: len as u64 };
                self.held.set(buffer);
            }
            State::File { file, len } => {
                file.write_all(data)?;
                *len += data.len() as u64;
            }
        }
        Ok(())
    }

    /// The body, once all of it has arrived.
    ///
    /// # Errors
    /// The temporary file cannot be written.
    pub fn finish(self) -> io::Result<Body> {
        Ok(match self.state {
            State::Memory(memory) => Body::Memory(memory.freeze()),
            State::File { file, len } => {
                let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
                Body::File { descriptor: Rc::new(file.into()), len }
            }
            State::Discarded => Body::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_moves_to_a_file_when_it_outgrows_memory() {
        let mut store = BodyStore::keep();
        store.push(&[b'a'; MEMORY_LIMIT]).unwrap();
        store.push(b"").unwrap();
        assert!(matches!(store.state, State::Memory(_)));
        store.push(b"b").unwrap();
        store.push(b"c").unwrap();
        let Body::File { descriptor, len } = store.finish().unwrap() else {
            panic!("expected a file")
        };
        assert_eq!(len, MEMORY_LIMIT as u64 + 2);
        let mut end = [0; 3];
        rustix::io::pread(&*descriptor, &mut end, len - 3).unwrap();
        assert_eq!(&end, b"abc");
    }

    #[test]
    fn many_bodies_at_a_time_go_to_files_early() {
        let all = (0..MEMORY_OF_ALL / MEMORY_LIMIT + 100).map(|_| {
            let mut store = BodyStore::keep();
            (0..MEMORY_LIMIT / 1024).for_each(|_| store.push(&[b'a'; 1024]).unwrap());
            store
        });
        let all: Vec<_> = all.collect();
        let held: usize = all.iter().map(|store| store.held.0).sum();
        assert!(held <= MEMORY_OF_ALL + 2 * MEMORY_LIMIT + 100 * MEMORY_OF_EACH, "{held}");
        let in_files = all.iter().filter(|store| matches!(store.state, State::File { .. }));
        assert!(in_files.count() >= 99);
        for store in all {
            assert_eq!(store.finish().unwrap().len(), MEMORY_LIMIT as u64);
        }
    }

    #[test]
    fn small_pieces_reach_the_file_together() {
        let mut store = BodyStore::keep();
        store.push(&[b'a'; MEMORY_LIMIT + 1]).unwrap();
        let State::File { file, .. } = &store.state else { panic!("expected a file") };
        let file = file.get_ref().try_clone().unwrap();
        let size = || file.metadata().unwrap().len();
        let before = size();
        (0..1000).for_each(|_| store.push(b"b").unwrap());
        assert_eq!(size(), before);
        let Body::File { len, .. } = store.finish().unwrap() else { panic!("expected a file") };
        assert_eq!((len, size()), (MEMORY_LIMIT as u64 + 1001, len));
    }
}
