//! The end of the header block in the pieces of an application's output.

use bytes::{Bytes, BytesMut};

use crate::cgi_head::{BadHead, CgiHead, MAX_HEAD};

/// Collects the pieces of an application's output up to the end of the header block. The cost grows
/// with the bytes alone, not with the number of pieces: each byte is searched once and copied at
/// most once.
#[derive(Debug, Default)]
pub struct CgiHeadReader {
    /// The pieces so far, which do not contain the end of the block.
    received: BytesMut,
    line: LineState,
    first: FirstLine,
}

/// The kinds of first lines that a block may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum FirstLine {
    #[default]
    Field,
    /// A status line of HTTP/1, or a field.
    StatusOrField,
}

/// The state of the line to which the next byte belongs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum LineState {
    /// No byte of it has come.
    #[default]
    Empty,
    /// Only a carriage return.
    Return,
    /// A byte of a header field.
    Field,
}

impl CgiHeadReader {
    /// A reader for one response.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A reader for a response that may begin with a status line of HTTP/1, as nginx accepts it of
    /// SCGI applications.
    #[must_use]
    pub fn with_status_line() -> Self {
        Self { first: FirstLine::StatusOrField, ..Self::default() }
    }

    /// True if no byte has come.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.received.is_empty()
    }

    /// Takes the next piece of output. Once the block is complete, returns the head and the bytes
    /// of `piece` behind it; the reader must not be used afterwards. Nothing is copied if the first
    /// piece contains the whole block.
    ///
    /// # Errors
    /// The block breaks the grammar, or is larger than [`MAX_HEAD`]. The result does not depend on
    /// the cuts between pieces.
    pub fn push(&mut self, piece: &Bytes) -> Result<Option<(CgiHead, Bytes)>, BadHead> {
        let room = MAX_HEAD - self.received.len();
        let Some(end) = self.line.find_end(&piece[..room.min(piece.len())]) else {
            if piece.len() > room {
                return Err(BadHead("a header block of more than 64 KiB"));
            }
            self.received.extend_from_slice(piece);
            return Ok(None);
        };
        let block = if self.received.is_empty() {
            piece.slice(..end)
        } else {
            self.received.extend_from_slice(&piece[..end]);
            std::mem::take(&mut self.received).freeze()
        };
        let head = match status_line(&block) {
            Some(len) if self.first == FirstLine::StatusOrField => {
                CgiHead::behind_status_line(&block, len)?
            }
            _ => CgiHead::parse(&block)?,
        };
        Ok(Some((head, piece.slice(end..))))
    }
}

/// The length of the status line (RFC 9112 §4) at the start of the block, with its line ending.
fn status_line(block: &[u8]) -> Option<usize> {
    match block {
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor, b' ', ..] if minor.is_ascii_digit() => {
            Some(memchr::memchr(b'\n', block)? + 1)
        }
        _ => None,
    }
}

impl CgiHead {
    /// The offset of the end of the header block at the start of `bytes`, behind its empty line.
    #[must_use]
    pub fn find_end(bytes: &[u8]) -> Option<usize> {
        LineState::Empty.find_end(bytes)
    }
}

impl LineState {
    /// Continues the search in `bytes`. Returns the offset behind the block's empty line.
    fn find_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            *self = match (*self, byte) {
                (Self::Empty | Self::Return, b'\n') => return Some(at + 1),
                (Self::Empty, b'\r') => Self::Return,
                _ => {
                    let Some(rest) = memchr::memchr(b'\n', &bytes[at..]) else {
                        *self = Self::Field;
                        return None;
                    };
                    at += rest;
                    Self::Empty
                }
            };
            at += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIRE: &[u8] = b"A: b\r\nStatus: 404\nC:\r\n\r\nbody\n\n";
    const END: usize = WIRE.len() - 6;

    fn read(pieces: impl IntoIterator<Item = Bytes>) -> Option<(CgiHead, Bytes)> {
        let mut reader = CgiHeadReader::new();
        pieces.into_iter().find_map(|piece| reader.push(&piece).unwrap())
    }

    #[test]
    fn any_cut_gives_the_same_head() {
        for cut in 0..=WIRE.len() {
            let (first, second) = WIRE.split_at(cut);
            let pieces = [Bytes::from_static(first), Bytes::from_static(second)];
            let (head, rest) = read(pieces).unwrap();
            assert_eq!((head.status.as_u16(), head.fields.len()), (404, 2), "cut at {cut}");
            let expected = if cut < END { &WIRE[END..] } else { &WIRE[END..cut] };
            assert_eq!(rest, expected, "cut at {cut}");
        }
        let bytes = WIRE.iter().map(|byte| Bytes::copy_from_slice(&[*byte]));
        assert!(read(bytes).unwrap().1.is_empty());
    }

    #[test]
    fn a_status_line_sets_the_status_only_where_it_may_stand() {
        for (block, status, reason, fields) in [
            ("HTTP/1.1 202 Accepted\r\nA: b\r\n\r\n", 202, Some("Accepted"), 1),
            ("HTTP/1.0 404\n\n", 404, None, 0),
            ("HTTP/1.1 404 Gone\r\nStatus: 200 Fine\r\nLocation: /\r\n\r\n", 404, Some("Gone"), 1),
            ("Status: 404\r\nA: b\r\n\r\n", 404, None, 1),
        ] {
            let mut reader = CgiHeadReader::with_status_line();
            let (head, _) = reader.push(&Bytes::from_static(block.as_bytes())).unwrap().unwrap();
            let found = (head.status.as_u16(), head.reason.as_deref(), head.fields.len());
            assert_eq!(found, (status, reason.map(str::as_bytes), fields), "{block:?}");
            assert!(head.bad_lines.is_empty(), "{block:?}");
        }
        for block in ["HTTP/1.1 nonsense\r\nA: b\r\n\r\n", "HTTP/1.1 999999\r\n\r\n"] {
            let mut reader = CgiHeadReader::with_status_line();
            assert!(reader.push(&Bytes::from_static(block.as_bytes())).is_err(), "{block:?}");
        }
        let (head, _) = read([Bytes::from_static(b"HTTP/1.1 404 Gone\r\nA: b\r\n\r\n")]).unwrap();
        assert_eq!((head.status.as_u16(), head.bad_lines.len()), (200, 1));
    }

    #[test]
    fn a_carriage_return_within_a_line_is_no_empty_line() {
        for (bytes, end) in [("a\r\n\r\r\n\nx", 7), ("\r\n", 2), ("\n", 1), ("\r\r\n\r\n", 5)] {
            assert_eq!(CgiHead::find_end(bytes.as_bytes()), Some(end), "{bytes:?}");
        }
    }

    #[test]
    fn a_block_in_one_piece_is_not_copied() {
        let piece = Bytes::from(WIRE.to_vec());
        let (head, rest) = CgiHeadReader::new().push(&piece).unwrap().unwrap();
        assert!(piece.as_ptr_range().contains(&head.fields[0].value().as_ptr()));
        assert!(piece.as_ptr_range().contains(&rest.as_ptr()));
    }

    /// Searching from the start with each piece took 718 ms for this block.
    #[test]
    fn one_byte_at_a_time_costs_no_more_than_the_bytes() {
        let wire = Bytes::from([&[b'a'; MAX_HEAD - 6][..], b":b\r\n\r\n"].concat());
        let began = std::time::Instant::now();
        let pieces = (0..wire.len()).map(|at| wire.slice(at..=at));
        assert_eq!(read(pieces).unwrap().0.fields.len(), 1);
        assert!(began.elapsed().as_millis() < 200, "{:?}", began.elapsed());
    }

    #[test]
    fn the_limit_is_the_same_however_the_block_is_cut() {
        let block = |len: usize| [&vec![b'a'; len - 6][..], b":b\r\n\r\n"].concat();
        for size in [1, 7, 1000, MAX_HEAD, MAX_HEAD + 10] {
            for (len, fits) in [(MAX_HEAD, true), (MAX_HEAD + 1, false)] {
                let wire = Bytes::from([&block(len)[..], b"body"].concat());
                let mut reader = CgiHeadReader::new();
                let pieces = (0..wire.len()).step_by(size);
                let mut answers = pieces
                    .map(|at| reader.push(&wire.slice(at..(at + size).min(wire.len()))))
                    .skip_while(|answer| matches!(answer, Ok(None)));
                assert_eq!(answers.next().unwrap().is_ok(), fits, "{len} bytes by {size}");
            }
        }
    }
}
