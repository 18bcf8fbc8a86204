//! The body of a page with its markup, and the pieces into which it is cut. Its bytes are not copied,
//! except to read markup in a file or in several pieces.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use sendoff_delivery::segment::Segment;

/// Bytes of a file per read.
const READ: usize = 64 * 1024;

/// A complete body.
#[derive(Debug, Default)]
pub struct Body(Vec<Segment>);

/// The uncut rest of a body.
#[derive(Debug)]
pub struct Pieces {
    rest: VecDeque<Segment>,
    /// The position of its first byte in the body.
    at: u64,
}

impl Body {
    /// Appends a segment.
    pub fn push(&mut self, segment: Segment) {
        match (self.0.last_mut(), segment) {
            (_, segment) if segment.is_empty() => {}
            // Pieces of a stored body lie behind one another.
            (Some(Segment::File(last)), Segment::File(next))
                if Rc::ptr_eq(&last.file, &next.file) && last.offset + last.len == next.offset =>
            {
                last.len += next.len;
            }
            (_, segment) => self.0.push(segment),
        }
    }

    /// The text with the markup.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn text(&self) -> io::Result<Bytes> {
        if let [Segment::Bytes(text)] = &*self.0 {
            return Ok(text.clone());
        }
        let mut text = BytesMut::new();
        for segment in &self.0 {
            match segment.clone() {
                Segment::Bytes(bytes) => text.extend_from_slice(&bytes),
                Segment::File(mut file) => {
                    while file.len > 0 {
                        text.extend_from_slice(&file.read(READ)?);
                    }
                }
            }
        }
        Ok(text.freeze())
    }

    /// Its segments.
    #[must_use]
    pub fn into_segments(self) -> Vec<Segment> {
        self.0
    }

    /// The body, to be cut from its front to its end.
    #[must_use]
    pub fn into_pieces(self) -> Pieces {
        Pieces { rest: self.0.into(), at: 0 }
    }
}

impl Pieces {
    /// Cuts out a range, which lies behind all earlier ones.
    pub fn cut(&mut self, range: &Range<usize>, out: &mut Vec<Segment>) {
        self.advance(range.start as u64, |_| {});
        self.advance(range.end as u64, |segment| out.push(segment));
    }

    /// Takes the bytes up to a position from the front.
    fn advance(&mut self, to: u64, mut taken: impl FnMut(Segment)) {
        while self.at < to
            && let Some(mut first) = self.rest.pop_front()
        {
            let wanted = to - self.at;
            if wanted < first.len() {
                self.rest.push_front(first.split_off(wanted));
            }
            self.at += first.len();
            taken(first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_across_segments() {
        let mut body = Body::default();
        for text in ["abc", "", "defg", "h"] {
            body.push(Segment::Bytes(Bytes::from_static(text.as_bytes())));
        }
        assert_eq!(body.text().unwrap(), "abcdefgh");
        let mut pieces = body.into_pieces();
        let mut cut = |range: Range<usize>| {
            let mut out = Vec::new();
            pieces.cut(&range, &mut out);
            let text = |segment: &Segment| match segment {
                Segment::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                Segment::File(_) => unreachable!(),
            };
            out.iter().map(text).collect::<Vec<_>>().join("|")
        };
        assert_eq!(cut(1..2), "b");
        assert_eq!(cut(2..2), "");
        assert_eq!(cut(2..5), "c|de");
        assert_eq!(cut(7..20), "h");
    }
}
