//! Heads of responses in the server's form.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use sendoff_http1::CgiHead;
use sendoff_upstream::error::UpstreamError;

/// The head of a response, final or interim.
pub(crate) fn head(status: StatusCode, fields: &HeaderMap) -> Result<CgiHead, UpstreamError> {
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(UpstreamError::broken("it sent a status of 101, which HTTP/2 does not have"));
    }
    let copied = fields.iter().map(|(name, value)| {
        let name = Bytes::copy_from_slice(name.as_str().as_bytes());
        (name, Bytes::copy_from_slice(value.as_bytes()))
    });
    CgiHead::of_fields(status, None, copied.collect())
        .map_err(|wrong| UpstreamError::broken(format!("it sent {wrong}")))
}
