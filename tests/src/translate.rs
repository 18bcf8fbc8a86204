//! Translates requests of HTTP/1 into requests of HTTP/2, and responses of HTTP/2 into responses of
//! HTTP/1.

use crate::message::Head;
use bytes::Bytes;
use http::Uri;
use std::fmt::Write;

/// Fields that HTTP/2 does not have (RFC 9113 §8.2.2), and the host, which is a pseudo-field.
const LEFT_OUT: [&str; 7] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "te", "host"];

/// Bytes of the line end behind the data of a chunk.
const LINE_END: usize = 2;

/// The properties of a request that determine the form of its response.
pub(crate) struct ResponseForm {
    is_head: bool,
    is_http10: bool,
    /// The connection ends with the response.
    pub(crate) closes: bool,
    /// The body that follows.
    pub(crate) upload: Option<Upload>,
}

/// The bytes of a request's body that are still missing.
#[derive(Clone, Copy)]
pub(crate) enum Upload {
    /// After this number of bytes.
    Length(usize),
    /// After the last chunk; this number of bytes is left of the current one, with the line end
    /// behind it.
    Chunked(usize),
}

/// The first request in bytes of HTTP/1, and the length of its head; `None` if it is not complete.
///
/// # Panics
/// If HTTP/2 cannot express the request. Such a scenario is about HTTP/1.
pub(crate) fn request(
    bytes: &[u8],
    scheme: &str,
) -> Option<(ResponseForm, http::Request<()>, usize)> {
    let end = find(bytes, b"\r\n\r\n")?;
    let text = std::str::from_utf8(&bytes[..end]).expect("HTTP/2: the head is text");
    let (line, rest) = text.split_once("\r\n").unwrap_or((text, ""));
    let mut words = line.splitn(3, ' ');
    let mut word = || words.next().unwrap_or_else(|| panic!("HTTP/2: no request line: {line:?}"));
    let (method, target, version) = (word(), word(), word());
    // `Head` parses responses, so the fields get a status line.
    let fields = Head::parse(format!("HTTP/1.1 200 \r\n{rest}").trim_end().as_bytes());
    let fields = fields.unwrap_or_else(|why| panic!("HTTP/2: {why}"));
    let host = fields.header("host").unwrap_or("localhost");
    let uri: Uri = format!("{scheme}://{host}{target}")
        .parse()
        .unwrap_or_else(|why| panic!("HTTP/2: {target:?} cannot be asked for: {why}"));
    let mut request = http::Request::builder().method(method).uri(uri);
    for (name, value) in &fields.headers {
        if !LEFT_OUT.contains(&name.to_ascii_lowercase().as_str()) {
            request = request.header(name, value);
        }
    }
    let says = |value: &str| {
        fields.header("connection").is_some_and(|all| all.eq_ignore_ascii_case(value))
    };
    let is_http10 = version == "HTTP/1.0";
    let upload = match fields.header("content-length") {
        _ if fields.header("transfer-encoding").is_some() => Some(Upload::Chunked(0)),
        Some(length) => Some(Upload::Length(length.parse().expect("a length"))),
        None => None,
    };
    let asked = ResponseForm {
        is_head: method == "HEAD",
        is_http10,
        closes: says("close") || is_http10 && !says("keep-alive"),
        upload,
    };
    let request = request.body(()).unwrap_or_else(|why| panic!("HTTP/2: {why}: {line:?}"));
    Some((asked, request, end + 4))
}

impl Upload {
    /// The bytes of the body that are there, without the framing, and whether the body ends with
    /// them.
    pub(crate) fn next(&mut self, bytes: &mut Vec<u8>) -> (Vec<u8>, bool) {
        match self {
            Self::Length(left) => {
                let part = bytes[..bytes.len().min(*left)].to_vec();
                let is_last = part.len() == *left;
                (part, is_last)
            }
            Self::Chunked(left) => {
                if *left == LINE_END && bytes.starts_with(b"\r\n") {
                    bytes.drain(..LINE_END);
                    *left = 0;
                }
                if *left == 0 {
                    let Some(end) = find(bytes, b"\r\n") else { return (Vec::new(), false) };
                    let line = std::str::from_utf8(&bytes[..end]).unwrap();
                    let size = line.split(';').next().unwrap().trim();
                    let size = usize::from_str_radix(size, 16).expect("HTTP/2: a chunk size");
                    if size == 0 {
                        return (Vec::new(), find(bytes, b"\r\n\r\n").is_some());
                    }
                    bytes.drain(..end + LINE_END);
                    *left = size + LINE_END;
                }
                (bytes[..bytes.len().min(*left - LINE_END)].to_vec(), false)
            }
        }
    }

    /// Drops bytes that have been sent.
    pub(crate) fn sent(&mut self, count: usize, bytes: &mut Vec<u8>) {
        bytes.drain(..count);
        match self {
            Self::Length(left) | Self::Chunked(left) => *left -= count,
        }
    }

    /// Drops the bytes that end the body (the last chunk).
    pub(crate) fn finish(self, bytes: &mut Vec<u8>) {
        if let Self::Chunked(_) = self {
            let end = find(bytes, b"\r\n\r\n").unwrap();
            bytes.drain(..end + 4);
        }
    }
}

/// Renders an interim response.
pub(crate) fn interim(response: &http::Response<()>, rendered: &mut Vec<u8>) {
    head(response.status(), response.headers(), rendered);
    rendered.extend_from_slice(b"\r\n");
}

/// Renders a response's head, with the framing of HTTP/1. Returns whether the body is in chunks.
pub(crate) fn response(
    response: &http::response::Parts,
    asked: &mut ResponseForm,
    rendered: &mut Vec<u8>,
) -> bool {
    head(response.status, &response.headers, rendered);
    let has_body = !asked.is_head && !matches!(response.status.as_u16(), 204 | 304);
    let has_length = response.headers.contains_key("content-length");
    let is_chunked = has_body && !has_length && !asked.is_http10;
    if is_chunked {
        rendered.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    asked.closes |= has_body && !has_length && asked.is_http10;
    if asked.closes {
        rendered.extend_from_slice(b"connection: close\r\n");
    }
    rendered.extend_from_slice(b"\r\n");
    is_chunked
}

fn head(status: http::StatusCode, fields: &http::HeaderMap, rendered: &mut Vec<u8>) {
    let mut text = String::new();
    write!(text, "HTTP/1.1 {} \r\n", status.as_u16()).unwrap();
    rendered.extend_from_slice(text.as_bytes());
    for (name, value) in fields {
        rendered.extend_from_slice(name.as_str().as_bytes());
        rendered.extend_from_slice(b": ");
        rendered.extend_from_slice(value.as_bytes());
        rendered.extend_from_slice(b"\r\n");
    }
}

/// Renders a part of a body.
pub(crate) fn data(data: &Bytes, is_chunked: bool, rendered: &mut Vec<u8>) {
    if is_chunked {
        rendered.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
    }
    rendered.extend_from_slice(data);
    if is_chunked {
        rendered.extend_from_slice(b"\r\n");
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|part| part == wanted)
}
