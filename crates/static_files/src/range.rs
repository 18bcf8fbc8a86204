//! Byte ranges (RFC 9110 §14).

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use bytes::Bytes;
use sendoff_delivery::segment::Segment;

use super::Entry;

/// The most parts of a multipart response. Viewers of PDF files ask for a few; a request with more
/// is probably an attack.
const MAX_RANGES: usize = 16;

/// A non-empty range inside a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// The first byte, counted from 0.
    pub first: u64,
    /// The number of bytes, at least 1.
    pub len: u64,
}

impl ByteRange {
    /// The value of `Content-Range` for a file of `size` bytes.
    #[must_use]
    pub fn content_range(self, size: u64) -> String {
        format!("bytes {}-{}/{size}", self.first, self.first + self.len - 1)
    }
}

/// The request of a `Range` field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ranges {
    /// The whole file: it is empty, or the field is malformed, in another unit, or asks for too many
    /// ranges or bytes (RFC 9110 §14.2 allows to ignore it).
    Whole,
    /// The file has no byte of the ranges; the response is 416.
    Unsatisfiable,
    /// One range.
    One(ByteRange),
    /// Several ranges, in the order of the request.
    Several(Vec<ByteRange>),
}

impl Ranges {
    /// Parses the value of a `Range` field for a file of `size` bytes (§14.1.1, §14.1.2).
    #[must_use]
    pub fn parse(value: &[u8], size: u64) -> Self {
        let Some(set) = byte_set(value).filter(|_| size > 0) else { return Self::Whole };
        let (mut ranges, mut any) = (Vec::new(), false);
        let members = set.split(|b| *b == b',').map(<[u8]>::trim_ascii);
        for member in members.filter(|member| !member.is_empty()) {
            any = true;
            match range(member, size) {
                None => return Self::Whole,
                Some(None) => {}
                Some(Some(range)) => ranges.push(range),
            }
            if ranges.len() > MAX_RANGES {
                return Self::Whole;
            }
        }
        let total = ranges.iter().fold(0u64, |total, range| total.saturating_add(range.len));
        match ranges[..] {
            _ if !any || total > size => Self::Whole,
            [] => Self::Unsatisfiable,
            [range] => Self::One(range),
            _ => Self::Several(ranges),
        }
    }
}

fn byte_set(value: &[u8]) -> Option<&[u8]> {
    let (unit, set) = value.split_at_checked(b"bytes=".len())?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(set)
}

/// Parses one range. `None`: it is malformed. `Some(None)`: the file has no byte of it.
fn range(member: &[u8], size: u64) -> Option<Option<ByteRange>> {
    let dash = member.iter().position(|b| *b == b'-')?;
    let (first, last) = (&member[..dash], &member[dash + 1..]);
    if first.is_empty() {
        let len = number(last)?.min(size);
        let asked_for_nothing = number(last)? == 0;
        return Some((!asked_for_nothing).then_some(ByteRange { first: size - len, len }));
    }
    let first = number(first)?;
    let last = if last.is_empty() { u64::MAX } else { number(last)? };
    if last < first {
        return None;
    }
    Some((first < size).then(|| ByteRange { first, len: last.min(size - 1) - first + 1 }))
}

/// Parses a decimal number; a number too large for any file becomes the largest.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, digit| {
        let value = char::from(*digit).to_digit(10)?;
        Some(number.saturating_mul(10).saturating_add(value.into()))
    })
}

/// A `multipart/byteranges` body (§14.6).
#[derive(Debug)]
pub struct Multipart {
    /// The value of `Content-Type`.
    pub content_type: String,
    /// The body.
    pub body: Vec<Segment>,
    /// The length of the body in bytes.
    pub len: u64,
}

impl Multipart {
    /// The body for `ranges` of `entry`.
    #[must_use]
    pub fn new(entry: &Entry, ranges: &[ByteRange]) -> Self {
        // Random, so that the boundary cannot be put into a file in advance.
        let random = || RandomState::new().build_hasher().finish();
        let boundary = format!("{:016x}{:016x}", random(), random());
        let (mut body, mut len) = (Vec::with_capacity(2 * ranges.len() + 1), 0);
        let mut text = |body: &mut Vec<Segment>, text: String| {
            len += text.len() as u64;
            body.push(Segment::Bytes(Bytes::from(text)));
        };
        for range in ranges {
            let head = format!(
                "\r\n--{boundary}\r\nContent-Type: {}\r\nContent-Range: {}\r\n\r\n",
                String::from_utf8_lossy(&entry.content_type),
                range.content_range(entry.size)
            );
            text(&mut body, head);
            body.push(entry.segment(range.first, range.len));
        }
        text(&mut body, format!("\r\n--{boundary}--\r\n"));
        len += ranges.iter().map(|range| range.len).sum::<u64>();
        Self { content_type: format!("multipart/byteranges; boundary={boundary}"), body, len }
    }
}
