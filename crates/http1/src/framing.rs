//! The framing of a request, and fields about the connection.

use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, Version};

use crate::RequestError;

/// The framing of a request body (RFC 9112 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    /// Neither field: there is no body.
    None,
    /// `Content-Length`, in bytes; may be 0.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

impl BodyFraming {
    /// RFC 9112 §6.3 allows a server to repair some requests that are refused here (repeated equal
    /// lengths, a length beside chunked coding). A proxy in front may have repaired the request
    /// differently, so this server repairs nothing.
    pub(crate) fn of(headers: &HeaderMap, version: Version) -> Result<Self, RequestError> {
        let length = content_length(headers)?;
        if !headers.contains_key(TRANSFER_ENCODING) {
            return Ok(length.map_or(Self::None, Self::Length));
        }
        if length.is_some() {
            return Err(RequestError::Malformed("both Content-Length and Transfer-Encoding"));
        }
        if version == Version::HTTP_10 {
            return Err(RequestError::Malformed("Transfer-Encoding in HTTP/1.0"));
        }
        let codings: Vec<&[u8]> = list(headers, &TRANSFER_ENCODING).collect();
        let chunked = |coding: &&[u8]| coding.eq_ignore_ascii_case(b"chunked");
        match codings.split_last() {
            Some((last, [])) if chunked(last) => Ok(Self::Chunked),
            Some((last, before))
                if chunked(last) && !before.iter().any(|c| c.is_empty() || chunked(c)) =>
            {
                Err(RequestError::UnknownTransferCoding)
            }
            _ => Err(RequestError::Malformed(
                "chunked is not the last transfer coding, or not there once",
            )),
        }
    }

    fn is_empty(self) -> bool {
        matches!(self, Self::None | Self::Length(0))
    }
}

fn content_length(headers: &HeaderMap) -> Result<Option<u64>, RequestError> {
    let mut values = headers.get_all(CONTENT_LENGTH).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(RequestError::Malformed("more than one Content-Length"));
    }
    // `parse` alone accepts "+5".
    let digits = value.to_str().ok().filter(|v| v.bytes().all(|b| b.is_ascii_digit()));
    digits
        .and_then(|v| v.parse().ok())
        .map(Some)
        .ok_or(RequestError::Malformed("Content-Length is not a number of bytes"))
}

/// True if the connection may carry another request (RFC 9112 §9.3).
pub(crate) fn keep_alive(headers: &HeaderMap, version: Version) -> bool {
    let has = |option: &[u8]| list(headers, &CONNECTION).any(|o| o.eq_ignore_ascii_case(option));
    !has(b"close") && (version == Version::HTTP_11 || has(b"keep-alive"))
}

/// True if the client waits for "100 Continue" before it sends the body (RFC 9110 §10.1.1).
pub(crate) fn expect_continue(
    headers: &HeaderMap,
    version: Version,
    framing: BodyFraming,
) -> Result<bool, RequestError> {
    if version == Version::HTTP_10 || !headers.contains_key(EXPECT) {
        return Ok(false);
    }
    // Empty members of a list mean nothing (RFC 9110 §5.6.1).
    let mut expectations = list(headers, &EXPECT).filter(|member| !member.is_empty()).peekable();
    let is_expected = expectations.peek().is_some();
    if !expectations.all(|member| member.eq_ignore_ascii_case(b"100-continue")) {
        return Err(RequestError::UnknownExpectation);
    }
    Ok(is_expected && !framing.is_empty())
}

/// The members of a comma-separated field, over all its lines. Quoted strings are not recognised:
/// members that callers look for cannot contain one.
pub(crate) fn list<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a [u8]> {
    headers
        .get_all(name)
        .iter()
        .flat_map(|value| value.as_bytes().split(|b| *b == b','))
        .map(<[u8]>::trim_ascii)
}
