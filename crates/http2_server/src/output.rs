//! Frames that wait for the transport.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, BytesMut};
use sendoff_delivery::Piece;

use super::stream::InFlight;

/// The frames, in the order in which they are sent.
#[derive(Debug, Default)]
pub(super) struct Output {
    chunks: VecDeque<Chunk>,
    /// Bytes of all chunks but the last one, to which frames may be appended.
    settled: Sizes,
}

/// Numbers of bytes.
#[derive(Debug, Default)]
struct Sizes {
    frames: usize,
    pieces: usize,
}

#[derive(Debug)]
enum Chunk {
    /// Frames without a body, and headers of DATA frames.
    Frames(BytesMut),
    /// The contents of a DATA frame of a stream.
    Piece { stream: u32, piece: Piece },
}

/// Space for the frames of one small response.
const FRAMES: usize = 256;

/// Chunks that an idle connection keeps space for.
const KEPT: usize = 4;

impl Output {
    /// The end of the frames, to append one.
    pub(super) fn frames(&mut self) -> &mut BytesMut {
        if !matches!(self.chunks.back(), Some(Chunk::Frames(_))) {
            self.push_chunk(Chunk::Frames(BytesMut::with_capacity(FRAMES)));
        }
        match self.chunks.back_mut() {
            Some(Chunk::Frames(frames)) => frames,
            _ => unreachable!("the last chunk has just been appended"),
        }
    }

    /// Appends the contents of a DATA frame, whose header was appended before.
    pub(super) fn push(&mut self, stream: u32, piece: Piece) {
        if piece.has_remaining() {
            self.push_chunk(Chunk::Piece { stream, piece });
        }
    }

    fn push_chunk(&mut self, chunk: Chunk) {
        if let Some(last) = self.chunks.back() {
            *self.settled.of(last) += last.len();
        }
        self.chunks.push_back(chunk);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Bytes that wait.
    pub(super) fn len(&self) -> usize {
        self.settled.frames + self.settled.pieces + self.chunks.back().map_or(0, Chunk::len)
    }

    /// Bytes that wait, apart from bodies.
    pub(super) fn frames_len(&self) -> usize {
        let last = self.chunks.back().filter(|chunk| matches!(chunk, Chunk::Frames(_)));
        self.settled.frames + last.map_or(0, Chunk::len)
    }

    /// Fills in the first bytes; returns the number of slices.
    pub(super) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for chunk in &self.chunks {
            let left = &mut slices[count..];
            if left.is_empty() {
                break;
            }
            match chunk {
                Chunk::Frames(frames) => {
                    left[0] = IoSlice::new(frames);
                    count += 1;
                }
                Chunk::Piece { piece, .. } => {
                    let parts = piece.chunks_vectored(left);
                    count += parts;
                    if left[..parts.min(left.len())].iter().map(|part| part.len()).sum::<usize>()
                        < piece.remaining()
                    {
                        break;
                    }
                }
            }
        }
        count
    }

    /// Drops bytes that were sent. Calls `taken` with the stream of each body among them, the number of
    /// its bytes, and the frame that they end.
    pub(super) fn advance(&mut self, mut bytes: usize, mut taken: impl FnMut(u32, InFlight)) {
        loop {
            let is_last = self.chunks.len() == 1;
            let Some(chunk) = self.chunks.front_mut() else { break };
            let now = chunk.len().min(bytes);
            bytes -= now;
            if !is_last {
                *self.settled.of(chunk) -= now;
            }
            match chunk {
                Chunk::Frames(frames) => frames.advance(now),
                Chunk::Piece { stream, piece } => {
                    piece.advance(now);
                    let frames = usize::from(!piece.has_remaining());
                    taken(*stream, InFlight { bytes: now, frames });
                }
            }
            if chunk.len() > 0 {
                return;
            }
            self.chunks.pop_front();
        }
        self.chunks.shrink_to(KEPT);
    }
}

impl Sizes {
    fn of(&mut self, chunk: &Chunk) -> &mut usize {
        match chunk {
            Chunk::Frames(_) => &mut self.frames,
            Chunk::Piece { .. } => &mut self.pieces,
        }
    }
}

impl Chunk {
    fn len(&self) -> usize {
        match self {
            Self::Frames(frames) => frames.len(),
            Self::Piece { piece, .. } => piece.remaining(),
        }
    }
}
