//! Requests for applications that speak HTTP/1.1.

use bytes::{Bytes, BytesMut};
use http::header::{COOKIE, HOST, SEC_WEBSOCKET_KEY};
use http::{HeaderMap, StatusCode, Version};
use sendoff_config::{Proxy, ProxyAddress, ProxyHost};
use sendoff_http1::client::{HopByHop, RequestEncoder};
use sendoff_http1::takes_trailers;
use sendoff_message::request::Request;
use sendoff_upstream_gateway::{RequestProtocol, WebSocketKey, line_ends};

use crate::forwarded::AboutClient;
use crate::target::ProxyTarget;
use crate::{Unsendable, is_passed_on};

/// The head of a request, with the offer to switch the protocol that is in it.
pub(crate) fn head(
    about: AboutClient<'_>,
    proxy: &Proxy,
    host: &ProxyHost,
    may_change: bool,
) -> Result<(Bytes, RequestProtocol), Unsendable> {
    let request = about.request;
    let target = ProxyTarget::of(request, about.stripped)?;
    let hops = HopByHop::of(&request.headers);
    let upgrade = hops.upgrade().filter(|_| may_change);
    let is_keyless = upgrade.is_some() && request.version > Version::HTTP_11;
    let key = is_keyless.then(WebSocketKey::random);
    let mut out = BytesMut::with_capacity(1024);
    let head = RequestEncoder::new(&mut out, &request.method, &target.whole());
    let mut head = head.map_err(|_| {
        Unsendable::new(StatusCode::BAD_REQUEST, "its target cannot be sent in HTTP/1.1")
    })?;
    // The method and the fields were parsed before, so all of them can be written.
    let _written = head.field(b"host", host_of(request, proxy, host));
    let mut has_cookie = false;
    for (name, value) in &request.headers {
        let is_replaced = *name == HOST
            || !is_passed_on(name, &hops)
            || about.replaces(name)
            || key.is_some() && *name == SEC_WEBSOCKET_KEY;
        if is_replaced {
            continue;
        }
        if *name != COOKIE {
            head.parsed(name, value);
        } else if !has_cookie {
            has_cookie = true;
            let _written = head.field(b"cookie", &cookies(&request.headers));
        }
    }
    let mut field = |name: &str, value: &[u8]| {
        let _written = head.field(name.as_bytes(), value);
    };
    about.write(&mut field);
    if request.has_body {
        match request.body.known_len() {
            Some(len) => field("content-length", len.to_string().as_bytes()),
            None => field("transfer-encoding", b"chunked"),
        }
    }
    let takes_trailers = takes_trailers(&request.headers);
    if takes_trailers {
        field("te", b"trailers");
    }
    let closes = upgrade.is_none() && proxy.proxy_protocol;
    let options = [
        takes_trailers.then_some("te"),
        upgrade.is_some().then_some("upgrade"),
        closes.then_some("close"),
    ];
    let options: Vec<_> = options.into_iter().flatten().collect();
    if !options.is_empty() {
        field("connection", options.join(", ").as_bytes());
    }
    if let Some(protocols) = &upgrade {
        field("upgrade", protocols);
        if let Some(key) = &key {
            field("sec-websocket-key", key.as_bytes());
        }
    }
    head.finish();
    let line_ends = line_ends(proxy);
    Ok((out.freeze(), RequestProtocol::Http { upgrade: upgrade.is_some(), key, line_ends }))
}

/// All cookies as one field: an HTTP/2 client may send several (RFC 9113 §8.2.3).
pub(crate) fn cookies(headers: &HeaderMap) -> Vec<u8> {
    let values: Vec<_> = headers.get_all(COOKIE).iter().map(|value| value.as_bytes()).collect();
    values.join(&b"; "[..])
}

pub(crate) fn host_of<'a>(request: &'a Request, proxy: &'a Proxy, host: &'a ProxyHost) -> &'a [u8] {
    match (host, &request.host) {
        (ProxyHost::Client, Some(host)) => host,
        (ProxyHost::Fixed(host), _) => host.as_bytes(),
        // An HTTP/1.0 client may have named no host.
        (ProxyHost::Client | ProxyHost::Upstream, _) => match &proxy.address {
            ProxyAddress::Tcp(host_port) => host_port.as_bytes(),
            ProxyAddress::Unix(_) | ProxyAddress::Upstream(_) => b"localhost",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sendoff_config::{ForwardedFields, GatewayProtocol, ProxyTimeouts, ProxyUrls};
    use sendoff_message::request::sample::request;

    fn proxy(host: ProxyHost) -> Proxy {
        Proxy {
            address: ProxyAddress::Tcp("app.test:8080".to_owned()),
            protocol: GatewayProtocol::Http {
                host,
                tls: None,
                upgrade: true,
                bare_line_feeds: false,
            },
            forwarded: ForwardedFields::Off,
            proxy_protocol: false,
            timeouts: ProxyTimeouts::default(),
            urls: ProxyUrls::default(),
        }
    }

    fn written(request: &Request, host: ProxyHost, may_change: bool) -> String {
        let (head, _) =
            head(AboutClient::none(request), &proxy(host.clone()), &host, may_change).unwrap();
        String::from_utf8(head.to_vec()).unwrap()
    }

    #[test]
    fn a_head_has_what_concerns_the_application() {
        let mut request = request(Some("a.test"));
        request.uri = "/a?b".into();
        request.restart().unwrap();
        for (name, value) in [
            ("host", "a.test"),
            ("cookie", "a=1"),
            ("x-a", "1"),
            ("cookie", "b=2"),
            ("x-a", "2"),
            ("connection", "upgrade, x-own"),
            ("upgrade", "websocket"),
            ("x-own", "x"),
            ("te", "trailers"),
            ("expect", "100-continue"),
            ("content-length", "77"),
            ("proxy", "x"),
        ] {
            request.headers.append(name, value.parse().unwrap());
        }
        let rest = "cookie: a=1; b=2\r\nx-a: 1\r\nx-a: 2\r\n";
        assert_eq!(
            written(&request, ProxyHost::Client, true),
            format!(
                "GET /a?b HTTP/1.1\r\nhost: a.test\r\n{rest}te: trailers\r\nconnection: te, upgrade\r\nupgrade: websocket\r\n\r\n"
            )
        );
        assert_eq!(
            written(&request, ProxyHost::Upstream, false),
            format!(
                "GET /a?b HTTP/1.1\r\nhost: app.test:8080\r\n{rest}te: trailers\r\nconnection: te\r\n\r\n"
            )
        );
        request.has_body = true;
        request.body = sendoff_message::request::Body::Memory("xyz".into());
        assert_eq!(
            written(&request, ProxyHost::Fixed("x.test".to_owned()), false),
            format!(
                "GET /a?b HTTP/1.1\r\nhost: x.test\r\n{rest}content-length: 3\r\nte: trailers\r\nconnection: te\r\n\r\n"
            )
        );
    }
}
