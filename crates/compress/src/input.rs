//! The pieces of a body that wait to be compressed.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;
use sendoff_delivery::segment::{FileSegment, FileState, Segment};

/// The most waiting pieces; a script can name files faster than they are compressed.
const MOST_PIECES: usize = 1024;

/// The most waiting bytes in memory.
const MOST_IN_MEMORY: usize = 256 * 1024;

/// Pieces in order.
#[derive(Debug, Default)]
pub(super) struct Input {
    pieces: VecDeque<InputPiece>,
    len: u64,
    /// Bytes of the pieces in memory.
    in_memory: usize,
}

#[derive(Debug)]
enum InputPiece {
    Bytes(Bytes),
    /// A range of a file, and the state of the file when the range was queued, unless the file is
    /// guarded against changes.
    File(FileSegment, Option<FileState>),
}

impl Input {
    pub(super) fn push(&mut self, segment: Segment) -> io::Result<()> {
        if segment.is_empty() {
            return Ok(());
        }
        self.len += segment.len();
        self.pieces.push_back(match segment {
            Segment::Bytes(bytes) => {
                self.in_memory += bytes.len();
                InputPiece::Bytes(bytes)
            }
            Segment::File(file) => {
                let state = file.state()?;
                InputPiece::File(file, state)
            }
        });
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// True if the application must wait.
    pub(super) fn is_full(&self) -> bool {
        self.in_memory >= MOST_IN_MEMORY || self.pieces.len() >= MOST_PIECES
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The file and its state, if the only piece is a whole file whose state identifies its
    /// contents.
    pub(super) fn whole_file(&self) -> Option<(&FileSegment, FileState)> {
        match (self.pieces.front()?, self.pieces.len()) {
            (InputPiece::File(file, Some(state)), 1)
                if file.offset == 0 && file.len == state.size() =>
            {
                Some((file, *state))
            }
            _ => None,
        }
    }

    /// Takes at most `most` bytes from the front, reading them if they lie in a file.
    ///
    /// # Errors
    /// The file cannot be read, or has changed: the next bytes would not match the previous ones.
    pub(super) fn take(&mut self, most: usize) -> io::Result<Bytes> {
        let Some(piece) = self.pieces.front_mut() else { return Ok(Bytes::new()) };
        let (taken, is_empty) = match piece {
            InputPiece::Bytes(bytes) => {
                let taken = bytes.split_to(most.min(bytes.len()));
                self.in_memory -= taken.len();
                (taken, bytes.is_empty())
            }
            InputPiece::File(file, state) => {
                let taken = file.read(most)?;
                if state.is_some() && file.state()? != *state {
                    return Err(io::Error::other("a file changed while it was compressed"));
                }
                (taken, file.len == 0)
            }
        };
        self.len -= taken.len() as u64;
        if is_empty {
            self.pieces.pop_front();
        }
        Ok(taken)
    }

    /// The segments in their order.
    pub(super) fn into_segments(self) -> impl Iterator<Item = Segment> {
        self.pieces.into_iter().map(|piece| match piece {
            InputPiece::Bytes(bytes) => Segment::Bytes(bytes),
            InputPiece::File(file, _) => Segment::File(file),
        })
    }
}
