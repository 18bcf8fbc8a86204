//! Request heads for HTTP/1.1 servers that the server asks.

use bytes::{BufMut, BytesMut};
use http::{HeaderName, HeaderValue, Method};

use crate::InvalidField;
use crate::response::{is_token, is_value, push_field};

/// Writes a request head (RFC 9112 §3), always as HTTP/1.1. The caller decides on framing and
/// `Connection`.
#[derive(Debug)]
#[must_use = "a head ends with `finish`"]
pub struct RequestEncoder<'a> {
    out: &'a mut BytesMut,
}

impl<'a> RequestEncoder<'a> {
    /// Writes the request line. `target` is a request target that has been parsed.
    ///
    /// # Errors
    /// The target would break the line; nothing was written.
    pub fn new(
        out: &'a mut BytesMut,
        method: &Method,
        target: &[u8],
    ) -> Result<Self, InvalidField> {
        if target.is_empty() || target.iter().any(|&byte| byte <= b' ' || byte == 0x7f) {
            return Err(InvalidField);
        }
        for part in [method.as_str().as_bytes(), b" ", target, b" HTTP/1.1\r\n"] {
            out.put_slice(part);
        }
        Ok(Self { out })
    }

    /// Writes a field.
    ///
    /// # Errors
    /// The field would break the head and was left out.
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), InvalidField> {
        if !is_token(name) || !is_value(value) {
            return Err(InvalidField);
        }
        push_field(self.out, name, value);
        Ok(())
    }

    /// Writes a field of a parsed request, which cannot break the head.
    pub fn parsed(&mut self, name: &HeaderName, value: &HeaderValue) {
        push_field(self.out, name.as_str().as_bytes(), value.as_bytes());
    }

    /// Writes the empty line.
    pub fn finish(self) {
        self.out.put_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_split_a_head_is_left_out() {
        let mut out = BytesMut::new();
        for target in ["", "/a b", "/a\r\nX: y", "/\u{7f}"] {
            assert!(RequestEncoder::new(&mut out, &Method::GET, target.as_bytes()).is_err());
        }
        let mut head = RequestEncoder::new(&mut out, &Method::GET, b"/a?b").unwrap();
        head.field(b"host", b"a").unwrap();
        for (name, value) in [("a b", "x"), ("a", "x\r\nb: c"), ("", "x"), ("a", "\0")] {
            assert_eq!(head.field(name.as_bytes(), value.as_bytes()), Err(InvalidField));
        }
        head.finish();
        assert_eq!(out, "GET /a?b HTTP/1.1\r\nhost: a\r\n\r\n");
    }
}
