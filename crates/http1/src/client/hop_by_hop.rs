//! The fields of a client's request that are not passed on to the next server.

use http::header::CONNECTION;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::cgi_head::HOP_BY_HOP;
use crate::framing::list;

/// Request fields beside [`HOP_BY_HOP`] that are not passed on: fields that the next server would
/// read as an offer or a question about its own connection, and framing, which the encoder writes
/// anew.
const NOT_PASSED_ON: [&str; 5] =
    ["content-length", "expect", "http2-settings", "proxy-authenticate", "proxy-authorization"];

/// Fields by which proxies describe the client. Applications would believe the values of a client,
/// and a client cannot take them away from an application.
const ABOUT_THE_CLIENT: [&str; 6] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
];

/// The fields of a request that concern the client's connection only (RFC 9110 §7.6.1).
#[derive(Debug)]
pub struct HopByHop<'h> {
    headers: &'h HeaderMap,
    /// The options in `Connection`.
    options: Vec<&'h [u8]>,
}

impl<'h> HopByHop<'h> {
    /// For the request with these fields.
    #[must_use]
    pub fn of(headers: &'h HeaderMap) -> Self {
        let options = list(headers, &CONNECTION).collect();
        Self { headers, options }
    }

    /// True if this field concerns the connection only.
    #[must_use]
    pub fn is(&self, name: &HeaderName) -> bool {
        is_never_passed_on(name) || self.nominates(name)
    }

    /// True if `Connection` names this field, which would be passed on otherwise.
    #[must_use]
    pub fn nominates(&self, name: &HeaderName) -> bool {
        self.names(name.as_str()) && !is_never_passed_on(name) && !is_about_client(name)
    }

    /// True if `Connection` names the field or option, which is given in lower case.
    #[must_use]
    pub fn names(&self, option: &str) -> bool {
        self.options.iter().any(|named| named.eq_ignore_ascii_case(option.as_bytes()))
    }

    /// The protocols that the client offers to change to, without `h2c`: an application that
    /// changed to HTTP/2 would receive further requests without the checks of this server.
    #[must_use]
    pub fn upgrade(&self) -> Option<Vec<u8>> {
        if !self.names("upgrade") {
            return None;
        }
        let offered = list(self.headers, &http::header::UPGRADE);
        let passed = offered.filter(|offer| !offer.is_empty() && !is_http2(offer));
        let joined = passed.collect::<Vec<_>>().join(&b", "[..]);
        (!joined.is_empty()).then_some(joined)
    }
}

/// Has `Connection` no longer name this field: a rule of the server has set it, so it is not the
/// client's to take away.
pub fn claim(headers: &mut HeaderMap, name: &HeaderName) {
    let hops = HopByHop::of(headers);
    if !hops.nominates(name) {
        return;
    }
    let is_other = |option: &&&[u8]| !option.eq_ignore_ascii_case(name.as_str().as_bytes());
    let others: Vec<_> = hops.options.iter().filter(is_other).copied().collect();
    // Members of a valid value are valid.
    if let Ok(others) = HeaderValue::from_bytes(&others.join(&b", "[..])) {
        headers.insert(CONNECTION, others);
    }
}

/// Removes the fields that `Connection` names, as an intermediary must before it passes a request
/// on (RFC 9110 §7.6.1).
pub fn remove_nominated(headers: &mut HeaderMap) {
    let hops = HopByHop::of(headers);
    let nominated: Vec<_> = headers.keys().filter(|name| hops.nominates(name)).cloned().collect();
    for name in nominated {
        headers.remove(name);
    }
}

/// True for a field by which proxies describe the client: `X-Forwarded-*`, or `Forwarded` (RFC 7239).
#[must_use]
pub fn is_about_client(name: &HeaderName) -> bool {
    ABOUT_THE_CLIENT.contains(&name.as_str())
}

fn is_never_passed_on(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(&name.as_str()) || NOT_PASSED_ON.contains(&name.as_str())
}

/// True for `h2c` and `http`, with or without a version behind a slash.
fn is_http2(offer: &[u8]) -> bool {
    let name = offer.split(|&byte| byte == b'/').next().unwrap_or_default();
    name.eq_ignore_ascii_case(b"h2c") || name.eq_ignore_ascii_case(b"http")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn what_the_connection_field_names_stays_here() {
        let headers = headers(&[("connection", "Close, X-Secret"), ("connection", "x-other")]);
        let hops = HopByHop::of(&headers);
        for name in ["connection", "te", "x-secret", "x-other", "upgrade", "expect"] {
            assert!(hops.is(&HeaderName::from_static(name)), "{name}");
        }
        assert!(!hops.is(&HeaderName::from_static("cookie")));
    }

    #[test]
    fn a_field_that_a_rule_has_set_is_not_the_clients() {
        let mut headers = headers(&[
            ("connection", "Close, X-Role"),
            ("connection", "upgrade, x-own, x-forwarded-for"),
            ("x-role", "set"),
            ("x-own", "1"),
            ("x-forwarded-for", "192.0.2.1"),
            ("upgrade", "websocket"),
        ]);
        claim(&mut headers, &HeaderName::from_static("x-role"));
        claim(&mut headers, &HeaderName::from_static("upgrade"));
        assert_eq!(headers["connection"], "Close, upgrade, x-own, x-forwarded-for");
        remove_nominated(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["connection", "upgrade", "x-forwarded-for", "x-role"]);
    }

    #[test]
    fn protocols_are_offered_but_for_http2() {
        for (connection, upgrade, offered) in [
            ("Upgrade", "websocket", Some("websocket")),
            ("keep-alive, upgrade", "WebSocket, x/1", Some("WebSocket, x/1")),
            ("Upgrade, HTTP2-Settings", "h2c", None),
            ("Upgrade", "H2C, websocket", Some("websocket")),
            ("Upgrade", "HTTP/2.0", None),
            ("Upgrade", "", None),
            ("close", "websocket", None),
        ] {
            let headers = headers(&[("connection", connection), ("upgrade", upgrade)]);
            let found = HopByHop::of(&headers).upgrade();
            assert_eq!(found.as_deref(), offered.map(str::as_bytes), "{connection}: {upgrade}");
        }
    }
}
