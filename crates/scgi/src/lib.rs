//! The web server's side of SCGI (<https://python.ca/scgi/protocol.txt>). No I/O. A response is a
//! CGI header block and a body up to the end of the connection, which serves one request.
//!
//! ```text
//!  "70:" "CONTENT_LENGTH" 00 "27" 00 "SCGI" 00 "1" 00 "REQUEST_METHOD" 00 ... "," body
//!   └─ bytes up to the comma ─┘
//! ```
#![forbid(unsafe_code)]

use std::collections::HashSet;

use bytes::{BufMut, Bytes, BytesMut};

/// A parameter that cannot be sent: its name is empty, or there is a NUL in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidParam;

impl std::fmt::Display for InvalidParam {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a parameter without a name or with a NUL")
    }
}

impl std::error::Error for InvalidParam {}

/// Collects the parameters of a request.
#[derive(Debug)]
pub struct RequestHead {
    params: BytesMut,
    /// The protocol forbids two parameters of one name.
    names: HashSet<Box<[u8]>>,
}

impl RequestHead {
    /// The head of a request with a body of `content_length` bytes. It begins with the two
    /// mandatory parameters.
    #[must_use]
    pub fn new(content_length: u64) -> Self {
        let mut head = Self { params: BytesMut::with_capacity(2048), names: HashSet::new() };
        head.push(b"CONTENT_LENGTH", content_length.to_string().as_bytes());
        head.push(b"SCGI", b"1");
        head
    }

    /// Adds a parameter. The first of a name counts; `CONTENT_LENGTH` and `SCGI` are there already.
    ///
    /// # Errors
    /// The parameter cannot be sent and was left out.
    pub fn param(&mut self, name: &[u8], value: &[u8]) -> Result<(), InvalidParam> {
        if name.is_empty() || name.contains(&0) || value.contains(&0) {
            return Err(InvalidParam);
        }
        if !self.names.contains(name) {
            self.push(name, value);
        }
        Ok(())
    }

    fn push(&mut self, name: &[u8], value: &[u8]) {
        self.names.insert(name.into());
        for part in [name, b"\0", value, b"\0"] {
            self.params.put_slice(part);
        }
    }

    /// The head as it is sent; the body follows.
    #[must_use]
    pub fn finish(self) -> Bytes {
        let len = self.params.len().to_string();
        [len.as_bytes(), b":", &self.params, b","].concat().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_a_netstring_that_begins_with_the_length() {
        let mut head = RequestHead::new(27);
        head.param(b"REQUEST_METHOD", b"POST").unwrap();
        head.param(b"REQUEST_URI", b"/deepthought").unwrap();
        // The example in the protocol's text.
        let expected =
            b"70:CONTENT_LENGTH\x0027\0SCGI\x001\0REQUEST_METHOD\0POST\0REQUEST_URI\0/deepthought\0,";
        assert_eq!(head.finish(), expected[..]);
    }

    #[test]
    fn names_occur_once_and_nothing_has_a_nul() {
        let mut head = RequestHead::new(0);
        let before = head.params.len();
        head.param(b"CONTENT_LENGTH", b"5").unwrap();
        head.param(b"SCGI", b"2").unwrap();
        for (name, value) in [(&b""[..], &b"x"[..]), (b"A\0B", b"x"), (b"A", b"x\0B\0y")] {
            assert_eq!(head.param(name, value), Err(InvalidParam));
        }
        assert_eq!(head.params.len(), before);
        head.param(b"A", b"").unwrap();
        head.param(b"A", b"again").unwrap();
        assert!(head.finish().ends_with(b"\0A\0\0,"));
    }
}
