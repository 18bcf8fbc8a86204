//! Request heads: their end in a buffer, their limits, and the fields that are refused or dropped.

use bytes::{Buf, Bytes, BytesMut};
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};

use crate::framing::{expect_continue, keep_alive};
use crate::request_line::RequestLine;
use crate::response::table;
use crate::target::is_host;
use crate::{BodyFraming, RequestError, Target};

/// The most header fields of a request. Browsers send about 20; proxies add a few.
pub const MAX_FIELDS: usize = 128;

/// Fields of most requests.
const USUAL_FIELDS: usize = 24;

/// Empty lines accepted before a request line (RFC 9112 §2.2): old clients send one after a body.
const MAX_EMPTY_LINES: u8 = 4;

/// Size limits of a request head.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of the request line, with its line ending. A longer line is refused with 414.
    pub request_line: usize,
    /// Bytes of the whole head, with the request line and the empty line at the end. A longer head
    /// is refused with 431.
    pub head: usize,
}

impl Default for Limits {
    /// nginx' defaults: 8 KiB for a line, 32 KiB for the whole head.
    fn default() -> Self {
        Self { request_line: 8 * 1024, head: 32 * 1024 }
    }
}

/// A request without its body. Values share the memory they were received in.
#[derive(Debug, Clone)]
pub struct Head {
    /// The method; any token, case-sensitive. Never `CONNECT`.
    pub method: Method,
    /// The request target.
    pub target: Target,
    /// `HTTP_10`, or `HTTP_11` for HTTP/1.1 and every later HTTP/1.x.
    pub version: Version,
    /// The fields whose names consist of letters, digits and `-`. `Host` is the authority of an
    /// absolute-form target where there is one (RFC 9112 §3.2.2). `Authorization` and
    /// `Content-Type` occur at most once.
    pub headers: HeaderMap,
    /// The framing of the body.
    pub framing: BodyFraming,
    /// True if the client allows another request on this connection.
    pub keep_alive: bool,
    /// True if the client waits for "100 Continue"; false if there is no body to wait for.
    pub expect_continue: bool,
    /// `host[:port]` as sent, valid and not empty; `None` only in HTTP/1.0.
    pub host: Option<Bytes>,
}

/// Takes request heads out of a buffer. One per connection; ready for the next head after each
/// success.
#[derive(Debug, Clone)]
pub struct HeadDecoder {
    limits: Limits,
    scan: Scan,
    is_head: bool,
    refused: Option<Bytes>,
}

/// The progress of the search for the end of the head, so that each byte is searched once.
#[derive(Debug, Clone, Copy, Default)]
struct Scan {
    empty_lines: u8,
    scanned: usize,
    line_start: usize,
    /// Complete lines.
    lines: usize,
    /// Bytes of the request line, with its line ending.
    request_line: usize,
}

impl HeadDecoder {
    /// A decoder for a new connection.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, scan: Scan::default(), is_head: false, refused: None }
    }

    /// Takes a head out of `buf` once it is complete; `None` if more bytes are needed. Between two
    /// calls bytes may only be appended to `buf`. The bytes after the head stay in it.
    ///
    /// # Errors
    /// The request is refused; the stream cannot be resumed.
    pub fn next(&mut self, buf: &mut BytesMut) -> Result<Option<Head>, RequestError> {
        let found = self.find_end(buf);
        self.is_head = buf.starts_with(b"HEAD ");
        let Some(len) = found? else { return Ok(None) };
        let Scan { lines, request_line, .. } = std::mem::take(&mut self.scan);
        let head = buf.split_to(len).freeze();
        parse(&head, request_line, lines)
            .inspect_err(|_| self.refused = Some(head.clone()))
            .map(Some)
    }

    /// The refused request head, for the log; `None` if it was refused before its end arrived. Its
    /// bytes are then still in the buffer.
    #[must_use]
    pub fn refused(&self) -> Option<&Bytes> {
        self.refused.as_ref()
    }

    /// True if the last request that [`next`](Self::next) saw has the method HEAD, even if it is
    /// refused or incomplete: no response to it has a body (RFC 9110 §9.3.2).
    #[must_use]
    pub fn is_head(&self) -> bool {
        self.is_head
    }

    /// The length of the head at the start of `buf`, once it is complete.
    fn find_end(&mut self, buf: &mut BytesMut) -> Result<Option<usize>, RequestError> {
        let Scan { empty_lines, scanned, line_start, lines, request_line } = &mut self.scan;
        if *scanned == 0 {
            while buf.starts_with(b"\r\n") {
                *empty_lines += 1;
                if *empty_lines > MAX_EMPTY_LINES {
                    return Err(RequestError::Malformed("empty lines instead of a request"));
                }
                buf.advance(2);
            }
            // A TLS client never sends a line: refuse it at once.
            if buf.first().is_some_and(|b| b.is_ascii_control() && *b != b'\r') {
                return Err(RequestError::Malformed("this is not HTTP"));
            }
            if buf.len() < 2 {
                return Ok(None);
            }
        }
        for found in memchr::memchr_iter(b'\n', &buf[*scanned..]) {
            let end = *scanned + found + 1;
            let line = &buf[*line_start..end];
            // httparse accepts a bare line feed as a line ending.
            if !line.ends_with(b"\r\n") {
                return Err(RequestError::Malformed("a line feed without a carriage return"));
            }
            if *line_start == 0 {
                if line.len() > self.limits.request_line {
                    return Err(RequestError::TargetTooLong);
                }
                *request_line = end;
            }
            *lines += 1;
            if end > self.limits.head {
                return Err(RequestError::HeadTooLarge);
            }
            if line.len() == 2 {
                return Ok(Some(end));
            }
            *line_start = end;
        }
        *scanned = buf.len();
        if *line_start == 0 && buf.len() >= self.limits.request_line {
            return Err(RequestError::TargetTooLong);
        }
        if buf.len() >= self.limits.head {
            return Err(RequestError::HeadTooLarge);
        }
        Ok(None)
    }
}

/// Fields about the body and the connection.
static OF_FRAMING: [HeaderName; 4] = [CONNECTION, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING];

/// Parses a complete head of this number of lines, each of which ends with CR LF and the last of
/// which is empty. The first one has `line_end` bytes.
fn parse(raw: &Bytes, line_end: usize, lines: usize) -> Result<Head, RequestError> {
    let line = RequestLine::parse(&raw.slice(..line_end.saturating_sub(b"\r\n".len())))?;
    let RequestLine { method, target, version } = line;
    if method == Method::CONNECT {
        return Err(RequestError::Tunnel);
    }
    let (target, authority) = Target::parse(target, &method)?;
    // Many requests have none of these fields, for which one would search five times.
    let mut have_framing = false;
    let mut headers = header_map(&raw.slice(line_end..), lines, |name| {
        have_framing |= OF_FRAMING.contains(name);
    })?;
    let host = host(raw, &mut headers, version, authority)?;
    let (mut framing, mut expects_continue) = (BodyFraming::None, false);
    let mut is_kept = version == Version::HTTP_11;
    if have_framing {
        framing = BodyFraming::of(&headers, version)?;
        expects_continue = expect_continue(&headers, version, framing)?;
        is_kept = keep_alive(&headers, version);
    }
    Ok(Head {
        keep_alive: is_kept,
        expect_continue: expects_continue,
        method,
        target,
        version,
        headers,
        framing,
        host,
    })
}

/// True if a field with this name is passed on. Names with other characters than letters, digits
/// and `-` are valid, but CGI maps several of them to the same variable: `X.Forwarded.For` would
/// overwrite `X-Forwarded-For`. nginx drops them, too.
pub(crate) fn is_passed_on(name: &[u8]) -> bool {
    name.iter().all(|byte| IS_PASSED_ON[usize::from(*byte)])
}

const IS_PASSED_ON: [bool; 256] =
    table(b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");

/// True for a field that may occur only once: of two values, an application and a filter in front
/// of it could each use a different one.
pub(crate) fn is_unique(name: &HeaderName) -> bool {
    *name == AUTHORIZATION || *name == CONTENT_TYPE
}

/// The fields that are passed on, of a head with this number of lines. `note` is told each name.
fn header_map(
    raw: &Bytes,
    lines: usize,
    mut note: impl FnMut(&HeaderName),
) -> Result<HeaderMap, RequestError> {
    // To clear room for all fields that a request may have takes longer than to parse a usual one.
    let (mut few, mut many);
    let fields = if lines <= USUAL_FIELDS {
        few = [httparse::EMPTY_HEADER; USUAL_FIELDS];
        &mut few[..]
    } else {
        many = [httparse::EMPTY_HEADER; MAX_FIELDS];
        &mut many[..]
    };
    let fields = match httparse::parse_headers(raw, fields) {
        Ok(httparse::Status::Complete((len, fields))) if len == raw.len() => fields,
        Ok(_) => return Err(RequestError::Malformed("the request head is not valid")),
        Err(error) => return Err(refusal(error)),
    };
    let mut headers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        if !is_passed_on(field.name.as_bytes()) {
            continue;
        }
        let name = HeaderName::from_bytes(field.name.as_bytes())
            .map_err(|_| RequestError::Malformed("a field name is not valid"))?;
        let value = HeaderValue::from_maybe_shared(raw.slice_ref(field.value))
            .map_err(|_| RequestError::Malformed("a field value is not valid"))?;
        note(&name);
        if headers.append(&name, value) && is_unique(&name) {
            return Err(RequestError::Malformed("more than one Authorization or Content-Type"));
        }
    }
    Ok(headers)
}

/// Validates `Host` (RFC 9112 §3.2). The authority of an absolute-form target replaces it (§3.2.2).
fn host(
    raw: &Bytes,
    headers: &mut HeaderMap,
    version: Version,
    authority: Option<Bytes>,
) -> Result<Option<Bytes>, RequestError> {
    const BAD_HOST: RequestError = RequestError::Malformed("the Host field is not valid");
    let mut values = headers.get_all(HOST).iter();
    let sent = match (values.next(), values.next()) {
        (None, _) if version == Version::HTTP_10 => None,
        (None, _) => return Err(RequestError::Malformed("no Host field")),
        (Some(_), Some(_)) => return Err(RequestError::Malformed("more than one Host field")),
        (Some(value), None) if is_host(value.as_bytes()) => Some(value),
        _ => return Err(BAD_HOST),
    };
    let Some(authority) = authority else {
        return Ok(sent.map(|value| raw.slice_ref(value.as_bytes())));
    };
    let value = HeaderValue::from_maybe_shared(authority.clone()).map_err(|_| BAD_HOST)?;
    headers.insert(HOST, value);
    Ok(Some(authority))
}

fn refusal(error: httparse::Error) -> RequestError {
    RequestError::Malformed(match error {
        httparse::Error::TooManyHeaders => return RequestError::HeadTooLarge,
        httparse::Error::HeaderName => "a field name is not valid",
        httparse::Error::HeaderValue => "a field value is not valid",
        _ => "a carriage return without a line feed",
    })
}
