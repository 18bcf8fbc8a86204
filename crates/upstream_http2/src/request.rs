//! A request, and the choice between a shared connection and one of its own.
//!
//! A host may end the whole connection because it dislikes one request, and with it the responses
//! to all other requests there. Measured: nginx 1.22 ends it for a field of more than 8 KiB in
//! Huffman code, and for any trailers; HAProxy 2.6 for a head of more than 16 KiB. Such a request
//! has a connection of its own. So has a request that is repeated after its connection has ended
//! with an error, which it may have caused.

use std::cell::Cell;

use http::{HeaderMap, HeaderName, Request};
use sendoff_http1::Trailers;
use sendoff_message::request::Body;

use crate::websocket::WebSocketOffer;

/// The largest field on a shared connection, in bytes of its Huffman code: the limit of nginx before
/// 1.19.7 (`http2_max_field_size`). Later versions take 8 KiB, Apache 8,190 bytes.
const FIELD: usize = 4 * 1024;

/// The largest head on a shared connection, as `SETTINGS_MAX_HEADER_LIST_SIZE` counts (RFC 9113
/// §6.5.2): the limit of Netty and of gRPC for Java. HAProxy takes 16 KiB, nginx 32 KiB, Envoy 60
/// KiB, Go 1 MiB.
const HEAD: usize = 8 * 1024;

/// The most fields on a shared connection. Apache, Envoy, Tomcat and HAProxy (`tune.http.maxhdr`)
/// take about 100, among them those that the host adds.
const FIELDS: usize = 64;

/// Bytes that each field counts in addition to its name and value (RFC 7541 §4.1).
const OVERHEAD: usize = 32;

/// A request for a host that speaks HTTP/2. It may be sent again on another stream, unless its body
/// is still arriving.
#[derive(Debug)]
pub struct Http2Request {
    pub(crate) head: Request<()>,
    pub(crate) body: Body,
    pub(crate) trailers: RequestTrailers,
    pub(crate) websocket: Option<WebSocketOffer>,
    sharing: Cell<Sharing>,
}

/// The fields behind the body of a request.
#[derive(Debug)]
pub enum RequestTrailers {
    /// None are sent. If the body is still arriving, its trailers are dropped.
    None,
    /// The fields behind a body that is complete.
    Known(Trailers),
    /// The client has announced fields behind a body that is still arriving. Fields with the names
    /// `without` are dropped.
    Announced {
        /// In any order.
        without: Vec<HeaderName>,
    },
}

/// The other requests on the connection of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Any.
    Shared,
    /// None, now and later.
    Alone,
}

impl Http2Request {
    /// A request. The URI of `head` has the scheme and the authority, too.
    #[must_use]
    pub fn new(head: Request<()>, body: Body, trailers: RequestTrailers) -> Self {
        let is_usual = matches!(trailers, RequestTrailers::None) && is_usual(&head);
        let sharing = if is_usual { Sharing::Shared } else { Sharing::Alone };
        Self { head, body, trailers, websocket: None, sharing: Cell::new(sharing) }
    }

    /// The same request, which a host that takes WebSockets on streams gets as an offer of one.
    #[must_use]
    pub fn offering(self, websocket: Option<WebSocketOffer>) -> Self {
        Self { websocket, ..self }
    }

    pub(crate) fn sharing(&self) -> Sharing {
        self.sharing.get()
    }

    /// Keeps the request away from shared connections: it may be the cause of the end of one.
    pub(crate) fn isolate(&self) {
        self.sharing.set(Sharing::Alone);
    }
}

/// True for a head that all common hosts take by default.
fn is_usual(head: &Request<()>) -> bool {
    let uri = head.uri();
    let path = uri.path_and_query().map_or("", |path| path.as_str());
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let pseudo = [
        (":method", head.method().as_str()),
        (":scheme", uri.scheme_str().unwrap_or_default()),
        (":authority", authority),
        (":path", path),
    ];
    let pseudo = pseudo.into_iter().map(|(name, value)| (name, value.as_bytes()));
    fits(pseudo.chain(all(head.headers())))
}

fn all(fields: &HeaderMap) -> impl Iterator<Item = (&str, &[u8])> {
    fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))
}

fn fits<'f>(fields: impl Iterator<Item = (&'f str, &'f [u8])>) -> bool {
    let (mut count, mut sum) = (0, 0);
    for (name, value) in fields {
        let len = name.len() + coded(value);
        count += 1;
        sum += len + OVERHEAD;
        if len > FIELD || sum > HEAD || count > FIELDS {
            return false;
        }
    }
    true
}

/// The most bytes of a value in the Huffman code of HPACK, in which h2 sends each string, and of the
/// value itself.
fn coded(value: &[u8]) -> usize {
    value.iter().map(|&byte| usize::from(CODED[usize::from(byte)])).sum()
}

/// Whole bytes of the code of each byte (RFC 7541, appendix B): of 5 to 8 bits for what is frequent,
/// up to 15 bits for other printable characters, and up to 30 bits for the rest.
const CODED: [u8; 256] = {
    let mut coded = [4; 256];
    let mut byte = b' ';
    while byte <= b'~' {
        coded[byte as usize] = match byte {
            b'\\' => 4,
            b' ' | b'%' | b'&' | b'*' | b',' | b'-' | b'.' | b'/' | b':' | b';' | b'=' | b'_' => 1,
            _ if byte.is_ascii_alphanumeric() => 1,
            _ => 2,
        };
        byte += 1;
    }
    coded
};

#[cfg(test)]
mod tests {
    use super::*;

    fn sharing(uri: &str, fields: &[(&str, String)]) -> Sharing {
        let mut head = Request::get(uri);
        for (name, value) in fields {
            head = head.header(*name, value.as_bytes());
        }
        let head = head.body(()).unwrap();
        Http2Request::new(head, Body::default(), RequestTrailers::None).sharing()
    }

    #[test]
    fn an_unusual_head_is_sent_alone() {
        let many = |count| {
            let names: Vec<_> = (0..count).map(|number| format!("x-{number}")).collect();
            let fields: Vec<_> = names.iter().map(|name| (&**name, "a".to_owned())).collect();
            sharing("http://a.test/", &fields)
        };
        assert_eq!((many(60), many(61)), (Sharing::Shared, Sharing::Alone));
        let one = |value: &str, times| sharing("http://a.test/", &[("x-a", value.repeat(times))]);
        for (value, times) in [("a", 4093), ("+", 2046), ("\\", 1023), ("ÿ", 511)] {
            assert_eq!(one(value, times), Sharing::Shared, "{value}");
            assert_eq!(one(value, times + 1), Sharing::Alone, "{value}");
        }
        let three = |len| {
            let fields = ["x-a", "x-b", "x-c"].map(|name| (name, "a".repeat(len)));
            sharing("http://a.test/", &fields)
        };
        assert_eq!((three(2600), three(2700)), (Sharing::Shared, Sharing::Alone));
        let path = |len| sharing(&format!("http://a.test/{}", "a".repeat(len)), &[]);
        assert_eq!((path(4090), path(4091)), (Sharing::Shared, Sharing::Alone));
    }

    #[test]
    fn a_request_with_trailers_is_sent_alone() {
        let head = Request::post("http://a.test/").body(()).unwrap();
        let without = Vec::new();
        let request =
            Http2Request::new(head, Body::default(), RequestTrailers::Announced { without });
        assert_eq!(request.sharing(), Sharing::Alone);
    }
}
