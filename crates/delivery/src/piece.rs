//! Pieces that a protocol takes out of a send queue to frame them itself, as HTTP/2 does.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;

use bytes::{Buf, Bytes};

use super::in_memory::InMemory;
use super::open_file::RangeSource;
use super::segment::FileSegment;

/// The size of a buffer that a part of a file is read into: a few frames.
const BUFFER: usize = 64 * 1024;

/// Buffers that each event loop keeps for further reads: 2 MiB in all.
const KEPT: usize = 32;

/// Shorter reads get a buffer of their size, so that many small files in flight do not cost
/// [`BUFFER`] each.
const SMALL: usize = 8 * 1024;

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes from the front of a send queue. Bytes in memory are shared with the queue's segments;
/// parts of files are read.
#[derive(Debug, Default)]
pub struct Piece {
    /// The first buffer; empty only if the whole piece is.
    first: Bytes,
    further: VecDeque<Bytes>,
    in_memory: InMemory,
}

impl Piece {
    pub(super) fn push(&mut self, part: Bytes) {
        if part.is_empty() {
            return;
        }
        self.in_memory.add(part.len());
        if self.first.is_empty() {
            self.first = part;
        } else {
            self.further.push_back(part);
        }
    }

    /// Takes the first `n` bytes out.
    #[must_use]
    pub fn split_to(&mut self, n: usize) -> Self {
        let mut taken = Self::default();
        while taken.remaining() < n && self.has_remaining() {
            let len = self.first.len().min(n - taken.remaining());
            taken.push(self.first.slice(..len));
            self.advance(len);
        }
        taken
    }

    /// Takes the first buffer out; `None` at the end.
    pub fn take_part(&mut self) -> Option<Bytes> {
        let part = std::mem::replace(&mut self.first, self.further.pop_front().unwrap_or_default());
        self.in_memory.remove(part.len());
        (!part.is_empty()).then_some(part)
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.in_memory.bytes()
    }

    fn chunk(&self) -> &[u8] {
        &self.first
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let parts =
            std::iter::once(&self.first).chain(&self.further).filter(|part| !part.is_empty());
        slices.iter_mut().zip(parts).map(|(slice, part)| *slice = IoSlice::new(part)).count()
    }

    fn advance(&mut self, mut n: usize) {
        self.in_memory.remove(n);
        while n >= self.first.len() && !self.first.is_empty() {
            n -= self.first.len();
            self.first = self.further.pop_front().unwrap_or_default();
        }
        self.first.advance(n);
    }
}

/// Reads the beginning of a range of a file, at most `most` and at most [`BUFFER`] bytes. The bytes
/// no longer change.
///
/// # Errors
/// The file has lost the contents that were handed over, or an error of `pread(2)`.
pub(super) fn read(segment: &FileSegment, most: usize) -> io::Result<Bytes> {
    let FileSegment { file, offset, len } = segment;
    let want = usize::try_from(*len).map_or(most, |len| len.min(most));
    let (descriptor, is_leased) = match file.source()? {
        RangeSource::Memory(contents) => {
            let from = usize::try_from(*offset).unwrap_or(usize::MAX);
            let range = from..from.saturating_add(want);
            return match contents.get(range.clone()) {
                Some(_) => Ok(contents.slice(range)),
                None => Err(file.became_shorter()),
            };
        }
        RangeSource::Final(descriptor) => (descriptor, false),
        RangeSource::Leased(descriptor) => (descriptor, true),
    };
    let bytes = read_at(&descriptor, *offset, want)?;
    if is_leased {
        file.verify()?;
    }
    if bytes.is_empty() { Err(file.became_shorter()) } else { Ok(bytes) }
}

/// Reads at most `want` bytes; fewer at the end of the file, or if `want` exceeds [`BUFFER`].
pub(super) fn read_at(file: impl AsFd, offset: u64, want: usize) -> io::Result<Bytes> {
    let mut buffer = Buffer::of(want);
    let want = want.min(buffer.0.len());
    let read = loop {
        match rustix::io::pread(&file, &mut buffer.0[..want], offset) {
            Err(rustix::io::Errno::INTR) => {}
            read => break read?,
        }
    };
    Ok(Bytes::from_owner(buffer).slice(..read))
}

/// A buffer that returns to its event loop once its last byte has been sent.
struct Buffer(Vec<u8>);

impl Buffer {
    fn of(want: usize) -> Self {
        if want <= SMALL {
            return Self(vec![0; want]);
        }
        let kept = BUFFERS.with_borrow_mut(Vec::pop);
        Self(kept.unwrap_or_else(|| vec![0; BUFFER]))
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.0.len() < BUFFER {
            return;
        }
        let buffer = std::mem::take(&mut self.0);
        // Fails while the thread is ending.
        let _ended = BUFFERS.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT {
                kept.push(buffer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_one_buffer() {
        let mut piece = Piece::default();
        for part in ["ab", "", "c", "def"] {
            piece.push(Bytes::from_static(part.as_bytes()));
        }
        let slices = |piece: &Piece| {
            let mut slices = [IoSlice::new(&[]); 2];
            let count = piece.chunks_vectored(&mut slices);
            slices[..count].iter().map(|slice| slice.to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(piece.remaining(), 6);
        assert_eq!(slices(&piece), [b"ab".to_vec(), b"c".to_vec()]);
        piece.advance(1);
        assert_eq!(piece.chunk(), b"b");
        piece.advance(3);
        assert_eq!((piece.chunk(), piece.remaining()), (&b"ef"[..], 2));
        piece.advance(2);
        assert_eq!((piece.chunk(), piece.has_remaining()), (&b""[..], false));
        assert!(slices(&piece).is_empty());
    }

    #[test]
    fn buffers_are_used_again_when_nothing_needs_their_bytes() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        std::fs::write(&path, vec![7; 3 * BUFFER]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let first = read_at(&file, 0, 2 * BUFFER).unwrap();
        assert_eq!(first.len(), BUFFER);
        let (place, part) = (first.as_ptr(), first.slice(10..11));
        drop(first);
        let second = read_at(&file, 0, BUFFER).unwrap();
        assert_ne!(second.as_ptr(), place, "a part of the first is still used");
        drop(part);
        assert_eq!(read_at(&file, 0, SMALL + 1).unwrap().as_ptr(), place);
        assert_eq!(read_at(&file, 3 * BUFFER as u64 - 5, 10).unwrap().len(), 5);
    }
}
