//! Request bodies: by length or in chunks, with trailers.

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::{BodyFraming, RequestError, Trailers};

/// The most bytes of chunk extensions, and of zeros before chunk sizes, in one body. No client
/// needs them; an attacker could use them to make the server work.
const EXTENSIONS_LIMIT: usize = 16 * 1024;
/// The most bytes of all trailer fields of one body.
const TRAILERS_LIMIT: usize = 16 * 1024;
/// The end of each line, and of each chunk.
const LINE_END: &[u8] = b"\r\n";
/// The most digits of a chunk size after its leading zeros: 16 fill a u64.
const SIZE_DIGITS: usize = 16;

/// Consecutive chunks up to this size, in bytes, are returned as one piece: moving a small chunk
/// costs less than sharing the buffer with it.
const SMALL_CHUNK: usize = 1024;

/// The result of [`BodyDecoder::decode`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded {
    /// Bytes of the body, shared with the buffer; never empty. They are one chunk, a part of one,
    /// or several small chunks.
    Data(Bytes),
    /// More bytes are needed.
    NeedMore,
    /// The body is complete. The buffer starts with the bytes behind it.
    End,
}

/// Takes one request body out of a buffer (RFC 9112 §6, §7.1). All trailer fields are
/// validated; [`take_trailers`](BodyDecoder::take_trailers) has those that may be passed on.
///
/// ```text
///           size > 0             all passed on             CRLF
///  ┌▶ Size ───────────▶ Data ───────────────────▶ DataEnd ──────┐
///  │   │ size 0                                                 │
///  │   └──▶ Trailers ──▶ End ◀── Length (all passed on)         │
///  └────────────────────────────────────────────────────────────┘
/// ```
#[derive(Debug, Clone)]
pub struct BodyDecoder {
    state: State,
    /// The most bytes that the rest of the body may have.
    allowance: u64,
    extensions: usize,
    trailers: usize,
    /// The trailer fields so far.
    fields: Option<Box<HeaderMap>>,
    scanned: usize,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Length { left: u64 },
    Size,
    Data { left: u64 },
    DataEnd,
    Trailers,
    End,
}

impl BodyDecoder {
    /// A decoder for a body of at most `max` bytes.
    ///
    /// # Errors
    /// The announced length is above `max`.
    pub fn new(framing: BodyFraming, max: u64) -> Result<Self, RequestError> {
        let state = match framing {
            BodyFraming::None => State::End,
            BodyFraming::Length(left) if left > max => return Err(RequestError::BodyTooLarge),
            BodyFraming::Length(left) => State::Length { left },
            BodyFraming::Chunked => State::Size,
        };
        let (extensions, trailers) = (EXTENSIONS_LIMIT, TRAILERS_LIMIT);
        Ok(Self { state, allowance: max, extensions, trailers, fields: None, scanned: 0 })
    }

    /// Takes the next piece out of `buf`. Between two calls bytes may only be added to `buf`.
    ///
    /// # Errors
    /// The chunked coding is broken or a limit was passed; the stream cannot be resumed.
    pub fn decode(&mut self, buf: &mut BytesMut) -> Result<Decoded, RequestError> {
        loop {
            self.state = match self.state {
                State::End | State::Length { left: 0 } => return Ok(Decoded::End),
                State::Data { left: 0 } => State::DataEnd,
                State::Length { left } | State::Data { left } => {
                    let take = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
                    if take == 0 {
                        return Ok(Decoded::NeedMore);
                    }
                    let left = left - take as u64;
                    self.state = match self.state {
                        State::Length { .. } => State::Length { left },
                        _ => State::Data { left },
                    };
                    return Ok(Decoded::Data(buf.split_to(take).freeze()));
                }
                State::DataEnd => match buf[..] {
                    [b'\r', b'\n', ..] => {
                        buf.advance(2);
                        State::Size
                    }
                    [] | [b'\r'] => return Ok(Decoded::NeedMore),
                    _ => return Err(RequestError::Malformed("a chunk longer than its size")),
                },
                State::Size => {
                    if let Some(data) = self.take_small_chunks(buf) {
                        return Ok(Decoded::Data(data));
                    }
                    let Some(line) = self.line(buf, SIZE_DIGITS + self.extensions)? else {
                        return Ok(Decoded::NeedMore);
                    };
                    match self.chunk_size(&line)? {
                        0 => State::Trailers,
                        left => State::Data { left },
                    }
                }
                State::Trailers => {
                    let Some(line) = self.line(buf, self.trailers)? else {
                        return Ok(Decoded::NeedMore);
                    };
                    if line.is_empty() {
                        State::End
                    } else {
                        self.trailers -= line.len();
                        let (name, value) = trailer(&line)?;
                        self.fields.get_or_insert_default().append(name, value);
                        State::Trailers
                    }
                }
            };
        }
    }

    /// The trailer fields of a response that may be passed on, once the body is complete.
    pub fn take_trailers(&mut self) -> Option<Trailers> {
        Trailers::of(*self.fields.take()?)
    }

    /// The same for a request.
    pub fn take_request_trailers(&mut self) -> Option<Trailers> {
        Trailers::of_request(*self.fields.take()?)
    }

    /// Takes the complete small chunks at the start of `buf`. `None` if there is none: the state
    /// machine reads, and validates, the next chunk.
    fn take_small_chunks(&mut self, buf: &mut BytesMut) -> Option<Bytes> {
        let (mut read, mut written) = (0, 0);
        while let Some((start, size)) = small_chunk(&buf[read..])
            && let Some(left) = self.allowance.checked_sub(size as u64)
        {
            self.allowance = left;
            let start = read + start;
            buf.copy_within(start..start + size, written);
            written += size;
            read = start + size + LINE_END.len();
        }
        if written == 0 {
            return None;
        }
        self.scanned = 0;
        let data = buf.split_to(written).freeze();
        buf.advance(read - written);
        Some(data)
    }

    /// Takes a line of at most `limit` bytes, without its ending.
    fn line(&mut self, buf: &mut BytesMut, limit: usize) -> Result<Option<Bytes>, RequestError> {
        const TOO_LONG: RequestError =
            RequestError::Malformed("chunk extensions or trailers too long");
        let Some(found) = memchr::memchr(b'\n', &buf[self.scanned..]) else {
            self.scanned = buf.len();
            return if buf.len() > limit + 1 { Err(TOO_LONG) } else { Ok(None) };
        };
        let mut line = buf.split_to(self.scanned + found + 1).freeze();
        self.scanned = 0;
        if !line.ends_with(b"\r\n") {
            return Err(RequestError::Malformed("a line feed without a carriage return"));
        }
        line.truncate(line.len() - 2);
        if line.len() > limit { Err(TOO_LONG) } else { Ok(Some(line)) }
    }

    /// `chunk-size [ chunk-ext ]`. Blanks and tabs may stand before an extension (§7.1.1), but not
    /// at the end of the line, where readers treat them differently.
    fn chunk_size(&mut self, line: &[u8]) -> Result<u64, RequestError> {
        const BAD_SIZE: RequestError = RequestError::Malformed("a chunk size is not valid");
        let end = line.iter().position(|b| b" \t;".contains(b)).unwrap_or(line.len());
        let (digits, extension) = line.split_at(end);
        let is_extension = extension.is_empty() || extension.trim_ascii_start().starts_with(b";");
        let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
        if digits.is_empty() || digits.len() - zeros > SIZE_DIGITS || !is_extension {
            return Err(BAD_SIZE);
        }
        if !is_text(extension) {
            return Err(BAD_SIZE);
        }
        let surplus = extension.len() + digits.len().saturating_sub(SIZE_DIGITS);
        self.extensions = self.extensions.checked_sub(surplus).ok_or(BAD_SIZE)?;
        let size = digits[zeros..].iter().try_fold(0u64, |size, digit| {
            char::from(*digit).to_digit(16).map(|value| size << 4 | u64::from(value))
        });
        let size = size.ok_or(BAD_SIZE)?;
        self.allowance = self.allowance.checked_sub(size).ok_or(RequestError::BodyTooLarge)?;
        Ok(size)
    }
}

/// The offset and the length of the data of a complete small chunk at the start of `bytes`. `None`
/// for everything else, valid or not.
fn small_chunk(bytes: &[u8]) -> Option<(usize, usize)> {
    /// Digits of [`SMALL_CHUNK`].
    const DIGITS: usize = 3;
    let mut size = 0;
    for at in 0..=DIGITS {
        match bytes.get(at)? {
            b'\r' if at > 0 => {
                let start = at + LINE_END.len();
                let is_whole = bytes.get(at + 1) == Some(&b'\n')
                    && (1..=SMALL_CHUNK).contains(&size)
                    && bytes.get(start + size..start + size + LINE_END.len()) == Some(LINE_END);
                return is_whole.then_some((start, size));
            }
            digit => size = size << 4 | usize::try_from(char::from(*digit).to_digit(16)?).ok()?,
        }
    }
    None
}

/// A trailer field. Every other line could be the beginning of a smuggled request.
fn trailer(line: &[u8]) -> Result<(HeaderName, HeaderValue), RequestError> {
    let parse = || {
        let (name, value) = line.split_at(memchr::memchr(b':', line)?);
        let value = HeaderValue::from_bytes(value[1..].trim_ascii()).ok()?;
        Some((HeaderName::from_bytes(name).ok()?, value))
    };
    parse().ok_or(RequestError::Malformed("a trailer field is not valid"))
}

fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| !b.is_ascii_control() || *b == b'\t')
}
