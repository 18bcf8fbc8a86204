//! Response framing, without I/O: bytes come in, body pieces go out (RFC 9112 §6 and §7).
//!
//! The load generator may drop body bytes in the kernel instead of reading them.
//! [`Decoder::skippable`] tells how many of the next bytes are certainly body, so chunk headers are
//! always parsed and the length is always known.

use std::fmt;

/// Maximum length of a response head in bytes; the measured servers send about 300 bytes.
const MAX_HEAD: usize = 16 * 1024;
/// Maximum length of a chunk-size or trailer line in bytes.
const MAX_LINE: usize = 1024;
const MAX_FIELDS: usize = 64;

/// The reason why a byte stream is not the expected response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FramingError {
    /// The head is not HTTP/1.x.
    Head(String),
    /// A chunk size, chunk end or trailer is malformed.
    Chunk(&'static str),
    /// More than one length, or an impossible one.
    Length(String),
    /// The peer sent bytes after the response ended.
    Surplus(usize),
    /// The connection ended inside the response.
    Truncated,
}

impl fmt::Display for FramingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head(why) => write!(f, "bad response head: {why}"),
            Self::Chunk(why) => write!(f, "bad chunked coding: {why}"),
            Self::Length(why) => write!(f, "bad length: {why}"),
            Self::Surplus(n) => write!(f, "{n} bytes after the end of the response"),
            Self::Truncated => write!(f, "the connection closed inside the response"),
        }
    }
}

impl std::error::Error for FramingError {}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Head,
    Sized { left: u64 },
    ChunkSize,
    ChunkData { left: u64 },
    ChunkEnd,
    Trailer,
    UntilClose,
    Done,
}

/// Decodes one response.
#[derive(Debug)]
pub(crate) struct Decoder {
    state: State,
    /// Bytes of an unfinished head or line.
    pending: Vec<u8>,
    status: u16,
    keep_alive: bool,
    body_len: u64,
}

impl Decoder {
    pub(crate) fn new() -> Self {
        Self { state: State::Head, pending: Vec::new(), status: 0, keep_alive: true, body_len: 0 }
    }

    /// Prepares for the next response; keeps the buffer.
    pub(crate) fn reset(&mut self) {
        self.state = State::Head;
        self.pending.clear();
        self.body_len = 0;
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// True if the head is incomplete.
    pub(crate) fn in_head(&self) -> bool {
        self.state == State::Head
    }

    /// The status code; 0 before the head is complete.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// True if the connection may carry another request after this response.
    pub(crate) fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// Number of body bytes seen or skipped so far.
    pub(crate) fn body_len(&self) -> u64 {
        self.body_len
    }

    /// Number of the next bytes that are certainly body.
    pub(crate) fn skippable(&self) -> u64 {
        match self.state {
            State::Sized { left } | State::ChunkData { left } => left,
            State::UntilClose => u64::MAX,
            _ => 0,
        }
    }

    /// Records that `n` body bytes were dropped unread; `n` must not exceed
    /// [`skippable`](Self::skippable).
    pub(crate) fn skip(&mut self, n: u64) {
        self.body_len += n;
        self.advance_body(n);
    }

    /// Handles the end of the connection: it ends a body without a length, and is an error
    /// otherwise.
    pub(crate) fn end_of_stream(&mut self) -> Result<(), FramingError> {
        match self.state {
            State::UntilClose | State::Done => {
                self.state = State::Done;
                Ok(())
            }
            _ => Err(FramingError::Truncated),
        }
    }

    /// Decodes all of `input`, handing body pieces to `on_body`.
    pub(crate) fn feed(
        &mut self,
        mut input: &[u8],
        mut on_body: impl FnMut(&[u8]),
    ) -> Result<(), FramingError> {
        while !input.is_empty() {
            match self.state {
                State::Head => input = self.head(input)?,
                State::Sized { .. } | State::ChunkData { .. } | State::UntilClose => {
                    let take =
                        usize::try_from(self.skippable()).unwrap_or(usize::MAX).min(input.len());
                    let (body, rest) = input.split_at(take);
                    on_body(body);
                    self.skip(take as u64);
                    input = rest;
                }
                State::ChunkSize | State::ChunkEnd | State::Trailer => input = self.line(input)?,
                State::Done => return Err(FramingError::Surplus(input.len())),
            }
        }
        Ok(())
    }

    fn advance_body(&mut self, n: u64) {
        match &mut self.state {
            State::Sized { left } => {
                *left -= n;
                if *left == 0 {
                    self.state = State::Done;
                }
            }
            State::ChunkData { left } => {
                *left -= n;
                if *left == 0 {
                    self.state = State::ChunkEnd;
                }
            }
            _ => {}
        }
    }

    /// Reads bytes of the head; returns the rest.
    fn head<'a>(&mut self, input: &'a [u8]) -> Result<&'a [u8], FramingError> {
        if self.pending.is_empty()
            && let Some(end) = memchr::memmem::find(input, b"\r\n\r\n")
        {
            let (head, rest) = input.split_at(end + 4);
            self.parse_head(head)?;
            return Ok(rest);
        }
        let before = self.pending.len();
        self.pending.extend_from_slice(input);
        let from = before.saturating_sub(3);
        match memchr::memmem::find(&self.pending[from..], b"\r\n\r\n") {
            Some(at) => {
                let head_len = from + at + 4;
                let head = std::mem::take(&mut self.pending);
                self.parse_head(&head[..head_len])?;
                Ok(&input[head_len - before..])
            }
            None if self.pending.len() > MAX_HEAD => Err(FramingError::Head("too long".into())),
            None => Ok(&[]),
        }
    }

    fn parse_head(&mut self, head: &[u8]) -> Result<(), FramingError> {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        response.parse(head).map_err(|error| FramingError::Head(error.to_string()))?;
        self.status = response.code.unwrap_or(0);
        self.keep_alive = response.version == Some(1);
        let mut length: Option<u64> = None;
        let mut chunked = false;
        for field in response.headers.iter() {
            if field.name.eq_ignore_ascii_case("content-length") {
                let value = std::str::from_utf8(field.value)
                    .ok()
                    .and_then(|v| v.parse().ok())
                    .ok_or_else(|| FramingError::Length("not a number".into()))?;
                if length.replace(value).is_some() {
                    return Err(FramingError::Length("two Content-Length fields".into()));
                }
            } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
                if !field.value.eq_ignore_ascii_case(b"chunked") || chunked {
                    return Err(FramingError::Length("unknown Transfer-Encoding".into()));
                }
                chunked = true;
            } else if field.name.eq_ignore_ascii_case("connection") {
                self.keep_alive = if field.value.eq_ignore_ascii_case(b"close") {
                    false
                } else {
                    self.keep_alive || field.value.eq_ignore_ascii_case(b"keep-alive")
                };
            }
        }
        self.state = match (chunked, length) {
            // RFC 9112 §6.3: neither has a body, whatever length is given.
            _ if matches!(self.status, 204 | 304) => State::Done,
            (true, Some(_)) => {
                return Err(FramingError::Length("both a length and chunked".into()));
            }
            (true, None) => State::ChunkSize,
            (false, Some(0)) => State::Done,
            (false, Some(left)) => State::Sized { left },
            (false, None) => {
                self.keep_alive = false;
                State::UntilClose
            }
        };
        Ok(())
    }

    /// Reads bytes up to a line end and handles the line; returns the rest.
    fn line<'a>(&mut self, input: &'a [u8]) -> Result<&'a [u8], FramingError> {
        let end = memchr::memchr(b'\n', input);
        let (part, rest) = input.split_at(end.map_or(input.len(), |at| at + 1));
        self.pending.extend_from_slice(part);
        if self.pending.len() > MAX_LINE {
            return Err(FramingError::Chunk("line too long"));
        }
        if end.is_some() {
            let line =
                self.pending.strip_suffix(b"\r\n").ok_or(FramingError::Chunk("line without CR"))?;
            self.state = match self.state {
                State::ChunkSize => match chunk_size(line)? {
                    0 => State::Trailer,
                    left => State::ChunkData { left },
                },
                State::ChunkEnd if line.is_empty() => State::ChunkSize,
                State::ChunkEnd => return Err(FramingError::Chunk("no CRLF after the data")),
                _ if line.is_empty() => State::Done,
                _ => State::Trailer,
            };
            self.pending.clear();
        }
        Ok(rest)
    }
}

fn chunk_size(line: &[u8]) -> Result<u64, FramingError> {
    let digits = line.split(|&b| b == b';').next().unwrap_or(line);
    let digits = digits.trim_ascii_end();
    if digits.is_empty() || digits.len() > 15 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(FramingError::Chunk("bad size"));
    }
    std::str::from_utf8(digits)
        .ok()
        .and_then(|text| u64::from_str_radix(text, 16).ok())
        .ok_or(FramingError::Chunk("bad size"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n\
        5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\nTrailer: x\r\n\r\n";

    /// Decodes `wire` in pieces of `step` bytes.
    fn decode(wire: &[u8], step: usize) -> Result<(Decoder, Vec<u8>), FramingError> {
        let mut decoder = Decoder::new();
        let mut body = Vec::new();
        for piece in wire.chunks(step) {
            decoder.feed(piece, |bytes| body.extend_from_slice(bytes))?;
        }
        Ok((decoder, body))
    }

    #[test]
    fn any_split_gives_the_same_body() {
        for (wire, expected) in [(SIZED, &b"hello"[..]), (CHUNKED, b"hello world")] {
            for step in 1..=wire.len() {
                let (decoder, body) = decode(wire, step).expect("valid response");
                assert!(decoder.is_done(), "step {step}");
                assert_eq!(body, expected, "step {step}");
                assert_eq!(decoder.body_len(), expected.len() as u64);
                assert_eq!(decoder.status(), 200);
                assert!(decoder.keep_alive());
            }
        }
    }

    #[test]
    fn every_prefix_is_truncated() {
        for wire in [SIZED, CHUNKED] {
            for end in 0..wire.len() {
                let (mut decoder, _) = decode(&wire[..end], 7).expect("valid so far");
                assert!(!decoder.is_done());
                assert_eq!(decoder.end_of_stream(), Err(FramingError::Truncated));
            }
        }
    }

    #[test]
    fn skipping_counts_and_stops_at_the_chunk_end() {
        let mut decoder = Decoder::new();
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\nab";
        decoder.feed(head, |_| {}).expect("head");
        assert_eq!(decoder.skippable(), 0x1000 - 2);
        decoder.skip(decoder.skippable());
        assert_eq!(decoder.skippable(), 0);
        assert!(!decoder.is_done());
        decoder.feed(b"\r\n0\r\n\r\n", |_| {}).expect("end");
        assert!(decoder.is_done());
        assert_eq!(decoder.body_len(), 0x1000);
    }

    #[test]
    fn connection_persistence() {
        let keep = |head: &[u8]| decode(head, 9).expect("valid").0.keep_alive();
        assert!(keep(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
        assert!(!keep(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"));
        assert!(!keep(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"));
        assert!(!keep(b"HTTP/1.1 200 OK\r\n\r\nuntil close"));
    }

    #[test]
    fn a_body_without_length_ends_with_the_connection() {
        let (mut decoder, body) = decode(b"HTTP/1.1 200 OK\r\n\r\nabc", 4).expect("valid");
        assert!(!decoder.is_done());
        decoder.end_of_stream().expect("a proper end");
        assert!(decoder.is_done());
        assert_eq!(body, b"abc");
    }

    #[test]
    fn bad_streams_are_refused() {
        for wire in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\nab\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
            b"FTP 200\r\n\r\n",
        ] {
            assert!(decode(wire, 1000).is_err(), "{}", String::from_utf8_lossy(wire));
        }
    }
}
