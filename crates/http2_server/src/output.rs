//! Frames that wait for the transport.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, BytesMut};
use sendoff_delivery::Piece;

/// The frames, in the order in which they are sent.
#[derive(Debug, Default)]
pub(super) struct Output(VecDeque<Chunk>);

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
        if !matches!(self.0.back(), Some(Chunk::Frames(_))) {
            self.0.push_back(Chunk::Frames(BytesMut::with_capacity(FRAMES)));
        }
        match self.0.back_mut() {
            Some(Chunk::Frames(frames)) => frames,
            _ => unreachable!("the last chunk has just been appended"),
        }
    }

    /// Appends the contents of a DATA frame, whose header was appended before.
    pub(super) fn push(&mut self, stream: u32, piece: Piece) {
        if piece.has_remaining() {
            self.0.push_back(Chunk::Piece { stream, piece });
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes that wait.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(Chunk::len).sum()
    }

    /// Bytes that wait, apart from bodies.
    pub(super) fn frames_len(&self) -> usize {
        self.0.iter().filter(|chunk| matches!(chunk, Chunk::Frames(_))).map(Chunk::len).sum()
    }

    /// Fills in the first bytes; returns the number of slices.
    pub(super) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for chunk in &self.0 {
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

    /// Drops bytes that were sent. Calls `taken` with the stream and the number of bytes of each
    /// body among them.
    pub(super) fn advance(&mut self, mut bytes: usize, mut taken: impl FnMut(u32, usize)) {
        while let Some(chunk) = self.0.front_mut() {
            let now = chunk.len().min(bytes);
            bytes -= now;
            match chunk {
                Chunk::Frames(frames) => frames.advance(now),
                Chunk::Piece { stream, piece } => {
                    piece.advance(now);
                    taken(*stream, now);
                }
            }
            if chunk.len() > 0 {
                return;
            }
            self.0.pop_front();
        }
        self.0.shrink_to(KEPT);
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
