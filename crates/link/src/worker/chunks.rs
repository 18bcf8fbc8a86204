//! The chunks of a link's shared region: which chunk is filled next, and the records that lend
//! chunks to the front.

use std::ops::Range;

use sendoff_fastcgi::handover::Record;
use sendoff_fastcgi::region::{ChunkLender, Layout, Piece};

use super::Queue;

/// ```text
///  free ──── lend() ──▶ filling ──── full, or end() ──▶ lent ──── returned by the front ──▶ free
///                       at most one
/// ```
#[derive(Debug)]
pub struct Chunks {
    layout: Layout,
    lender: ChunkLender,
    /// `REGION` has been queued.
    announced: bool,
    filling: Option<Filling>,
}

/// The chunk that is being filled.
#[derive(Debug, Clone, Copy)]
struct Filling {
    chunk: u32,
    filled: u32,
    request_id: u16,
}

impl Chunks {
    /// All chunks are free.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self { layout, lender: ChunkLender::new(layout), announced: false, filling: None }
    }

    /// Lends room for up to `len` > 0 body bytes and queues their `PIECE`, preceded by `REGION` if
    /// the front does not know the region. Returns the range in which the caller must write the
    /// bytes before the queue is sent, counted from the start of the first chunk. `None`: no chunk
    /// is free. `returned` reads the front's counter of a chunk.
    pub fn lend(
        &mut self,
        queue: &mut Queue,
        request_id: u16,
        len: usize,
        returned: impl Fn(u32) -> u32,
    ) -> Option<Range<usize>> {
        let filling = match self.filling {
            Some(filling) => filling,
            None => Filling { chunk: self.lender.lend(returned)?, filled: 0, request_id },
        };
        let Filling { chunk, filled, .. } = filling;
        let room = self.layout.chunk_size() - filled;
        let length = u32::try_from(len).unwrap_or(u32::MAX).min(room);
        let last = length == room;
        let piece = Piece { chunk, last, offset: filled, length };
        let range = self.layout.range(piece)?;
        self.filling = (!last).then_some(Filling { filled: filled + length, ..filling });
        if !std::mem::replace(&mut self.announced, true) {
            queue.record(request_id, Record::Region);
        }
        queue.piece(request_id, piece);
        Some(range)
    }

    /// Ends the response: lends the partly filled chunk to the front as it is.
    pub fn end(&mut self, queue: &mut Queue) {
        if let Some(Filling { chunk, filled, request_id }) = self.filling.take() {
            queue.piece(request_id, Piece { chunk, last: true, offset: filled, length: 0 });
        }
    }
}
