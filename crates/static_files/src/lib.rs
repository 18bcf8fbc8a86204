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
use sendoff_message::request::is_conditional;
use sendoff_message::response::{Field, ResponseHead};

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
    pub fields: Vec<Field>,
    /// The body; empty for HEAD.
    pub body: Vec<Segment>,
    /// The value of `Content-Length`; for HEAD, the value that GET would get. `None` for 304, which
    /// has no such field.
    pub content_length: Option<u64>,
}

/// The error that answers a request for a file. The caller may add a page.
#[derive(Debug, PartialEq, Eq)]
pub struct FileRequestError {
    /// The status.
    pub status: StatusCode,
    /// A field that goes with it.
    pub field: Option<(&'static str, Bytes)>,
}

/// True if `path` (decoded) is never served, because a file or folder on it begins with a dot. The
/// exception is `.well-known`, whose contents are public (RFC 8615).
#[must_use]
pub fn refuses(path: &[u8]) -> bool {
    path.split(|b| *b == b'/').any(|segment| segment.starts_with(b".") && segment != b".well-known")
}

/// The response to a request for a file that was looked up.
///
/// # Errors
/// The method, a precondition or a range does not fit the file.
pub fn respond_with(
    entry: &Entry,
    method: &Method,
    headers: &HeaderMap,
) -> Result<StaticResponse, FileRequestError> {
    if *method != Method::GET && *method != Method::HEAD {
        let field = Some(("Allow", Bytes::from_static(b"GET, HEAD")));
        return Err(FileRequestError { status: StatusCode::METHOD_NOT_ALLOWED, field });
    }
    let validators = Validators { etag: &entry.etag, modified: entry.modified };
    // Room for the fields that filters add.
    let mut fields = Vec::with_capacity(ResponseHead::USUAL_FIELDS);
    fields.extend([entry.fields.last_modified.clone(), entry.fields.etag.clone()]);
    let is_conditional = is_conditional(headers);
    let outcome = is_conditional.then(|| validators.evaluate(headers));
    match outcome.unwrap_or(ConditionOutcome::Proceed) {
        ConditionOutcome::Proceed => {}
        ConditionOutcome::NotModified => {
            let (status, body) = (StatusCode::NOT_MODIFIED, Vec::new());
            return Ok(StaticResponse { status, fields, body, content_length: None });
        }
        ConditionOutcome::PreconditionFailed => {
            return Err(FileRequestError { status: StatusCode::PRECONDITION_FAILED, field: None });
        }
    }
    let asks_for_range = is_conditional && *method == Method::GET && headers.contains_key(RANGE);
    let range = asks_for_range.then(|| validators.range(headers, SystemTime::now()));
    let mut response = with_body(fields, entry, range.flatten())?;
    if *method == Method::HEAD {
        response.body.clear();
    }
    Ok(response)
}

/// The response with the body, or with the requested ranges of it.
fn with_body(
    mut fields: Vec<Field>,
    entry: &Entry,
    range: Option<&[u8]>,
) -> Result<StaticResponse, FileRequestError> {
    let (status, len, body) = match range
        .map_or(Ranges::Whole, |value| Ranges::parse(value, entry.size))
    {
        Ranges::Whole => {
            fields.extend([entry.fields.content_type.clone(), entry.fields.accept_ranges.clone()]);
            let body = if entry.size > 0 { vec![entry.segment(0, entry.size)] } else { Vec::new() };
            (StatusCode::OK, entry.size, body)
        }
        // The validators describe the file, and the error does not contain the file.
        Ranges::Unsatisfiable => {
            let field = Some(("Content-Range", format!("bytes */{}", entry.size).into()));
            return Err(FileRequestError { status: StatusCode::RANGE_NOT_SATISFIABLE, field });
        }
        Ranges::One(range) => {
            fields.push(entry.fields.content_type.clone());
            fields.push(Field::new("Content-Range", range.content_range(entry.size)));
            (StatusCode::PARTIAL_CONTENT, range.len, vec![entry.segment(range.first, range.len)])
        }
        Ranges::Several(ranges) => {
            let Multipart { content_type, body, len } = Multipart::new(entry, &ranges);
            fields.push(Field::new("Content-Type", content_type));
            (StatusCode::PARTIAL_CONTENT, len, body)
        }
    };
    Ok(StaticResponse { status, fields, body, content_length: Some(len) })
}
