use http::{HeaderMap, HeaderName};

use crate::cgi_head::HOP_BY_HOP;
use crate::framing::list;

/// Request fields beside [`HOP_BY_HOP`] that are not passed on: fields that the next server would
/// read as an offer or a question about its own connection, and framing, which the encoder writes
/// anew.
const NOT_PASSED_ON: [&str; 5] =
    ["content-length", "expect", "http2-settings", "proxy-authenticate", "proxy-authorization"];

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
        let options = list(headers, &http::header::CONNECTION).collect();
        Self { headers, options }
    }

    /// True if this field concerns the connection only.
    #[must_use]
    pub fn is(&self, name: &HeaderName) -> bool {
        let name = name.as_str();
        HOP_BY_HOP.contains(&name) || NOT_PASSED_ON.contains(&name) || self.names(name)
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
