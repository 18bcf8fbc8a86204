//! From an HTTP/1 head to a request.

use sendoff_http1::{BodyFraming, Head};

use crate::request::{BadPath, Body, Origin, Request, Scheme, decode_path};

/// The request with this head, without its body.
///
/// # Errors
/// The path cannot be decoded.
pub(super) fn request(head: Head, scheme: Scheme, origin: &Origin) -> Result<Request, BadPath> {
    let target = head.target;
    let path = if target.is_asterisk() { b"/".to_vec() } else { decode_path(&target.path())? };
    Ok(Request {
        method: head.method,
        target: target.raw().clone(),
        uri: target.uri().clone(),
        path,
        query: target.query(),
        host: head.host,
        headers: head.headers,
        version: head.version,
        scheme,
        body: Body::default(),
        has_body: head.framing != BodyFraming::None,
        listener: origin.listener,
        peer: origin.peer.clone(),
        local: origin.local.clone(),
    })
}
