//! The head of a response as an application writes it over CGI (RFC 3875 §6): its fields, its status,
//! and the mistakes that are refused or dropped.

use std::fmt;

use bytes::Bytes;
use http::{HeaderName, StatusCode};

use crate::Field;

/// The largest CGI header block that is accepted, in bytes: room for a few dozen cookies.
pub const MAX_HEAD: usize = 64 * 1024;

/// The most fields of a response head.
pub(crate) const MAX_FIELDS: usize = 256;

/// The most bytes of a line that the log shows.
const MAX_SHOWN: usize = 100;

/// The number of fields that suffices for most heads.
const FEW_FIELDS: usize = 16;

/// Room for the fields that the server and its rules usually add to a response.
pub(crate) const ADDED_FIELDS: usize = 6;

/// Room for the raw fields of a header block. Most blocks are short, and filling the large array
/// took 1 % of the instructions for a small page.
#[expect(
    clippy::large_enum_variant,
    reason = "it is a local variable, so that most heads need no allocation"
)]
pub(crate) enum FieldRoom<'b> {
    Few([httparse::Header<'b>; FEW_FIELDS]),
    Many(Vec<httparse::Header<'b>>),
}

impl<'b> FieldRoom<'b> {
    /// Room for all fields of the block, up to [`MAX_FIELDS`].
    pub(crate) fn of(block: &'b [u8]) -> Self {
        if memchr::memchr_iter(b'\n', block).nth(FEW_FIELDS).is_none() {
            Self::Few([httparse::EMPTY_HEADER; FEW_FIELDS])
        } else {
            Self::Many(vec![httparse::EMPTY_HEADER; MAX_FIELDS])
        }
    }

    pub(crate) fn as_mut(&mut self) -> &mut [httparse::Header<'b>] {
        match self {
            Self::Few(room) => room,
            Self::Many(room) => room,
        }
    }
}

/// Fields that concern one connection only (RFC 9110 §7.6.1). The server writes its own for the
/// client's connection.
pub(crate) const HOP_BY_HOP: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The mistake in a header block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadHead(pub &'static str);

impl fmt::Display for BadHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// A response head as the application wrote it (RFC 3875 §6).
#[derive(Debug)]
pub struct CgiHead {
    /// From `Status`; 302 if there is only a `Location`, else 200. An interim status (1xx) if
    /// another head block follows.
    pub status: StatusCode,
    /// True if the application set the status itself, by `Status`.
    pub has_status: bool,
    /// The words after the number in `Status`, if any, unless they contain a control character.
    pub reason: Option<Bytes>,
    /// All other fields that concern the client, in their order and spelling.
    pub fields: Vec<Field>,
    /// The value of `Content-Length`, which is not among `fields`; also `None` if it was invalid.
    pub content_length: Option<u64>,
    /// The part of a valid line that was dropped: a `Content-Length` that is not a number of bytes,
    /// or a reason with a control character. Worth a line in the log.
    pub dropped: Option<&'static str>,
    /// The lines that are not fields and were dropped. Worth a line in the log.
    pub bad_lines: Vec<BadLine>,
}

/// A line of a header block that is not a field.
#[derive(Debug)]
pub struct BadLine(Bytes);

impl BadLine {
    /// The part before the colon; `None`: there is no colon.
    #[must_use]
    pub fn name(&self) -> Option<&[u8]> {
        memchr::memchr(b':', &self.0).map(|colon| &self.0[..colon])
    }
}

impl fmt::Display for BadLine {
    /// The beginning of the line, escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..self.0.len().min(MAX_SHOWN)].escape_ascii().fmt(f)
    }
}

impl CgiHead {
    /// Parses a complete header block. A line that is not a field, or has a control character in
    /// its value, is dropped. If the name of a field is empty, or contains white space or a control
    /// character, the block is refused as in nginx: it may not be a header block at all. (A status
    /// line is dropped like other lines; [`CgiHeadReader::with_status_line`] reads it.)
    ///
    /// # Errors
    /// The block breaks the grammar, or two `Content-Length` fields differ.
    pub fn parse(block: &Bytes) -> Result<Self, BadHead> {
        let mut room = FieldRoom::of(block);
        let good;
        let (fields, bad_lines) = match httparse::parse_headers(block, room.as_mut()) {
            Ok(httparse::Status::Complete((_, fields))) => (fields, Vec::new()),
            Ok(httparse::Status::Partial) => return Err(BadHead("an incomplete header block")),
            Err(_) => {
                let bad_lines;
                (good, bad_lines) = good_fields(block)?;
                // A page without a head also has lines.
                if good.is_empty() {
                    return Err(BadHead("an invalid header field"));
                }
                (&good[..], bad_lines)
            }
        };
        let mut head = Self {
            status: StatusCode::OK,
            has_status: false,
            reason: None,
            fields: Vec::with_capacity(fields.len() + ADDED_FIELDS),
            content_length: None,
            dropped: None,
            bad_lines,
        };
        let (mut has_location, mut length) = (false, None);
        for field in fields {
            let name = field.name;
            if name.eq_ignore_ascii_case("status") {
                head.set_status(block, field.value)?;
            } else if name.eq_ignore_ascii_case("content-length") {
                head.note_length(field.value, length.replace(field.value))?;
            } else if name.eq_ignore_ascii_case("content-type") && field.value.is_empty() {
                // PHP writes this for a response without a type.
            } else if !HOP_BY_HOP.iter().any(|hop| name.eq_ignore_ascii_case(hop)) {
                has_location |= name.eq_ignore_ascii_case("location");
                head.push(Field::in_block(block, field));
            }
        }
        if has_location && !head.has_status {
            head.status = StatusCode::FOUND;
        }
        Ok(head)
    }

    /// Parses a complete header block behind a status line (RFC 9112 §4) of `len` bytes, which counts
    /// before a `Status`, as in nginx.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse), or the status line has no status.
    pub(crate) fn behind_status_line(block: &Bytes, len: usize) -> Result<Self, BadHead> {
        let mut head = Self::parse(&block.slice(len..))?;
        let words = block[..len].trim_ascii_end();
        let status = memchr::memchr(b' ', words).map_or(&words[..0], |blank| &words[blank + 1..]);
        head.set_status(block, status)?;
        Ok(head)
    }

    /// A head from separate fields of an upstream, which must send `Content-Length` at most once.
    ///
    /// # Errors
    /// `Content-Length` is not a number of bytes, or occurs twice.
    pub fn of_fields(
        status: StatusCode,
        reason: Option<Bytes>,
        fields: Vec<(Bytes, Bytes)>,
    ) -> Result<Self, BadHead> {
        let kept = Vec::with_capacity(fields.len() + ADDED_FIELDS);
        let mut head = Self {
            status,
            has_status: true,
            reason,
            fields: kept,
            content_length: None,
            dropped: None,
            bad_lines: Vec::new(),
        };
        for (name, value) in fields {
            if name.eq_ignore_ascii_case(b"content-length") {
                if head.content_length.is_some() {
                    return Err(BadHead("more than one Content-Length"));
                }
                let length = parse_length(&value).filter(|_| !value.is_empty());
                let length =
                    length.ok_or(BadHead("a Content-Length that is not a number of bytes"))?;
                head.content_length = Some(length);
            } else if !HOP_BY_HOP.iter().any(|hop| name.eq_ignore_ascii_case(hop.as_bytes())) {
                head.push(Field::Own(name, value));
            }
        }
        Ok(head)
    }

    /// Adds a field. A response has one media type (RFC 9110 §8.3): the application's last one, as
    /// in nginx and Apache.
    pub(crate) fn push(&mut self, field: Field) {
        let is_type = |field: &Field| field.is("content-type");
        if is_type(&field)
            && let Some(earlier) = self.fields.iter_mut().find(|field| is_type(field))
        {
            earlier.set_value(field.into_parts().1);
        } else {
            self.fields.push(field);
        }
    }

    /// True if a line, or a part of one, was dropped.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        self.dropped.is_some() || !self.bad_lines.is_empty()
    }

    /// Stores the status. A reason with a control character is dropped: clients may have sent it,
    /// and the number counts.
    fn set_status(&mut self, block: &Bytes, value: &[u8]) -> Result<(), BadHead> {
        let (status, reason) = parse_status(value)?;
        self.status = status;
        self.has_status = true;
        let is_sent = !reason.is_empty() && is_plain(reason);
        self.reason = is_sent.then(|| block.slice_ref(reason));
        if !is_plain(reason) {
            self.dropped = Some("a reason phrase with a control character");
        }
        Ok(())
    }

    /// Stores `Content-Length`. An invalid value is dropped and the response kept: the response can
    /// be framed without it. Beside `other`, the value of an earlier field, a value is refused if
    /// both differ as numbers, or if one of them is invalid: they do not tell where the application
    /// ends its response (RFC 9112 §6.3).
    fn note_length(&mut self, value: &[u8], other: Option<&[u8]>) -> Result<(), BadHead> {
        let length = parse_length(value);
        if other.is_some_and(|other| {
            other != value && (length.is_none() || parse_length(other) != length)
        }) {
            return Err(BadHead("two different Content-Length fields"));
        }
        self.content_length = length;
        if length.is_none() {
            self.dropped = Some("a Content-Length that is not a number of bytes");
        }
        Ok(())
    }

    /// The fields for the client, in order: the fields of `common` that the application did not
    /// set, then its own.
    pub fn with_common<'a>(
        &'a self,
        common: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let is_set = |name: &[u8]| self.fields.iter().any(|own| own.is(name));
        let unset = common.into_iter().filter(move |(name, _)| !is_set(name));
        unset.chain(self.fields.iter().map(|field| (field.name(), field.value())))
    }

    /// The values of the fields with this name, in their order.
    pub fn values(&self, name: &[u8]) -> impl Iterator<Item = &[u8]> {
        self.fields.iter().filter(move |field| field.is(name)).map(Field::value)
    }
}

/// The fields of a block, and the lines that are not fields. The values are valid except for
/// `Status` and `Content-Length`, which do not reach the client as they are.
fn good_fields(block: &Bytes) -> Result<(Vec<httparse::Header<'_>>, Vec<BadLine>), BadHead> {
    let (mut fields, mut bad_lines) = (Vec::new(), Vec::new());
    for line in block.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            break;
        }
        let colon = memchr::memchr(b':', line);
        let name = &line[..colon.unwrap_or(line.len())];
        let is_status_line = line.starts_with(b"HTTP/");
        let has_gap = name.is_empty() || name.iter().any(|&byte| byte <= b' ' || byte == 0x7f);
        if has_gap && !is_status_line {
            return Err(BadHead("an invalid header field"));
        }
        if fields.len() + bad_lines.len() == MAX_FIELDS {
            return Err(BadHead("too many header fields"));
        }
        let value = colon.map(|colon| line[colon + 1..].trim_ascii());
        let name = std::str::from_utf8(name).ok().filter(|name| is_token(name));
        let is_for_us = |name: &str| {
            ["status", "content-length"].iter().any(|own| own.eq_ignore_ascii_case(name))
        };
        match name.zip(value).filter(|(name, value)| is_for_us(name) || is_plain(value)) {
            Some((name, value)) if !is_status_line => {
                fields.push(httparse::Header { name, value });
            }
            _ => bad_lines.push(BadLine(block.slice_ref(line))),
        }
    }
    Ok((fields, bad_lines))
}

/// True if a text has no control character except for tabs.
fn is_plain(text: &[u8]) -> bool {
    text.iter().all(|byte| *byte == b'\t' || !byte.is_ascii_control())
}

/// True if a name may be the name of a field (RFC 9110 §5.1).
fn is_token(name: &str) -> bool {
    HeaderName::from_bytes(name.as_bytes()).is_ok()
}

/// The number and the reason, which may be empty.
fn parse_status(value: &[u8]) -> Result<(StatusCode, &[u8]), BadHead> {
    let (code, rest) = value.split_at_checked(3).ok_or(BadHead("an invalid Status"))?;
    let status = StatusCode::from_bytes(code).map_err(|_| BadHead("an invalid Status"))?;
    if !(rest.is_empty() || rest[0] == b' ') {
        return Err(BadHead("an invalid Status"));
    }
    match status {
        // The server itself asks the client for the body; no head follows this one.
        StatusCode::CONTINUE => Err(BadHead("a Status of 100, which is no response")),
        StatusCode::SWITCHING_PROTOCOLS => {
            Err(BadHead("a Status of 101: no application can change the client's protocol"))
        }
        _ => Ok((status, rest.trim_ascii())),
    }
}

/// A number of bytes in decimal digits.
pub(crate) fn parse_length(value: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(value).ok().filter(|v| v.bytes().all(|b| b.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(head: &CgiHead) -> Vec<(&str, &str)> {
        let text = |bytes| std::str::from_utf8(bytes).unwrap();
        head.fields.iter().map(|field| (text(field.name()), text(field.value()))).collect()
    }

    fn parse(block: &'static str) -> Result<CgiHead, BadHead> {
        assert_eq!(CgiHead::find_end(block.as_bytes()), Some(block.len()), "{block:?}");
        CgiHead::parse(&Bytes::from_static(block.as_bytes()))
    }

    #[test]
    fn a_block_ends_at_the_first_empty_line() {
        for (bytes, end) in [
            ("A: b\r\n\r\nbody\n\n", Some(8)),
            ("A: b\n\nbody", Some(6)),
            ("\r\nbody", Some(2)),
            ("A: b\r\n", None),
            ("A: b\r\n\r", None),
            ("", None),
        ] {
            assert_eq!(CgiHead::find_end(bytes.as_bytes()), end, "{bytes:?}");
        }
    }

    #[test]
    fn the_status_comes_from_its_field_or_from_location() {
        assert_eq!(parse("A: b\r\n\r\n").unwrap().status, 200);
        assert_eq!(parse("Location: /x\r\n\r\n").unwrap().status, 302);
        let head = parse("Status: 404 Nothing here\r\nLocation: /x\r\n\r\n").unwrap();
        assert_eq!(
            (head.status.as_u16(), head.reason.as_deref()),
            (404, Some(&b"Nothing here"[..]))
        );
        assert_eq!(parse("status: 500\r\n\r\n").unwrap().reason, None);
        assert_eq!(parse("Status: 103 Early Hints\r\n\r\n").unwrap().status, 103);
        for bad in [
            "Status: 42\r\n\r\n",
            "Status: 2000\r\n\r\n",
            "Status: abc\r\n\r\n",
            "Status: 100\r\n\r\n",
            "Status: 101 x\r\n\r\n",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn fields_keep_their_order_and_spelling_and_hop_by_hop_ones_go() {
        let head = parse(
            "Set-Cookie: a\r\nX-b: c\r\nConnection: close\r\nTransfer-Encoding: x\r\nSet-Cookie: d\r\n\r\n",
        );
        let expected = [("Set-Cookie", "a"), ("X-b", "c"), ("Set-Cookie", "d")];
        assert_eq!(fields(&head.unwrap()), expected);
    }

    #[test]
    fn a_line_that_is_no_field_is_dropped() {
        for bad in ["NoColon", "N\u{e9}: x", "A@b: x", "A: x\u{1}y", "A: x\ry", "HTTP/1.1 200 OK"] {
            let block = Bytes::from(format!("X: 1\r\n{bad}\r\nStatus: 404\r\nY:\t2 \n\r\n"));
            let head = CgiHead::parse(&block).unwrap();
            assert_eq!(head.status, 404, "{bad:?}");
            assert_eq!(fields(&head), [("X", "1"), ("Y", "2")], "{bad:?}");
            let shown: Vec<_> = head.bad_lines.iter().map(BadLine::to_string).collect();
            assert_eq!(shown, [bad.as_bytes().escape_ascii().to_string()]);
        }
        for other in ["", "X: 1\r\n"] {
            for bad in [": x", " folded", "Bad Name: x", "Bad : x", "<p>Hello <b>", "A\u{1}: x"] {
                let block = Bytes::from(format!("{other}{bad}\r\n\r\n"));
                assert!(CgiHead::parse(&block).is_err(), "{block:?}");
            }
        }
        let many = Bytes::from(format!("NoColon\n{}\n", "A: b\n".repeat(MAX_FIELDS + 1)));
        assert!(CgiHead::parse(&many).is_err());
        assert!(parse("A: b\r\n\r\n").unwrap().bad_lines.is_empty());
    }

    #[test]
    fn a_control_character_leaves_the_number_of_a_status() {
        for reason in ["", " ", " a\u{1b}b", " \u{1}", " a\rb", " a\u{7f}"] {
            let block = Bytes::from(format!("Status: 403{reason}\r\nX: \u{1}\r\n\r\n"));
            let head = CgiHead::parse(&block).unwrap();
            assert_eq!((head.status.as_u16(), head.reason.as_deref()), (403, None), "{reason:?}");
            assert_eq!(head.dropped.is_some(), !reason.trim().is_empty(), "{reason:?}");
        }
        for bad in ["403\u{1}", "40\u{1}", "\u{1}", "1000 \u{1}"] {
            let block = Bytes::from(format!("Status: {bad}\r\nX: 1\r\n\r\n"));
            assert_eq!(CgiHead::parse(&block).unwrap_err().0, "an invalid Status", "{bad:?}");
        }
    }

    #[test]
    fn the_last_media_type_counts() {
        let head = parse("Content-type: a/a\r\nX: 1\r\nContent-Type: b/b\r\n\r\n").unwrap();
        assert_eq!(fields(&head), [("Content-type", "b/b"), ("X", "1")]);
        let fields = vec![(Bytes::from("Content-Type"), Bytes::from("a/a")); 2];
        let head = CgiHead::of_fields(StatusCode::OK, None, fields).unwrap();
        assert_eq!(head.fields.len(), 1);
    }

    #[test]
    fn what_the_application_says_takes_the_place_of_what_is_usual() {
        let head = parse("Set-Cookie: a\r\nserver: mine\r\n\r\n").unwrap();
        let common = [(&b"Server"[..], &b"sendoff"[..]), (b"Date", b"now")];
        let fields: Vec<_> = head.with_common(common).collect();
        assert_eq!(
            fields,
            [(&b"Date"[..], &b"now"[..]), (b"Set-Cookie", b"a"), (b"server", b"mine")]
        );
    }

    #[test]
    fn lengths_must_be_numbers_and_agree() {
        for good in ["12", "012", "12\r\nContent-Length: 12", "12\r\nContent-Length: 012"] {
            let block = Bytes::from(format!("Content-Length: {good}\r\n\r\n"));
            let head = CgiHead::parse(&block).unwrap();
            assert_eq!((head.content_length, head.dropped), (Some(12), None), "{good:?}");
        }
        for two in ["1\r\nContent-Length: 2", "1\r\nContent-Length: x", "x\r\nContent-Length: 1"] {
            let block = Bytes::from(format!("Content-Length: {two}\r\n\r\n"));
            assert_eq!(
                CgiHead::parse(&block).unwrap_err().0,
                "two different Content-Length fields"
            );
        }
        for bad in ["-1", "+1", "1 2", "1, 1", "1.0", "", "99999999999999999999", "1\u{1}"] {
            let block = Bytes::from(format!("Content-Length: {bad}\r\nA: b\r\n\r\n"));
            let head = CgiHead::parse(&block).unwrap();
            assert_eq!((head.content_length, head.fields.len()), (None, 1), "{bad:?}");
            assert!(head.dropped.is_some(), "{bad:?}");
        }
    }
}
