//! A request for tests.

use http::{HeaderMap, Method, Version};

use super::{Body, Endpoint, Request, Scheme};

/// A request of `/` that came over HTTP/1.1 from this machine, with this `Host`.
#[must_use]
#[expect(clippy::missing_panics_doc, reason = "the addresses are valid")]
pub fn request(host: Option<&str>) -> Request {
    Request {
        method: Method::GET,
        target: "/".into(),
        uri: "/".into(),
        path: b"/".to_vec(),
        query: None,
        host: host.map(|host| host.to_owned().into()),
        headers: HeaderMap::new(),
        version: Version::HTTP_11,
        scheme: Scheme::Http,
        tls: None,
        port: Some(80),
        body: Body::default(),
        has_body: false,
        trailers: None,
        ruled: Vec::new(),
        is_internal_redirect: false,
        id: None,
        trace: None,
        listener: 0,
        peer: Endpoint::Ip("127.0.0.1:5".parse().expect("an address")),
        via: None,
        local: Endpoint::Ip("127.0.0.1:80".parse().expect("an address")),
    }
}
