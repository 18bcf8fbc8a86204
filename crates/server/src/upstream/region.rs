//! Memory that a worker shares with us on one link (`docs/handover.md` §4). Bytes in it are sent from where they lie; when
//! the last of a chunk are sent or dropped, the chunk goes back to the worker.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use sendoff_fastcgi::region::{DATA_AT, HEADER_LEN, Layout, Piece, RETURNS_AT};
use sendoff_sys::shared::{Reader, Shape, Slice, Unfit};

/// What a worker announced is no region, or it broke the rules of one.
#[derive(Debug)]
pub(super) struct BadRegion(pub(super) String);

impl BadRegion {
    fn new(what: &str) -> Self {
        Self(what.to_owned())
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
pub(super) struct LinkRegion(Option<Announced>);

#[derive(Debug)]
struct Announced {
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
    /// How often it was lent. What we tell the worker comes from here, never from the shared memory.
    lent: u32,
    filling: Option<Arc<Lent>>,
    leaving: Weak<Lent>,
}

/// A chunk that we have. Dropping the last reference gives it back.
#[derive(Debug)]
struct Lent {
    memory: Arc<Reader>,
    chunk: u32,
    /// The value that says so.
    returns: u32,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.memory.set_counter(self.chunk, self.returns);
    }
}

impl LinkRegion {
    /// `REGION`: takes the memory on.
    pub(super) fn announce(&mut self, descriptor: &OwnedFd) -> Result<(), BadRegion> {
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
        self.0 = Some(Announced { memory, layout, chunks });
        Ok(())
    }

    /// `PIECE`: bytes of the body; `None` if there are none and it only ends a chunk.
    pub(super) fn piece(&mut self, piece: Piece) -> Result<Option<Bytes>, BadRegion> {
        let missing = || BadRegion::new("a piece of a region that it has not announced");
        let Announced { memory, layout, chunks } = self.0.as_mut().ok_or_else(missing)?;
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
                Arc::new(Lent { memory, chunk: piece.chunk, returns })
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
