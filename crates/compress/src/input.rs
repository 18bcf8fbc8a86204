//! The pieces of a body that wait to be compressed.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;
use sendoff_delivery::segment::{FileSegment, FileState, Segment};
use sendoff_exchange::sink::Fit;
use sendoff_message::response::Framing;

/// The most waiting pieces; a script can name files faster than they are compressed.
const MOST_PIECES: usize = 1024;

/// The most waiting bytes in memory.
const MOST_IN_MEMORY: usize = 256 * 1024;

/// Pieces in order.
#[derive(Debug)]
pub(super) struct Input {
    pieces: VecDeque<InputPiece>,
    len: u64,
    /// Bytes of the pieces in memory.
    in_memory: usize,
    /// The framing of the bytes that are still to come; [`Framing::Chunked`] stands for an unknown
    /// number.
    rest: Framing,
    arrival: Arrival,
}

/// ```text
///           pause()            push()
///  Flowing ─────────▶ Paused ──────────▶ Flowing
///     └──────────┬──────┘
///                └─ end(), or the announced length is reached ──▶ Complete
/// ```
#[derive(Debug, PartialEq, Eq)]
enum Arrival {
    Flowing,
    /// No bytes have come since other tasks had their turn, such as the task that reads the
    /// application's output.
    Paused,
    Complete,
}

#[derive(Debug)]
enum InputPiece {
    Bytes(Bytes),
    /// A range of a file, and the state of the file when the range was queued, unless the file is
    /// guarded against changes.
    File(FileSegment, Option<FileState>),
}

impl Input {
    /// The input of a body of `length` bytes; `None`: unknown.
    pub(super) fn new(length: Option<u64>) -> Self {
        Self {
            pieces: VecDeque::new(),
            len: 0,
            in_memory: 0,
            rest: length.map_or(Framing::Chunked, Framing::Length),
            arrival: Arrival::Flowing,
        }
    }

    /// Adds the next piece of the body, truncated to the announced length.
    pub(super) fn push(&mut self, mut segment: Segment) -> io::Result<Fit> {
        let fit = Fit::of(&mut segment, &mut self.rest);
        self.arrival = match self.rest {
            Framing::Length(0) => Arrival::Complete,
            _ => Arrival::Flowing,
        };
        self.queue(segment)?;
        Ok(fit)
    }

    /// Ends the body, unless bytes of its announced length are missing; returns their number.
    pub(super) fn end(&mut self) -> u64 {
        let missing = self.rest.missing();
        if missing == 0 {
            (self.rest, self.arrival) = (Framing::Length(0), Arrival::Complete);
        }
        missing
    }

    /// Notes that other tasks get their turn. Returns true if bytes have come since the last time,
    /// and more may come.
    pub(super) fn pause(&mut self) -> bool {
        let was_flowing = self.arrival == Arrival::Flowing;
        if was_flowing {
            self.arrival = Arrival::Paused;
        }
        was_flowing
    }

    /// True if no further piece is part of the body.
    pub(super) fn is_complete(&self) -> bool {
        self.arrival == Arrival::Complete
    }

    /// Queues a piece that is already counted.
    pub(super) fn queue(&mut self, segment: Segment) -> io::Result<()> {
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

    /// Takes all segments in their order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Segment> + use<> {
        (self.len, self.in_memory) = (0, 0);
        std::mem::take(&mut self.pieces).into_iter().map(|piece| match piece {
            InputPiece::Bytes(bytes) => Segment::Bytes(bytes),
            InputPiece::File(file, _) => Segment::File(file),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Segment {
        Segment::Bytes(vec![b'x'; len].into())
    }

    #[test]
    fn a_body_of_announced_length_is_complete_with_its_last_byte() {
        let mut input = Input::new(Some(5));
        assert_eq!(input.push(bytes(3)).unwrap(), Fit::Whole);
        assert_eq!((input.end(), input.is_complete()), (2, false));
        assert_eq!(input.push(bytes(3)).unwrap(), Fit::Cut);
        assert_eq!((input.end(), input.is_complete(), input.len()), (0, true, 5));
        assert_eq!(input.drain().map(|segment| segment.len()).sum::<u64>(), 5);
    }

    #[test]
    fn a_body_of_unknown_length_is_complete_once_it_has_ended() {
        let mut input = Input::new(None);
        assert_eq!(input.push(bytes(3)).unwrap(), Fit::Whole);
        assert!(!input.is_complete());
        assert_eq!((input.end(), input.is_complete()), (0, true));
        for (len, fit) in [(0, Fit::Whole), (1, Fit::Cut)] {
            assert_eq!(input.push(bytes(len)).unwrap(), fit);
            assert_eq!((input.is_complete(), input.len()), (true, 3));
        }
    }

    #[test]
    fn a_body_pauses_once_until_more_bytes_come() {
        let mut input = Input::new(None);
        for _ in 0..2 {
            assert_eq!([input.pause(), input.pause()], [true, false]);
            input.push(bytes(1)).unwrap();
        }
        input.end();
        assert!(!input.pause() && input.is_complete());
    }
}
