//! The shared region of one link (`docs/handover.md` §4). Bytes are sent directly from it; when the
//! last bytes of a chunk are sent or dropped, the chunk goes back to the worker.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use sendoff_fastcgi::region::{DATA_AT, HEADER_LEN, Layout, Piece, RETURNS_AT};
use sendoff_sys::shared::{Reader, Shape, Slice, Unfit};
use sendoff_upstream::error::UpstreamError;

/// The rule of shared regions that a worker has broken.
#[derive(Debug)]
pub struct BadRegion(pub(crate) String);

impl BadRegion {
    fn new(what: &str) -> Self {
        Self(what.to_owned())
    }
}

impl From<BadRegion> for UpstreamError {
    fn from(BadRegion(what): BadRegion) -> Self {
        Self::broken(what)
    }
}

impl From<sendoff_fastcgi::Error> for BadRegion {
    fn from(error: sendoff_fastcgi::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<Unfit> for BadRegion {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Wrong(what) => Self(format!("shared memory: {what}")),
            Unfit::Failed(error) => Self(format!("shared memory that cannot be mapped: {error}")),
        }
    }
}

/// The region of one link. The mapping outlives it while bytes are still owed to clients.
#[derive(Debug, Default)]
pub struct LinkRegion(Option<AnnouncedRegion>);

#[derive(Debug)]
struct AnnouncedRegion {
    memory: Arc<Reader>,
    layout: Layout,
    chunks: Vec<Chunk>,
}

/// ```text
///          first PIECE          last PIECE           all its bytes sent or dropped
///  at home ───────────▶ filling ──────────▶ leaving ───────────────────────────────▶ at home
/// ```
#[derive(Debug, Default)]
struct Chunk {
    /// Number of times the chunk was lent. The value for the worker comes from here, never from the
    /// shared memory.
    lent: u32,
    filling: Option<Arc<LentChunk>>,
    leaving: Weak<LentChunk>,
}

/// A chunk that the front holds. Dropping the last reference returns it.
#[derive(Debug)]
struct LentChunk {
    memory: Arc<Reader>,
    chunk: u32,
    /// The counter value that tells the worker the chunk is returned.
    returns: u32,
}

impl Drop for LentChunk {
    fn drop(&mut self) {
        self.memory.set_counter(self.chunk, self.returns);
    }
}

impl LinkRegion {
    /// `REGION`: maps the memory.
    pub fn announce(&mut self, descriptor: &OwnedFd) -> Result<(), BadRegion> {
        if self.0.is_some() {
            return Err(BadRegion::new("it announced a second region"));
        }
        let header: [u8; HEADER_LEN] = Reader::header(descriptor.as_fd())?;
        let layout = Layout::decode(&header)?;
        let shape = Shape {
            counters_at: RETURNS_AT,
            counters: layout.chunks(),
            data_at: DATA_AT,
            data_len: layout.data_len(),
        };
        let memory = Arc::new(Reader::map(descriptor.as_fd(), shape)?);
        let chunks = (0..layout.chunks()).map(|_| Chunk::default()).collect();
        self.0 = Some(AnnouncedRegion { memory, layout, chunks });
        Ok(())
    }

    /// `PIECE`: returns bytes of the body; `None` if the piece is empty and only ends a chunk.
    pub fn piece(&mut self, piece: Piece) -> Result<Option<Bytes>, BadRegion> {
        let missing = || BadRegion::new("a piece of a region that it has not announced");
        let AnnouncedRegion { memory, layout, chunks } = self.0.as_mut().ok_or_else(missing)?;
        let outside = || BadRegion::new("a piece outside its chunk");
        let range = layout.range(piece).ok_or_else(outside)?;
        if range.is_empty() && !piece.last {
            return Err(BadRegion::new("a piece of nothing"));
        }
        let chunk = &mut chunks[piece.chunk as usize];
        let lent = match chunk.filling.take() {
            Some(lent) => lent,
            None if chunk.leaving.strong_count() > 0 => {
                return Err(BadRegion::new("a chunk that it has not got back"));
            }
            None => {
                chunk.lent = chunk.lent.wrapping_add(1);
                let (memory, returns) = (Arc::clone(memory), chunk.lent);
                Arc::new(LentChunk { memory, chunk: piece.chunk, returns })
            }
        };
        if piece.last {
            chunk.leaving = Arc::downgrade(&lent);
        } else {
            chunk.filling = Some(Arc::clone(&lent));
        }
        if range.is_empty() {
            return Ok(None);
        }
        let slice = Slice::new(Arc::clone(memory), range, lent).ok_or_else(outside)?;
        Ok(Some(Bytes::from_owner(slice)))
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    use sendoff_sys::shared::Writer;

    use super::*;

    const CHUNK: u32 = 4096;

    fn layout() -> Layout {
        Layout::new(CHUNK, 3).unwrap()
    }

    fn shape() -> Shape {
        let (counters, data_len) = (3, layout().data_len());
        Shape { counters_at: RETURNS_AT, counters, data_at: DATA_AT, data_len }
    }

    fn region() -> (Writer, LinkRegion) {
        let writer = Writer::create(shape(), &layout().encode()).unwrap();
        let mut region = LinkRegion::default();
        region.announce(writer.fd()).unwrap();
        (writer, region)
    }

    fn piece(chunk: u32, offset: u32, length: u32, last: bool) -> Piece {
        Piece { chunk, last, offset, length }
    }

    #[test]
    fn a_chunk_goes_back_when_the_last_of_its_bytes_are_gone() {
        let (mut writer, mut region) = region();
        writer.write(4096, b"chunk one");
        let first = region.piece(piece(1, 0, 5, false)).unwrap().unwrap();
        assert_eq!(&first[..], b"chunk");
        let second = region.piece(piece(1, 6, 3, true)).unwrap().unwrap();
        assert_eq!(&second[..], b"one");
        let rest = second.slice(2..);
        drop((first, second));
        assert_eq!(writer.counter(1), 0);
        assert!(region.piece(piece(1, 0, 1, false)).is_err(), "not given back yet");
        drop(rest);
        assert_eq!(writer.counter(1), 1);
        let again = region.piece(piece(1, 0, 1, false)).unwrap().unwrap();
        drop(again);
        assert_eq!(writer.counter(1), 1, "more of it may come");
        assert!(region.piece(piece(1, 0, 0, true)).unwrap().is_none());
        assert_eq!([0, 1, 2].map(|chunk| writer.counter(chunk)), [0, 2, 0]);
    }

    /// The worker and its link are gone while a client is still owed bytes.
    #[test]
    fn bytes_outlive_the_link() {
        let (mut writer, mut region) = region();
        writer.write(0, &[b'x'; 4096]);
        let bytes = region.piece(piece(0, 0, 4096, false)).unwrap().unwrap();
        drop((writer, region));
        assert_eq!(&bytes[..], [b'x'; 4096]);
    }

    #[test]
    fn pieces_that_cannot_be_are_refused() {
        for wrong in [
            piece(3, 0, 1, true),
            piece(u32::MAX, 0, 1, true),
            piece(0, 4096, 1, true),
            piece(0, 1, 4096, true),
            piece(0, u32::MAX, 2, true),
            piece(0, 0, 0, false),
        ] {
            let (_writer, mut region) = region();
            assert!(region.piece(wrong).is_err(), "{wrong:?}");
        }
        assert!(LinkRegion::default().piece(piece(0, 0, 1, true)).is_err(), "before REGION");
        let (writer, mut region) = region();
        assert!(region.announce(writer.fd()).is_err(), "a second one");
    }

    /// A memfd with this size, these seals and this header.
    fn memfd(len: u64, seals: SealFlags, header: &[u8]) -> OwnedFd {
        let fd = memfd_create("lie", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::io::pwrite(&fd, header, 0).unwrap();
        ftruncate(&fd, len).unwrap();
        fcntl_add_seals(&fd, seals).unwrap();
        fd
    }

    #[test]
    fn memory_that_is_no_region_is_refused() {
        let header = layout().encode();
        let (whole, sealed) = (DATA_AT + 3 * 4096, SealFlags::SHRINK | SealFlags::GROW);
        let announce = |fd: OwnedFd| LinkRegion::default().announce(&fd);
        announce(memfd(whole, sealed, &header)).unwrap();
        let mut version = header;
        version[11] = 2;
        for (len, seals, header) in [
            (whole, SealFlags::SHRINK, header),
            (whole, SealFlags::GROW, header),
            (whole, SealFlags::empty(), header),
            (whole - 1, sealed, header),
            (whole + 1, sealed, header),
            (0, sealed, header),
            (whole, sealed, version),
            (whole, sealed, [0; HEADER_LEN]),
        ] {
            announce(memfd(len, seals, &header)).unwrap_err();
        }
        announce(std::fs::File::open("/proc/self/exe").unwrap().into()).unwrap_err();
        announce(std::io::pipe().unwrap().0.into()).unwrap_err();
        let read_only = memfd(whole, sealed, &header);
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&read_only));
        announce(std::fs::File::open(path).unwrap().into()).unwrap_err();
    }
}
