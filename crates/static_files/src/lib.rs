//! Static files.
//!
//! `resolve` finds a path without leaving the root, `cache` keeps files open and notices every
//! change, `conditional` and `range` are the parts of RFC 9110 that decide which bytes of a file
//! are sent.
#![forbid(unsafe_code)]

mod cache;
pub mod conditional;
mod owner;
pub mod range;
mod refusal;
mod resolve;
pub mod types;
mod walk;
mod writable;

#[cfg(test)]
mod tests;

use std::time::SystemTime;

use bytes::Bytes;
use http::header::RANGE;
use http::{HeaderMap, Method, StatusCode};
use sendoff_delivery::segment::Segment;

use conditional::{ConditionOutcome, Validators};
use range::{Multipart, Ranges};

pub use cache::{CacheLimits, CacheShare, Entry, FileCache, Found, MediaTypes, PathKind, SETTLED};
pub use refusal::{Forbidden, Refusal, place};
pub use resolve::{Identity, Root, canonical, open_regular, read_regular};
pub use writable::WritingUser;

/// A response made of files. The caller adds `Content-Length`, `Date` and fields of the connection.
#[derive(Debug)]
pub struct StaticResponse {
    /// The status.
    pub status: StatusCode,
    /// The fields, except `Content-Length`.
    pub headers: Vec<(&'static str, Bytes)>,
    /// The body; empty for HEAD.
    pub body: Vec<Segment>,
    /// The value of `Content-Length`; for HEAD, the value that GET would get. `None` for 304, which
    /// has no such field.
    pub content_length: Option<u64>,
}

impl StaticResponse {
    /// A response without a body: an error, to which the caller may add a page.
    #[must_use]
    pub fn empty(status: StatusCode) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), content_length: Some(0) }
    }
}

/// True if `path` (decoded) is never served, because a file or folder on it begins with a dot. The
/// exception is `.well-known`, whose contents are public (RFC 8615).
#[must_use]
pub fn refuses(path: &[u8]) -> bool {
    path.split(|b| *b == b'/').any(|segment| segment.starts_with(b".") && segment != b".well-known")
}

/// The response to a request for a file that was looked up.
#[must_use]
pub fn respond_with(entry: &Entry, method: &Method, headers: &HeaderMap) -> StaticResponse {
    if *method != Method::GET && *method != Method::HEAD {
        let mut response = StaticResponse::empty(StatusCode::METHOD_NOT_ALLOWED);
        response.headers.push(("Allow", Bytes::from_static(b"GET, HEAD")));
        return response;
    }
    let validators = Validators { etag: &entry.etag, modified: entry.modified };
    let mut response = StaticResponse::empty(match validators.evaluate(headers) {
        ConditionOutcome::Proceed => StatusCode::OK,
        ConditionOutcome::NotModified => StatusCode::NOT_MODIFIED,
        ConditionOutcome::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
    });
    if response.status == StatusCode::PRECONDITION_FAILED {
        return response;
    }
    response.headers.push(("Last-Modified", entry.last_modified.clone()));
    response.headers.push(("ETag", entry.etag.clone()));
    if response.status == StatusCode::NOT_MODIFIED {
        response.content_length = None;
        return response;
    }
    let asks_for_range = *method == Method::GET && headers.contains_key(RANGE);
    let range = asks_for_range.then(|| validators.range(headers, SystemTime::now()));
    fill(&mut response, entry, range.flatten());
    if *method == Method::HEAD {
        response.body.clear();
    }
    response
}

/// Adds the body, or the requested ranges of it.
fn fill(response: &mut StaticResponse, entry: &Entry, range: Option<&[u8]>) {
    let StaticResponse { status, headers, body, content_length } = response;
    let file_type = entry.content_type.clone();
    match range.map_or(Ranges::Whole, |value| Ranges::parse(value, entry.size)) {
        Ranges::Whole => {
            headers.push(("Content-Type", file_type));
            headers.push(("Accept-Ranges", Bytes::from_static(b"bytes")));
            *content_length = Some(entry.size);
            if entry.size > 0 {
                body.push(entry.segment(0, entry.size));
            }
        }
        Ranges::Unsatisfiable => {
            // The validators describe the file, and this response does not contain the file.
            headers.clear();
            headers.push(("Content-Range", format!("bytes */{}", entry.size).into()));
            *status = StatusCode::RANGE_NOT_SATISFIABLE;
        }
        Ranges::One(range) => {
            headers.push(("Content-Type", file_type));
            headers.push(("Content-Range", range.content_range(entry.size).into()));
            *status = StatusCode::PARTIAL_CONTENT;
            *content_length = Some(range.len);
            body.push(entry.segment(range.first, range.len));
        }
        Ranges::Several(ranges) => {
            let multipart = Multipart::new(entry, &ranges);
            headers.push(("Content-Type", multipart.content_type.into()));
            *status = StatusCode::PARTIAL_CONTENT;
            *content_length = Some(multipart.len);
            *body = multipart.body;
        }
    }
}
