//! The memory that a worker shares with the front on one link (`docs/handover.md` §4): its layout,
//! the records that name bytes in it, and the worker's count of lent chunks.
//!
//! ```text
//!   0         64 KiB        128 KiB
//!   ├ header ┄┼ returns ┄┄┄┄┼ chunk 0 ┼ chunk 1 ┼ ...
//!     worker    front         worker writes, front reads
//!     writes    writes
//! ```

use std::ops::Range;

use crate::Error;
use crate::record::Kind;

/// The offset of the counters: the largest page size of Linux, so that each part can be mapped
/// alone.
pub const RETURNS_AT: u64 = 64 * 1024;

/// The offset of the chunks.
pub const DATA_AT: u64 = 2 * RETURNS_AT;

/// Bytes of the header.
pub const HEADER_LEN: usize = 24;

const MAGIC: &[u8; 8] = b"sendoff\0";
const VERSION: u32 = 1;

/// The largest chunk that a front accepts, in bytes: a piece may exceed the limit of one response
/// by this size.
const MAX_CHUNK_SIZE: u32 = 256 * 1024;
/// Chunk sizes are multiples of this.
const CHUNK_UNIT: u32 = 4096;
/// The most chunks that a front accepts: it keeps a count for each.
const MAX_CHUNKS: u32 = 4096;

/// The size of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    chunk_size: u32,
    chunks: u32,
}

impl Layout {
    /// A region of `chunks` chunks of `chunk_size` bytes.
    ///
    /// # Errors
    /// No front accepts such a region.
    pub fn new(chunk_size: u32, chunks: u32) -> Result<Self, Error> {
        let size_fits = (CHUNK_UNIT..=MAX_CHUNK_SIZE).contains(&chunk_size);
        if !size_fits
            || !chunk_size.is_multiple_of(CHUNK_UNIT)
            || !(1..=MAX_CHUNKS).contains(&chunks)
        {
            return Err(Error::Region("with chunks of an odd size or number"));
        }
        Ok(Self { chunk_size, chunks })
    }

    /// The region's first bytes.
    #[must_use]
    pub fn encode(self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_be_bytes());
        out[12..16].copy_from_slice(&self.chunk_size.to_be_bytes());
        out[16..20].copy_from_slice(&self.chunks.to_be_bytes());
        out
    }

    /// Reads a region's first bytes.
    ///
    /// # Errors
    /// The bytes are not the header of a region of this version, or the region is larger than a
    /// front accepts.
    pub fn decode(raw: &[u8; HEADER_LEN]) -> Result<Self, Error> {
        let number =
            |at: usize| u32::from_be_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        if raw[..8] != *MAGIC {
            return Err(Error::Region("without a header"));
        }
        if number(8) != VERSION || number(20) != 0 {
            return Err(Error::Region("of another version"));
        }
        Self::new(number(12), number(16))
    }

    /// Bytes in a chunk.
    #[must_use]
    pub fn chunk_size(self) -> u32 {
        self.chunk_size
    }

    /// The number of chunks.
    #[must_use]
    pub fn chunks(self) -> u32 {
        self.chunks
    }

    /// Bytes of all chunks together.
    #[must_use]
    pub fn data_len(self) -> usize {
        self.chunk_size as usize * self.chunks as usize
    }

    /// The range of a piece, relative to [`DATA_AT`]; `None` if it exceeds its chunk.
    #[must_use]
    pub fn range(self, piece: Piece) -> Option<Range<usize>> {
        let end = piece.offset.checked_add(piece.length)?;
        if piece.chunk >= self.chunks || end > self.chunk_size {
            return None;
        }
        let chunk_at = piece.chunk as usize * self.chunk_size as usize;
        Some(chunk_at + piece.offset as usize..chunk_at + end as usize)
    }
}

/// The content of `PIECE`: body bytes in a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The chunk's number.
    pub chunk: u32,
    /// The last piece of this chunk: the chunk is returned when the front needs none of its bytes
    /// any more.
    pub last: bool,
    /// First byte, from the start of the chunk.
    pub offset: u32,
    /// Bytes.
    pub length: u32,
}

/// The flag bit for [`Piece::last`].
const LAST: u32 = 1;

impl Piece {
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        let flags = if self.last { LAST } else { 0 };
        for number in [self.chunk, flags, self.offset, self.length] {
            out.extend_from_slice(&number.to_be_bytes());
        }
    }

    pub(crate) fn decode(content: &[u8]) -> Result<Self, Error> {
        let wrong = Error::ContentLength { kind: Kind::PIECE.0, len: content.len() };
        let raw: &[u8; 16] = content.try_into().map_err(|_| wrong)?;
        let number =
            |at: usize| u32::from_be_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        if number(4) & !LAST != 0 {
            return Err(Error::Region("with a piece of unknown flags"));
        }
        let last = number(4) == LAST;
        Ok(Self { chunk: number(0), last, offset: number(8), length: number(12) })
    }
}

/// The worker's count of the lends of each chunk. A chunk is free if it was returned as often as it
/// was lent.
#[derive(Debug)]
pub struct ChunkLender {
    lent: Vec<u32>,
}

impl ChunkLender {
    /// A count without lent chunks.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self { lent: vec![0; layout.chunks as usize] }
    }

    /// Lends the lowest free chunk: it was used most recently, so it may still be in the cache.
    /// `returned` reads a chunk's counter with acquire ordering: the front's accesses to the chunk
    /// must have happened before.
    pub fn lend(&mut self, returned: impl Fn(u32) -> u32) -> Option<u32> {
        let (chunk, lent) =
            (0..).zip(&mut self.lent).find(|(chunk, lent)| returned(*chunk) == **lent)?;
        *lent = lent.wrapping_add(1);
        Some(chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_the_round_trip_and_others_are_refused() {
        let layout = Layout::new(64 * 1024, 64).unwrap();
        let raw = layout.encode();
        assert_eq!(Layout::decode(&raw), Ok(layout));
        for (at, value) in
            [(0, b'S'), (7, 1), (11, 2), (12, 1), (13, 0), (15, 1), (17, 1), (19, 0), (23, 1)]
        {
            let mut wrong = raw;
            wrong[at] = value;
            let is_refused = Layout::decode(&wrong).is_err();
            assert!(is_refused, "byte {at} = {value}");
        }
    }

    #[test]
    fn pieces_stay_in_their_chunk() {
        let layout = Layout::new(4096, 2).unwrap();
        let piece = |chunk, offset, length| Piece { chunk, last: false, offset, length };
        assert_eq!(layout.range(piece(1, 6, 4090)), Some(4102..8192));
        assert_eq!(layout.range(piece(1, 4096, 0)), Some(8192..8192));
        for (chunk, offset, length) in [
            (2, 0, 1),
            (u32::MAX, 0, 1),
            (0, 1, 4096),
            (0, 4097, 0),
            (0, u32::MAX, 2),
            (0, 2, u32::MAX),
        ] {
            assert_eq!(layout.range(piece(chunk, offset, length)), None);
        }
    }

    #[test]
    fn unknown_flags_are_refused() {
        let mut wire = Vec::new();
        Piece { chunk: 1, last: true, offset: 2, length: 3 }.encode(&mut wire);
        assert!(Piece::decode(&wire).is_ok());
        wire[7] = 2;
        assert!(Piece::decode(&wire).is_err());
    }

    #[test]
    fn the_lowest_free_chunk_is_lent() {
        let mut lender = ChunkLender::new(Layout::new(4096, 2).unwrap());
        let mut returned = [0, 0];
        assert_eq!(lender.lend(|chunk| returned[chunk as usize]), Some(0));
        assert_eq!(lender.lend(|chunk| returned[chunk as usize]), Some(1));
        assert_eq!(lender.lend(|chunk| returned[chunk as usize]), None);
        returned[1] = 1;
        assert_eq!(lender.lend(|chunk| returned[chunk as usize]), Some(1));
        returned[0] = 1;
        assert_eq!(lender.lend(|chunk| returned[chunk as usize]), Some(0));
        // An impossible counter does not make a chunk free.
        returned = [7, 0];
        assert_eq!(lender.lend(|chunk| returned[chunk as usize]), None);
    }
}
