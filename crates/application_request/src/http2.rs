//! Requests for applications that speak HTTP/2.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, COOKIE, HOST, SEC_WEBSOCKET_KEY, TE, TRAILER};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Request as Head, StatusCode, Uri, Version};
use percent_encoding::percent_encode;
use sendoff_config::{Proxy, ProxyHost};
use sendoff_http1::client::HopByHop;
use sendoff_http1::takes_trailers;
use sendoff_message::request::{Body, NOT_IN_URI, Request};
use sendoff_upstream_gateway::websocket_answer;
use sendoff_upstream_http2::{RequestTrailers, WebSocketOffer};

use crate::forwarded::AboutClient;
use crate::http1::{cookies, host_of};
use crate::target::ProxyTarget;
use crate::{Unsendable, is_passed_on};

/// The head of a request: its authority is the host, and no field concerns a connection.
pub(crate) fn head(
    about: AboutClient<'_>,
    proxy: &Proxy,
    host: &ProxyHost,
    is_tls: bool,
) -> Result<Head<()>, Unsendable> {
    let request = about.request;
    let target = ProxyTarget::of(request, about.stripped)?.whole().into_owned();
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(if is_tls { Scheme::HTTPS } else { Scheme::HTTP });
    let authority = Bytes::copy_from_slice(host_of(request, proxy, host));
    uri.authority = Authority::from_maybe_shared(authority).ok();
    uri.path_and_query = path_and_query(target);
    let is_whole = uri.authority.is_some() && uri.path_and_query.is_some();
    let uri = Uri::from_parts(uri).ok().filter(|_| is_whole).ok_or_else(|| {
        Unsendable::new(StatusCode::BAD_REQUEST, "its target cannot be sent in HTTP/2")
    })?;
    let mut head = Head::new(());
    *head.method_mut() = request.method.clone();
    *head.uri_mut() = uri;
    *head.headers_mut() = fields(about);
    Ok(head)
}

/// The offer of a WebSocket in a request with this head. Clients of HTTP/2 and HTTP/3 send no key.
pub(crate) fn websocket(request: &Request, head: &Head<()>) -> Option<WebSocketOffer> {
    let offered = HopByHop::of(&request.headers).upgrade()?;
    let mut offered = offered.split(|byte| *byte == b',');
    if !offered.any(|name| name.trim_ascii().eq_ignore_ascii_case(b"websocket")) {
        return None;
    }
    let key = match request.version > Version::HTTP_11 {
        true => None,
        false => Some(request.headers.get(SEC_WEBSOCKET_KEY)?.as_bytes().trim_ascii()),
    };
    let answer = key.map(|key| Bytes::copy_from_slice(&websocket_answer(key)));
    Some(WebSocketOffer::new(head, answer))
}

/// The fields behind the body, but for fields that rules of the server have set or removed. A request
/// with trailers needs a connection of its own, so trailers of a body that is still arriving must
/// have been announced.
pub(crate) fn trailers(request: &Request) -> RequestTrailers {
    if let Body::Stream(_) = request.body {
        let are_announced = request.headers.contains_key(TRAILER);
        return match are_announced {
            true => RequestTrailers::Announced { without: request.ruled.clone() },
            false => RequestTrailers::None,
        };
    }
    let passed = request.trailers.clone().and_then(|trailers| trailers.without(&request.ruled));
    passed.map_or(RequestTrailers::None, RequestTrailers::Known)
}

/// The value without blanks at its ends, which make a field malformed (RFC 9113 §8.2.1): some hosts
/// end the connection for it.
fn trimmed(value: &HeaderValue) -> HeaderValue {
    let bytes = value.as_bytes();
    let inner = bytes.trim_ascii();
    // A part of a valid value is valid.
    let shorter = (inner.len() < bytes.len()).then(|| HeaderValue::from_bytes(inner));
    shorter.and_then(Result::ok).unwrap_or_else(|| value.clone())
}

fn path_and_query(target: Vec<u8>) -> Option<PathAndQuery> {
    let target = Bytes::from(target);
    // HTTP/1.1 clients send some characters that no URI has.
    PathAndQuery::from_maybe_shared(target.clone()).ok().or_else(|| {
        let encoded = percent_encode(&target, NOT_IN_URI).to_string();
        PathAndQuery::from_maybe_shared(encoded).ok()
    })
}

fn fields(about: AboutClient<'_>) -> HeaderMap {
    let request = about.request;
    let hops = HopByHop::of(&request.headers);
    let mut fields = HeaderMap::with_capacity(request.headers.len() + 8);
    for (name, value) in &request.headers {
        let is_replaced =
            matches!(*name, HOST | COOKIE) || !is_passed_on(name, &hops) || about.replaces(name);
        if !is_replaced {
            fields.append(name.clone(), trimmed(value));
        }
    }
    let mut field = |name: &str, value: &[u8]| {
        // The server's own values, and the client's checked ones, are valid.
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.trim_ascii())) {
            fields.insert(name, value);
        }
    };
    if request.headers.contains_key(COOKIE) {
        field("cookie", &cookies(&request.headers));
    }
    about.write(&mut field);
    if takes_trailers(&request.headers) {
        fields.insert(TE, HeaderValue::from_static("trailers"));
    }
    if let Some(len) = request.body.known_len().filter(|_| request.has_body) {
        fields.insert(CONTENT_LENGTH, HeaderValue::from(len));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use sendoff_config::{
        ForwardedFields, GatewayProtocol, ProxyAddress, ProxyTimeouts, ProxyUrls,
    };
    use sendoff_message::request::sample::request;

    fn proxy() -> Proxy {
        Proxy {
            address: ProxyAddress::Tcp("app.test:8080".to_owned()),
            protocol: GatewayProtocol::Http2 {
                host: ProxyHost::Client,
                tls: None,
                upgrade: true,
                grpc_web: false,
            },
            forwarded: ForwardedFields::Off,
            proxy_protocol: false,
            timeouts: ProxyTimeouts::default(),
            urls: ProxyUrls::default(),
        }
    }

    fn asked(uri: &'static str) -> Request {
        let mut request = request(Some("a.test:81"));
        request.uri = uri.into();
        request.restart().unwrap();
        request
    }

    #[test]
    fn no_field_of_the_connection_is_sent() {
        let mut request = asked("/a?b");
        for (name, value) in [
            ("host", "a.test:81"),
            ("cookie", "a=1"),
            ("cookie", "b=2"),
            ("connection", "x-own, te"),
            ("x-own", "x"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("grpc-timeout", "10S"),
            ("expect", "100-continue"),
            ("x-blank", "a b"),
        ] {
            request.headers.append(name, value.parse().unwrap());
        }
        request.headers.insert("x-blank", HeaderValue::from_bytes(b" a b\t").unwrap());
        let head = head(AboutClient::none(&request), &proxy(), &ProxyHost::Client, false).unwrap();
        assert_eq!(head.uri(), "http://a.test:81/a?b");
        let sent: Vec<_> = head
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        assert_eq!(sent, ["grpc-timeout: 10S", "x-blank: a b", "cookie: a=1; b=2", "te: trailers"]);
    }

    #[test]
    fn the_target_is_the_clients() {
        for (uri, host, is_tls, expected) in [
            ("/a%20b//c?d=%", ProxyHost::Client, false, "http://a.test:81/a%20b//c?d=%"),
            ("/a<b>?\"`", ProxyHost::Upstream, true, "https://app.test:8080/a%3Cb%3E?%22%60"),
            ("/", ProxyHost::Fixed("b.test".to_owned()), true, "https://b.test/"),
        ] {
            let head = head(AboutClient::none(&asked(uri)), &proxy(), &host, is_tls).unwrap();
            assert_eq!(head.uri(), expected);
        }
    }
}
