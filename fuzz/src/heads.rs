//! A part of the promise that HTTP/2 and HTTP/3 share.

use http::Version;
use sendoff_field_section::FieldSection;
use sendoff_http1::{Limits, StreamHead};

/// Checks that a head within `limit` that is accepted could be written as HTTP/1.1.
///
/// # Panics
/// The promise is broken.
pub(crate) fn check(head: FieldSection, version: Version, limit: usize) {
    assert!(head.size <= limit, "the limit holds");
    let path = head.path.unwrap_or_default();
    let (method, protocol) = (head.method, head.protocol);
    let (authority, fields) = (head.authority, head.fields);
    let head = StreamHead { version, method, path, protocol, authority, fields, ends: true };
    let Ok(head) = head.check(Limits::default()) else { return };
    let is_plain = |bytes: &[u8]| !bytes.iter().any(|byte| b"\r\n\0".contains(byte));
    assert!(is_plain(head.target.raw()) && !head.target.raw().contains(&b' '));
    for (name, value) in &head.headers {
        assert!(is_plain(value.as_bytes()), "{name}");
    }
}
