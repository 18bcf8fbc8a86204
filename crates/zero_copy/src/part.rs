//! Code for both forms of `X-ZeroCopy`.

use bytes::{Buf, Bytes};
use http::StatusCode;
use sendoff_site_files::sendable::Denied;

/// The longest file name in a body (Linux: `PATH_MAX`).
pub(crate) const MAX_NAME: u64 = 4096;

/// An error of the application in a body.
pub(crate) fn broken(why: &str) -> Denied {
    Denied { status: StatusCode::BAD_GATEWAY, why: format!("X-ZeroCopy: {why}") }
}

/// At most `limit` bytes from the front of `data`.
pub(crate) fn take(data: &mut Bytes, limit: u64) -> Bytes {
    let len = usize::try_from(limit).unwrap_or(usize::MAX).min(data.remaining());
    data.split_to(len)
}
