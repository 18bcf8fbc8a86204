//! Responses of HTTP/1.1 servers that the server asks: heads, and bodies in each framing.

use bytes::{Bytes, BytesMut};
use http::{StatusCode, Version};

use crate::cgi_head::{
    ADDED_FIELDS, BadHead, CgiHead, FieldRoom, HOP_BY_HOP, MAX_HEAD, parse_length,
};
use crate::{BodyDecoder, BodyFraming, Decoded, Field, Trailers};

/// The most interim responses before the final one. An upstream that sends more would only keep the
/// server busy.
const MAX_INTERIM: usize = 32;

/// A part of an upstream's response.
#[derive(Debug)]
pub enum Reply {
    /// An interim response (1xx, not 101); another head follows.
    Interim(CgiHead),
    /// The head of the response, without the fields that concern the upstream's connection and
    /// without its framing.
    Head(CgiHead),
    /// The upstream has changed to another protocol (101), which all further bytes belong to.
    /// `Upgrade` is among the fields and names the protocol.
    Switch(CgiHead),
    /// Bytes of the body, never empty.
    Data(Bytes),
    /// The fields behind a chunked body that may be passed on. The end follows.
    Trailers(Trailers),
    /// The response is complete. The connection may serve another request if `may_stay` is true and
    /// the buffer is empty.
    End {
        /// True if the upstream keeps the connection open.
        may_stay: bool,
    },
    /// More bytes are needed.
    NeedMore,
}

/// The ends of the lines of a response head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LineEnds {
    /// CR LF.
    #[default]
    CrLf,
    /// CR LF or LF alone, which a client may accept (RFC 9112 §2.2).
    AlsoLf,
}

/// Reads the response to one request from a buffer (RFC 9112 §6.3). Lines end with CR LF, unless
/// [`Self::accept`] says otherwise.
/// `Content-Length` occurs at most once, and not beside `Transfer-Encoding`, whose only value is
/// `chunked`. Every other response is refused.
///
/// ```text
///  Head ──▶ Sized, Chunked ──▶ Over
///   │  └──▶ UntilClose ── closed() ──▶ Over
///   └─────▶ Switched
/// ```
#[derive(Debug)]
pub struct ResponseDecoder {
    /// The request's method was HEAD: there is no body, whatever the fields say.
    is_head: bool,
    line_ends: LineEnds,
    state: State,
    may_stay: bool,
    interim: usize,
    scanned: usize,
    line_start: usize,
}

#[derive(Debug)]
enum State {
    Head,
    Body(BodyDecoder),
    UntilClose,
    Switched,
    Over,
}

impl ResponseDecoder {
    /// A decoder for the response to one request.
    #[must_use]
    pub fn new(is_head: bool) -> Self {
        Self {
            is_head,
            line_ends: LineEnds::CrLf,
            state: State::Head,
            may_stay: true,
            interim: 0,
            scanned: 0,
            line_start: 0,
        }
    }

    /// Reads heads whose lines end in these ways. The chunks of a body stay as strict as they are.
    #[must_use]
    pub fn accept(self, line_ends: LineEnds) -> Self {
        Self { line_ends, ..self }
    }

    /// The next part of the response. Between two calls bytes may only be appended to `buf`.
    ///
    /// # Errors
    /// The response is refused; the connection must not be used any more.
    pub fn next(&mut self, buf: &mut BytesMut) -> Result<Reply, BadHead> {
        match &mut self.state {
            State::Head => self.head(buf),
            State::Body(body) => match body.decode(buf) {
                Ok(Decoded::Data(data)) => Ok(Reply::Data(data)),
                Ok(Decoded::NeedMore) => Ok(Reply::NeedMore),
                Ok(Decoded::End) => {
                    if let Some(trailers) = body.take_trailers() {
                        return Ok(Reply::Trailers(trailers));
                    }
                    self.state = State::Over;
                    Ok(Reply::End { may_stay: self.may_stay })
                }
                Err(_) => Err(BadHead("a chunked body that breaks the grammar")),
            },
            State::UntilClose if !buf.is_empty() => Ok(Reply::Data(buf.split().freeze())),
            State::UntilClose | State::Switched | State::Over => Ok(Reply::NeedMore),
        }
    }

    /// The upstream has closed its sending direction. Returns true if this is the regular end of
    /// the response.
    pub fn closed(&mut self) -> bool {
        let ends = matches!(self.state, State::UntilClose);
        if ends {
            self.state = State::Over;
        }
        ends
    }

    fn head(&mut self, buf: &mut BytesMut) -> Result<Reply, BadHead> {
        let Some(len) = self.find_end(buf)? else { return Ok(Reply::NeedMore) };
        (self.scanned, self.line_start) = (0, 0);
        let head = buf.split_to(len).freeze();
        let parsed = match self.line_ends {
            LineEnds::CrLf => Parsed::of(&head)?,
            LineEnds::AlsoLf => Parsed::of(&with_crlf(&head))?,
        };
        let status = parsed.head.status;
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return self.switch(parsed);
        }
        // A 1xx or 204 announces no body (RFC 9110 §8.6, RFC 9112 §6.1). If it does, bytes may still
        // come, and would count as the response to another request.
        let announces_body = !matches!(parsed.framing, None | Some(BodyFraming::Length(0)));
        let has_no_body = status.is_informational() || status == StatusCode::NO_CONTENT;
        self.may_stay &= !(has_no_body && announces_body);
        if status.is_informational() {
            self.interim += 1;
            if self.interim > MAX_INTERIM {
                return Err(BadHead("more than 32 interim responses"));
            }
            return Ok(Reply::Interim(parsed.head));
        }
        self.may_stay &= parsed.may_stay;
        let is_bodiless = status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
        let framing = match parsed.framing {
            _ if self.is_head || is_bodiless => Some(BodyFraming::None),
            framing => framing,
        };
        self.state = match framing.map(|framing| BodyDecoder::new(framing, u64::MAX)) {
            Some(Ok(body)) => State::Body(body),
            Some(Err(_)) => return Err(BadHead("a Content-Length that is too large")),
            None => State::UntilClose,
        };
        Ok(Reply::Head(parsed.head))
    }

    fn switch(&mut self, Parsed { mut head, upgrade, .. }: Parsed) -> Result<Reply, BadHead> {
        let protocol = upgrade.ok_or(BadHead("a status of 101 without Upgrade"))?;
        head.fields.push(Field::new("Upgrade", protocol));
        head.content_length = None;
        self.state = State::Switched;
        Ok(Reply::Switch(head))
    }

    /// The length of the head at the start of `buf`, once it is complete.
    fn find_end(&mut self, buf: &BytesMut) -> Result<Option<usize>, BadHead> {
        const TOO_LARGE: BadHead = BadHead("a head of more than 64 KiB");
        for found in memchr::memchr_iter(b'\n', &buf[self.scanned..]) {
            let end = self.scanned + found + 1;
            let line = &buf[self.line_start..end];
            if self.line_ends == LineEnds::CrLf && !line.ends_with(b"\r\n") {
                return Err(BadHead("a line feed without a carriage return"));
            }
            if end > MAX_HEAD {
                return Err(TOO_LARGE);
            }
            if line == b"\r\n" || line == b"\n" {
                return Ok(Some(end));
            }
            self.line_start = end;
        }
        self.scanned = buf.len();
        if buf.len() >= MAX_HEAD { Err(TOO_LARGE) } else { Ok(None) }
    }
}

/// The head with lines that all end with CR LF.
fn with_crlf(head: &Bytes) -> Bytes {
    let lines = head.split_inclusive(|&byte| byte == b'\n');
    let mut whole = Vec::with_capacity(head.len() + lines.clone().count());
    for line in lines {
        whole.extend_from_slice(line.strip_suffix(b"\r\n").unwrap_or(&line[..line.len() - 1]));
        whole.extend_from_slice(b"\r\n");
    }
    whole.into()
}

/// A parsed head.
struct Parsed {
    head: CgiHead,
    /// `None`: the end of the connection ends the body.
    framing: Option<BodyFraming>,
    may_stay: bool,
    upgrade: Option<Bytes>,
}

impl Parsed {
    /// Parses a complete head, in which every line ends with CR LF and whose last line is empty.
    fn of(raw: &Bytes) -> Result<Self, BadHead> {
        let line_end = memchr::memchr(b'\n', raw).map_or(raw.len(), |at| at + 1);
        let (version, status, reason) = status_line(&raw.slice(..line_end.saturating_sub(2)))?;
        let block = raw.slice(line_end..);
        let mut room = FieldRoom::of(&block);
        let fields = match httparse::parse_headers(&block, room.as_mut()) {
            Ok(httparse::Status::Complete((len, fields))) if len == block.len() => fields,
            // Folded lines are among these.
            _ => return Err(BadHead("an invalid header field")),
        };
        let head = CgiHead {
            status,
            has_status: true,
            reason,
            fields: Vec::with_capacity(fields.len() + ADDED_FIELDS),
            content_length: None,
            dropped: None,
            bad_lines: Vec::new(),
        };
        let framing = None;
        let mut parsed =
            Self { head, framing, may_stay: version == Version::HTTP_11, upgrade: None };
        parsed.fill(&block, fields, version)?;
        Ok(parsed)
    }

    fn fill(
        &mut self,
        block: &Bytes,
        fields: &[httparse::Header<'_>],
        version: Version,
    ) -> Result<(), BadHead> {
        let is = |field: &httparse::Header<'_>, name: &str| field.name.eq_ignore_ascii_case(name);
        let values = |name: &'static str| fields.iter().filter(move |field| is(field, name));
        let connection = || {
            let values = values("connection");
            values.flat_map(|field| field.value.split(|&byte| byte == b',')).map(<[u8]>::trim_ascii)
        };
        let length = length(values("content-length").map(|field| field.value))?;
        self.head.content_length = length;
        self.framing = length.map(BodyFraming::Length);
        if values("transfer-encoding").next().is_some() {
            let codings = values("transfer-encoding").map(|field| field.value);
            chunked_alone(codings, length, version)?;
            self.framing = Some(BodyFraming::Chunked);
        }
        self.may_stay &= !connection().any(|option| option.eq_ignore_ascii_case(b"close"));
        let named: Vec<&[u8]> = connection().collect();
        let upgrade = values("upgrade").next();
        self.upgrade = upgrade.map(|field| block.slice_ref(field.value));
        for field in fields {
            let is_for_us = HOP_BY_HOP.iter().any(|name| is(field, name))
                || is(field, "content-length")
                || named.iter().any(|name| name.eq_ignore_ascii_case(field.name.as_bytes()));
            if !is_for_us {
                self.head.push(Field::in_block(block, field));
            }
        }
        Ok(())
    }
}

/// `HTTP/1.1 200 OK`; the reason and the blank before it may be missing.
fn status_line(line: &Bytes) -> Result<(Version, StatusCode, Option<Bytes>), BadHead> {
    const BAD: BadHead = BadHead("no valid status line of HTTP/1");
    let (version, rest) = match line.strip_prefix(b"HTTP/1.") {
        Some([b'0', b' ', rest @ ..]) => (Version::HTTP_10, rest),
        Some([b'1'..=b'9', b' ', rest @ ..]) => (Version::HTTP_11, rest),
        _ => return Err(BAD),
    };
    let (code, reason) = rest.split_at_checked(3).ok_or(BAD)?;
    let status = StatusCode::from_bytes(code).map_err(|_| BAD)?;
    let is_text = |byte: &u8| !byte.is_ascii_control() || *byte == b'\t';
    if !(reason.is_empty() || reason[0] == b' ') || !reason.iter().all(is_text) {
        return Err(BAD);
    }
    let reason = reason.trim_ascii();
    Ok((version, status, (!reason.is_empty()).then(|| line.slice_ref(reason))))
}

/// The value of `Content-Length`, which occurs at most once.
fn length<'f>(mut values: impl Iterator<Item = &'f [u8]>) -> Result<Option<u64>, BadHead> {
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(BadHead("more than one Content-Length"));
    }
    let length = parse_length(value).filter(|_| !value.is_empty());
    length.map(Some).ok_or(BadHead("a Content-Length that is not a number of bytes"))
}

/// Checks that `Transfer-Encoding` is `chunked`, once, in HTTP/1.1 and without a `Content-Length`.
fn chunked_alone<'f>(
    mut codings: impl Iterator<Item = &'f [u8]>,
    length: Option<u64>,
    version: Version,
) -> Result<(), BadHead> {
    if length.is_some() {
        return Err(BadHead("both Content-Length and Transfer-Encoding"));
    }
    if version == Version::HTTP_10 {
        return Err(BadHead("Transfer-Encoding in HTTP/1.0"));
    }
    let first = codings.next().unwrap_or_default();
    match codings.next() {
        None if first.eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(BadHead("a Transfer-Encoding other than chunked")),
    }
}

#[cfg(test)]
mod tests;
