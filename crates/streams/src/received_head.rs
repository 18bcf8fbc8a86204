//! The head of a request, as a protocol has received it.

use bytes::Bytes;
use http::{Method, Version};
use sendoff_field_section::FieldSection;
use sendoff_http1::{Head, Limits, RequestError, StreamHead};

/// The head of a request, checked by its protocol.
#[derive(Debug)]
pub struct ReceivedHead {
    /// The method.
    pub method: Method,
    /// The path and the query as sent; empty if the client left them out.
    pub path: Bytes,
    /// The version of the protocol.
    pub version: Version,
    /// The approximate number of bytes that the client sent for the head.
    pub size: usize,
    /// The checked head, or the reason to refuse the request.
    pub checked: Result<Head, RequestError>,
}

impl ReceivedHead {
    /// Checks the fields of a request. `ends`: the request has no body.
    #[must_use]
    pub fn of(version: Version, fields: FieldSection, ends: bool) -> Self {
        let FieldSection { method, authority, path, protocol, fields, size, .. } = fields;
        let path = path.unwrap_or_default();
        let (asked, named) = (method.clone(), path.clone());
        let head = StreamHead { version, method, path, protocol, authority, fields, ends };
        let checked = head.check(Limits::default());
        Self { method: asked, path: named, version, size, checked }
    }

    /// A head beyond the limit, of which nothing is known.
    #[must_use]
    pub fn too_large(version: Version) -> Self {
        let checked = Err(RequestError::HeadTooLarge);
        Self { method: Method::GET, path: Bytes::new(), version, size: 0, checked }
    }
}
