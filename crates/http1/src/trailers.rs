//! The fields behind a body, and the names that may not be among them.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::TE;
use http::{HeaderMap, HeaderName};

use crate::cgi_head::HOP_BY_HOP;
use crate::framing::list;
use crate::head::is_passed_on;
use crate::response::push_field;

/// Fields that have no meaning behind a body, or that a recipient must know before it (RFC 9110
/// §6.5.1): framing, routing, request modifiers, authentication, response control data, the format
/// of the content, and statements of proxies about the client. A recipient that merged one of them
/// into the head would read another message.
const ONLY_IN_HEADS: [&str; 38] = [
    "age",
    "authorization",
    "cache-control",
    "client-ip",
    "content-encoding",
    "content-length",
    "content-location",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "expect",
    "expires",
    "forwarded",
    "host",
    "http2-settings",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "location",
    "max-forwards",
    "pragma",
    "proxy",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "refresh",
    "remote-user",
    "retry-after",
    "set-cookie",
    "status",
    "true-client-ip",
    "vary",
    "via",
    "warning",
    "www-authenticate",
];

/// Beginnings of the names of fields that servers obey, or that proxies set and applications trust.
/// They count in heads only.
const OBEYED: [&str; 18] = [
    "cf-",
    "ssl-",
    "x-accel-",
    "x-client-",
    "x-cluster-client-",
    "x-forwarded-",
    "x-http-method",
    "x-litespeed-",
    "x-method-override",
    "x-original-",
    "x-real-ip",
    "x-remote-",
    "x-reproxy-",
    "x-rewrite-",
    "x-sendfile",
    "x-sendoff",
    "x-ssl-",
    "x-zerocopy",
];

/// The fields behind a body that may be passed on (RFC 9110 §6.5); at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trailers(HeaderMap);

impl Trailers {
    /// The fields of a trailer section that may be passed on; `None` if there are none.
    #[must_use]
    pub fn of(received: HeaderMap) -> Option<Self> {
        if received.keys().all(may_pass) {
            return (!received.is_empty()).then_some(Self(received));
        }
        let mut fields = HeaderMap::new();
        for (name, value) in received.iter().filter(|(name, _)| may_pass(name)) {
            fields.append(name.clone(), value.clone());
        }
        (!fields.is_empty()).then_some(Self(fields))
    }

    /// The same for a request: of the names that differ only in characters other than letters and
    /// digits, those with `-` are passed on, as with fields of the head.
    #[must_use]
    pub fn of_request(received: HeaderMap) -> Option<Self> {
        let Self(mut fields) = Self::of(received)?;
        let unwanted: Vec<_> =
            fields.keys().filter(|name| !is_passed_on(name.as_str().as_bytes())).cloned().collect();
        for name in unwanted {
            fields.remove(name);
        }
        (!fields.is_empty()).then_some(Self(fields))
    }

    /// These fields but for those with one of these names; `None` if there are no others.
    #[must_use]
    pub fn without(mut self, names: &[HeaderName]) -> Option<Self> {
        names.iter().for_each(|name| drop(self.0.remove(name)));
        (!self.0.is_empty()).then_some(self)
    }

    /// The fields.
    #[must_use]
    pub fn fields(&self) -> &HeaderMap {
        &self.0
    }

    /// The fields, without a copy.
    #[must_use]
    pub fn into_fields(self) -> HeaderMap {
        self.0
    }

    /// The end of a chunked body: the last chunk and the trailer section (RFC 9112 §7.1.2).
    #[must_use]
    pub fn last_chunk(&self) -> Bytes {
        let mut out = BytesMut::from(&b"0\r\n"[..]);
        for (name, value) in &self.0 {
            push_field(&mut out, name.as_str().as_bytes(), value.as_bytes());
        }
        out.put_slice(b"\r\n");
        out.freeze()
    }
}

/// True if the sender of a request with these fields reads trailers (RFC 9110 §10.1.4).
#[must_use]
pub fn takes_trailers(request: &HeaderMap) -> bool {
    list(request, &TE).any(|member| member.eq_ignore_ascii_case(b"trailers"))
}

fn may_pass(name: &HeaderName) -> bool {
    let name = name.as_str();
    !HOP_BY_HOP.contains(&name)
        && !ONLY_IN_HEADS.contains(&name)
        && !OBEYED.iter().any(|obeyed| name.starts_with(obeyed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trailers(fields: &[(&'static str, &'static str)]) -> Option<Trailers> {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(*name, value.parse().unwrap());
        }
        Trailers::of(map)
    }

    #[test]
    fn fields_of_heads_are_dropped() {
        let mut all: Vec<_> = HOP_BY_HOP.into_iter().chain(ONLY_IN_HEADS).collect();
        all.extend(["x-accel-redirect", "x-forwarded-for", "x-sendfile", "x-remote-user"]);
        for name in &all {
            assert_eq!(trailers(&[(name, "1")]), None, "{name}");
        }
        let mut fields: Vec<_> = all.into_iter().map(|name| (name, "1")).collect();
        fields.extend([("grpc-status", "0"), ("x-a", "1"), ("etag", "\"e\""), ("x-a", "2")]);
        let kept = [("grpc-status", "0"), ("x-a", "1"), ("x-a", "2"), ("etag", "\"e\"")];
        assert_eq!(trailers(&fields), trailers(&kept));
    }

    #[test]
    fn they_follow_the_last_chunk() {
        let trailers = trailers(&[("x-a", "1"), ("x-b", ""), ("x-a", "2")]).unwrap();
        assert_eq!(trailers.last_chunk(), "0\r\nx-a: 1\r\nx-a: 2\r\nx-b: \r\n\r\n");
    }
}
