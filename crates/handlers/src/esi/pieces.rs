//! A body that is cut into pieces from its front to its end.

use std::collections::VecDeque;
use std::ops::Range;

use sendoff_delivery::segment::Segment;

/// The uncut rest of a body.
pub(super) struct Pieces {
    rest: VecDeque<Segment>,
    /// The position of its first byte in the body.
    at: u64,
}

impl Pieces {
    pub(super) fn new(body: Vec<Segment>) -> Self {
        Self { rest: body.into(), at: 0 }
    }

    /// Cuts out a range, which lies behind all earlier ones.
    pub(super) fn cut(&mut self, range: &Range<usize>, out: &mut Vec<Segment>) {
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
    use bytes::Bytes;

    use super::*;

    #[test]
    fn ranges_are_cut_across_segments() {
        let body = ["abc", "", "defg", "h"]
            .map(|text| Segment::Bytes(Bytes::from_static(text.as_bytes())));
        let mut pieces = Pieces::new(body.to_vec());
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
        assert_eq!(cut(2..5), "c||de");
        assert_eq!(cut(7..20), "h");
    }
}
