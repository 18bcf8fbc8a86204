//! Response heads and chunks as bytes; the check of fields.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use http::StatusCode;

/// The bytes after the data of each chunk.
pub(crate) const CHUNK_END: &[u8] = b"\r\n";
/// The end of a chunked body without trailers.
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// A response field that cannot be sent: its name is not a token, or its value holds CR, LF or NUL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidField;

impl std::fmt::Display for InvalidField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a response field with an invalid name or with CR, LF or NUL in its value")
    }
}

impl std::error::Error for InvalidField {}

/// A field that was checked, as the line that a head has: written once for all responses that have
/// it, or part of an application's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldLine {
    /// `Name: value\r\n`.
    line: Bytes,
    name_len: usize,
}

impl FieldLine {
    /// Checks a field, and writes its line.
    ///
    /// # Errors
    /// The field would break a head.
    pub fn new(name: &[u8], value: &[u8]) -> Result<Self, InvalidField> {
        if !is_token(name) || !is_value(value) {
            return Err(InvalidField);
        }
        let line = [name, b": ", value, b"\r\n"].concat();
        Ok(Self { line: line.into(), name_len: name.len() })
    }

    /// A field in a header block that a parser has validated, without a copy. `None` if the field is
    /// written in another way than here: with other spaces, or with a line feed alone.
    pub(crate) fn in_block(block: &Bytes, name: &[u8], value: &[u8]) -> Option<Self> {
        let start = name.as_ptr().addr().checked_sub(block.as_ptr().addr())?;
        let end = start.checked_add(name.len() + b": ".len() + value.len() + b"\r\n".len())?;
        let line = block.get(start..end)?;
        let (_, rest) = line.split_at(name.len());
        let is_usual = rest.strip_prefix(b": ")?.strip_suffix(b"\r\n")? == value;
        is_usual.then(|| Self { line: block.slice(start..end), name_len: name.len() })
    }

    /// The same field, with its line where `keep` has put it.
    #[must_use]
    pub fn kept_by(self, keep: impl FnOnce(&[u8]) -> &'static [u8]) -> Self {
        Self { line: Bytes::from_static(keep(&self.line)), ..self }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.line[..self.name_len]
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        &self.line[self.value_range()]
    }

    /// Name and value, without a copy.
    #[must_use]
    pub fn into_parts(self) -> (Bytes, Bytes) {
        (self.line.slice(..self.name_len), self.line.slice(self.value_range()))
    }

    fn value_range(&self) -> Range<usize> {
        self.name_len + 2..self.line.len() - 2
    }
}

/// Writes a response head (RFC 9112 §4, §5). The version is always HTTP/1.1, the server's highest
/// one, for every version of the client (RFC 9110 §2.5). The caller decides on framing and
/// `Connection`.
#[derive(Debug)]
#[must_use = "a head ends with `finish`"]
pub struct HeadEncoder<'a> {
    out: &'a mut BytesMut,
}

impl<'a> HeadEncoder<'a> {
    /// Writes the status line. `reason` is used if it is valid, otherwise the status code's own
    /// phrase.
    pub fn new(out: &'a mut BytesMut, status: StatusCode, reason: Option<&[u8]>) -> Self {
        // Most responses.
        if status == StatusCode::OK && reason.is_none() {
            out.put_slice(b"HTTP/1.1 200 OK\r\n");
            return Self { out };
        }
        let canonical = status.canonical_reason().unwrap_or_default().as_bytes();
        out.put_slice(b"HTTP/1.1 ");
        out.put_slice(status.as_str().as_bytes());
        out.put_u8(b' ');
        out.put_slice(reason.filter(|reason| is_value(reason)).unwrap_or(canonical));
        out.put_slice(b"\r\n");
        Self { out }
    }

    /// Writes a field.
    ///
    /// # Errors
    /// The field would break the head and was left out. Worth a line in the log: the application
    /// passed on input without validation.
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), InvalidField> {
        if !is_token(name) || !is_value(value) {
            return Err(InvalidField);
        }
        push_field(self.out, name, value);
        Ok(())
    }

    /// Writes a field that has been checked.
    pub fn line(&mut self, field: &FieldLine) {
        self.out.extend_from_slice(&field.line);
    }

    /// Writes a field that is known to be valid.
    pub(crate) fn known(&mut self, name: &'static str, value: &'static str) {
        for part in [name, ": ", value, "\r\n"] {
            self.out.put_slice(part.as_bytes());
        }
    }

    /// Writes a field whose name is known to be valid and whose value is a number of bytes.
    pub fn number(&mut self, name: &'static str, mut value: u64) {
        // The longest u64 has 20 digits.
        let mut digits = *b"00000000000000000000\r\n";
        let mut at = digits.len() - b"\r\n".len();
        loop {
            at -= 1;
            digits[at] = b"0123456789"[(value % 10) as usize];
            value /= 10;
            if value == 0 {
                break;
            }
        }
        self.out.put_slice(name.as_bytes());
        self.out.put_slice(b": ");
        self.out.put_slice(&digits[at..]);
    }

    /// Writes the empty line.
    pub fn finish(self) {
        self.out.put_slice(b"\r\n");
    }
}

/// Writes a field that has been checked.
pub(crate) fn push_field(out: &mut BytesMut, name: &[u8], value: &[u8]) {
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Writes the header of a chunk of `len` bytes. `len` must not be 0, which would end the body.
pub(crate) fn encode_chunk_header(out: &mut BytesMut, len: u64) {
    debug_assert_ne!(len, 0, "an empty chunk ends the body");
    let digits = (64 - len.leading_zeros()).div_ceil(4);
    for digit in (0..digits).rev() {
        out.put_u8(b"0123456789abcdef"[(len >> (digit * 4) & 15) as usize]);
    }
    out.put_slice(b"\r\n");
}

/// True if `name` is a `token` (RFC 9110 §5.6.2).
pub(crate) fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| IS_TOKEN[usize::from(*byte)])
}

/// True for each byte that a `token` may have.
const IS_TOKEN: [bool; 256] =
    table(b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");

/// True for each byte that is among `all`.
pub(crate) const fn table(all: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut at = 0;
    while at < all.len() {
        table[all[at] as usize] = true;
        at += 1;
    }
    table
}

pub(crate) fn is_value(value: &[u8]) -> bool {
    memchr::memchr3(b'\r', b'\n', 0, value).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_written_as_http_1_1() {
        let mut out = BytesMut::new();
        let mut head = HeadEncoder::new(&mut out, StatusCode::NOT_FOUND, None);
        head.field(b"X-A", b"1").unwrap();
        head.number("Content-Length", 0);
        head.number("Age", u64::MAX);
        head.finish();
        assert_eq!(
            out,
            "HTTP/1.1 404 Not Found\r\nX-A: 1\r\nContent-Length: 0\r\nAge: 18446744073709551615\r\n\r\n"
        );
    }

    #[test]
    fn a_reason_is_kept_unless_it_breaks_the_line() {
        for (reason, line) in
            [("Odd", "HTTP/1.1 200 Odd\r\n"), ("a\r\nX: y", "HTTP/1.1 200 OK\r\n")]
        {
            let mut out = BytesMut::new();
            let _ = HeadEncoder::new(&mut out, StatusCode::OK, Some(reason.as_bytes()));
            assert_eq!(out, line);
        }
    }

    #[test]
    fn a_field_that_would_split_the_head_is_left_out() {
        for (name, value) in
            [("", "x"), ("a b", "x"), ("a:", "x"), ("a\r\n", "x"), ("a", "x\r\nb: c"), ("a", "\0")]
        {
            let mut out = BytesMut::new();
            let mut head = HeadEncoder::new(&mut out, StatusCode::OK, None);
            assert_eq!(head.field(name.as_bytes(), value.as_bytes()), Err(InvalidField));
            head.finish();
            assert_eq!(out, "HTTP/1.1 200 OK\r\n\r\n");
        }
    }

    #[test]
    fn chunk_sizes_are_hexadecimal_without_leading_zeros() {
        for len in [1, 15, 16, 255, 256, 65_535, 65_536, u64::MAX] {
            let mut out = BytesMut::new();
            encode_chunk_header(&mut out, len);
            assert_eq!(out, format!("{len:x}\r\n"));
        }
    }
}
