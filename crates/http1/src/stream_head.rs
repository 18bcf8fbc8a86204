//! Request heads from HTTP/2 (RFC 9113 §8.3) and HTTP/3 (RFC 9114 §4.3), checked by the rules of HTTP/1.1: handlers and
//! applications do not see the difference between the versions.

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};

use crate::framing::expect_continue;
use crate::head::{Limits, MAX_FIELDS, is_passed_on, is_unique};
use crate::request_line::check_method;
use crate::target::is_host;
use crate::{BodyFraming, Head, RequestError, Target};

/// A request head as HTTP/2 and HTTP/3 have it: pseudo-header fields apart from the others, no
/// connection-specific fields.
#[derive(Debug)]
pub struct StreamHead {
    /// HTTP/2 or HTTP/3.
    pub version: Version,
    /// `:method`.
    pub method: Method,
    /// `:path`.
    pub path: Bytes,
    /// `:protocol`, the protocol of a tunnel (RFC 8441 §4).
    pub protocol: Option<Bytes>,
    /// `:authority`.
    pub authority: Option<Bytes>,
    /// The other fields.
    pub fields: HeaderMap,
    /// True if the request has no body.
    pub ends: bool,
}

impl StreamHead {
    /// Checks the head and converts it to the form of HTTP/1.1: `Host` is the authority, there is at
    /// most one `Cookie` field, and a WebSocket is asked for by GET with `Upgrade`.
    ///
    /// # Errors
    /// The request is refused; the connection stays usable.
    pub fn check(self, limits: Limits) -> Result<Head, RequestError> {
        let Self { version, mut method, path, protocol, authority, mut fields, ends } = self;
        let is_tunnel = method == Method::CONNECT;
        if is_tunnel {
            if !protocol.is_some_and(|name| name.eq_ignore_ascii_case(b"websocket")) {
                return Err(RequestError::Tunnel);
            }
            method = Method::GET;
            // What follows is no body.
            fields.remove(CONTENT_LENGTH);
            fields.remove(EXPECT);
        }
        check_method(&method)?;
        if path.len() > limits.request_line {
            return Err(RequestError::TargetTooLong);
        }
        // Schemes and authorities have fields of their own.
        if path.first() != Some(&b'/') && path != "*" {
            return Err(RequestError::Malformed("the path is not valid"));
        }
        let (target, _) = Target::parse(path, &method)?;
        let mut headers = checked_fields(fields)?;
        let host = host(&mut headers, authority)?;
        let mut framing = BodyFraming::of(&headers, version)?;
        if is_tunnel {
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        } else if framing == BodyFraming::None && !ends {
            // A frame ends the body, as a last chunk would.
            framing = BodyFraming::Chunked;
        }
        Ok(Head {
            keep_alive: true,
            // An unknown expectation is refused, with or without a body.
            expect_continue: expect_continue(&headers, version, framing)? && !ends,
            method,
            target,
            version,
            headers,
            framing,
            host: Some(host),
        })
    }
}

/// The fields that are passed on, as [`HeadDecoder`](crate::HeadDecoder) chooses them.
fn checked_fields(fields: HeaderMap) -> Result<HeaderMap, RequestError> {
    if are_plain(&fields) {
        return Ok(fields);
    }
    let mut headers = HeaderMap::with_capacity(fields.keys_len());
    let mut cookies = BytesMut::new();
    let mut count = 0;
    let mut last = None;
    for (name, value) in fields {
        // Further values of a field come without its name.
        last = name.or(last);
        let Some(name) = &last else { continue };
        // RFC 9113 §8.2.1.
        if let [b' ' | b'\t', ..] | [.., b' ' | b'\t'] = value.as_bytes() {
            return Err(RequestError::Malformed("a field value begins or ends with a blank"));
        }
        if *name == COOKIE {
            // RFC 9113 §8.2.3: clients may send each pair in a field of its own.
            if !cookies.is_empty() {
                cookies.extend_from_slice(b"; ");
            }
            cookies.extend_from_slice(value.as_bytes());
            continue;
        }
        count += 1;
        if count > MAX_FIELDS {
            return Err(RequestError::HeadTooLarge);
        }
        if is_passed_on(name.as_str().as_bytes()) && headers.append(name, value) && is_unique(name)
        {
            return Err(RequestError::Malformed("more than one Authorization or Content-Type"));
        }
    }
    if !cookies.is_empty() {
        let value = HeaderValue::from_maybe_shared(cookies.freeze())
            .map_err(|_| RequestError::Malformed("a field value is not valid"))?;
        headers.insert(COOKIE, value);
    }
    Ok(headers)
}

/// True if all fields are passed on unchanged: none is dropped, joined or refused. Most requests
/// are like this, and need no second map.
fn are_plain(fields: &HeaderMap) -> bool {
    let is_plain = |(name, value): (&HeaderName, &HeaderValue)| {
        let has_blanks = matches!(value.as_bytes(), [b' ' | b'\t', ..] | [.., b' ' | b'\t']);
        !has_blanks && is_passed_on(name.as_str().as_bytes())
    };
    let is_each_once = fields.len() == fields.keys_len();
    fields.len() <= MAX_FIELDS && is_each_once && fields.iter().all(is_plain)
}

/// The authority (RFC 9113 §8.3.1): `:authority`, or `Host` without it. Two different ones are
/// refused, because a proxy in front may have used the other one.
fn host(headers: &mut HeaderMap, authority: Option<Bytes>) -> Result<Bytes, RequestError> {
    let mut values = headers.get_all(HOST).iter();
    let sent = match (values.next(), values.next()) {
        (sent, None) => sent.map(|value| Bytes::copy_from_slice(value.as_bytes())),
        (_, Some(_)) => return Err(RequestError::Malformed("more than one Host field")),
    };
    let host = match (authority, sent) {
        (Some(authority), Some(sent)) if !authority.eq_ignore_ascii_case(&sent) => {
            return Err(RequestError::Malformed(":authority and Host differ"));
        }
        (Some(authority), _) => authority,
        (None, Some(sent)) => sent,
        (None, None) => return Err(RequestError::Malformed("neither :authority nor Host")),
    };
    if !is_host(&host) {
        return Err(RequestError::Malformed("the authority is not valid"));
    }
    let value = HeaderValue::from_maybe_shared(host.clone())
        .map_err(|_| RequestError::Malformed("the authority is not valid"))?;
    headers.insert(HOST, value);
    Ok(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &[(&str, &str)]) -> StreamHead {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        StreamHead {
            version: Version::HTTP_2,
            method: Method::GET,
            path: "/a?b".into(),
            protocol: None,
            authority: Some("a.example".into()),
            fields: map,
            ends: true,
        }
    }

    fn refused(head: StreamHead) -> RequestError {
        head.check(Limits::default()).unwrap_err()
    }

    #[test]
    fn it_becomes_a_head_of_http_1() {
        let fields =
            [("cookie", "a=1"), ("x-a", "1"), ("cookie", "b=2"), ("x_b", "2"), ("x-a", "3")];
        let head = head(&fields).check(Limits::default()).unwrap();
        assert_eq!((&head.target.path()[..], head.target.query()), (&b"/a"[..], Some("b".into())));
        assert_eq!(head.headers["cookie"], "a=1; b=2");
        assert_eq!(head.headers.get_all("x-a").iter().collect::<Vec<_>>(), ["1", "3"]);
        assert!(!head.headers.contains_key("x_b"), "CGI would take it for x-b");
        assert_eq!(
            (head.headers["host"].as_bytes(), head.host),
            (&b"a.example"[..], Some("a.example".into()))
        );
        assert_eq!((head.framing, head.version), (BodyFraming::None, Version::HTTP_2));
    }

    #[test]
    fn the_authority_is_clear() {
        for (authority, hosts, expected) in [
            (Some("a"), &["A"][..], Some("a")),
            (Some("a:1"), &[], Some("a:1")),
            (None, &["b"], Some("b")),
            (Some("a"), &["b"], None),
            (Some("a"), &["a", "a"], None),
            (None, &[], None),
            (None, &[""], None),
            (Some("user@a"), &[], None),
            (Some("a/b"), &[], None),
        ] {
            let fields: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
            let mut head = head(&fields);
            head.authority = authority.map(|text| Bytes::from_static(text.as_bytes()));
            let host = head.check(Limits::default()).ok().and_then(|head| head.host);
            assert_eq!(host.as_deref(), expected.map(str::as_bytes), "{authority:?} {hosts:?}");
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for fields in [
            &[("x", " a")][..],
            &[("x", "a\t")],
            &[("authorization", "a"), ("authorization", "b")],
            &[("content-type", "a"), ("content-type", "a")],
            &[("content-length", "1"), ("content-length", "1")],
            &[("content-length", "+1")],
        ] {
            assert!(matches!(refused(head(fields)), RequestError::Malformed(_)), "{fields:?}");
        }
        for path in ["", "*", "a", "?a", "http://a.example/", "/a#b"] {
            let head = StreamHead { path: path.into(), ..head(&[]) };
            assert!(matches!(refused(head), RequestError::Malformed(_)), "{path}");
        }
        for method in ["get", "Post", "PROPfIND"] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let head = StreamHead { method: method.clone(), ..head(&[]) };
            assert!(matches!(refused(head), RequestError::Malformed(_)), "{method}");
        }
        let all = StreamHead { path: "*".into(), method: Method::OPTIONS, ..head(&[]) };
        assert!(all.check(Limits::default()).unwrap().target.is_asterisk());
        assert_eq!(
            refused(StreamHead { method: Method::CONNECT, ..head(&[]) }),
            RequestError::Tunnel
        );
        let long = format!("/{}", "a".repeat(8 * 1024));
        assert_eq!(
            refused(StreamHead { path: long.into(), ..head(&[]) }),
            RequestError::TargetTooLong
        );
        let names: Vec<_> = (0..=MAX_FIELDS).map(|number| format!("x-{number}")).collect();
        let many: Vec<_> = names.iter().map(|name| (&name[..], "")).collect();
        assert_eq!(refused(head(&many)), RequestError::HeadTooLarge);
    }

    #[test]
    fn a_websocket_is_asked_for_as_in_http_1() {
        let connect = |protocol: Option<&'static str>| StreamHead {
            method: Method::CONNECT,
            protocol: protocol.map(Bytes::from),
            ends: false,
            ..head(&[("content-length", "9"), ("expect", "100-continue")])
        };
        let head = connect(Some("WebSocket")).check(Limits::default()).unwrap();
        assert_eq!((head.method, head.framing), (Method::GET, BodyFraming::None));
        assert_eq!(
            (&head.headers["upgrade"], &head.headers["connection"]),
            (&"websocket".parse().unwrap(), &"upgrade".parse().unwrap())
        );
        assert!(!head.expect_continue && !head.headers.contains_key("content-length"));
        for protocol in [None, Some("connect-udp"), Some("h2c"), Some("websocket, h2c")] {
            assert_eq!(refused(connect(protocol)), RequestError::Tunnel, "{protocol:?}");
        }
    }

    #[test]
    fn a_body_has_a_length_or_an_end() {
        for (length, ends, framing) in [
            (None, true, BodyFraming::None),
            (None, false, BodyFraming::Chunked),
            (Some("0"), true, BodyFraming::Length(0)),
            (Some("7"), false, BodyFraming::Length(7)),
        ] {
            let fields: Vec<_> =
                length.map(|length| ("content-length", length)).into_iter().collect();
            let head = StreamHead { ends, ..head(&fields) }.check(Limits::default()).unwrap();
            assert_eq!(head.framing, framing);
        }
        let unknown = head(&[("expect", "the-impossible")]);
        assert_eq!(refused(unknown), RequestError::UnknownExpectation);
        let fields = [("expect", "100-continue")];
        assert!(
            StreamHead { ends: false, ..head(&fields) }
                .check(Limits::default())
                .unwrap()
                .expect_continue
        );
        assert!(!head(&fields).check(Limits::default()).unwrap().expect_continue);
    }
}
