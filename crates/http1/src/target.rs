//! Request targets and hosts (RFC 9112 §3.2, RFC 3986).

use std::net::Ipv6Addr;

use bytes::Bytes;
use http::Method;

use crate::RequestError;

const BAD_TARGET: RequestError = RequestError::Malformed("the request target is not valid");

/// A request target (RFC 9112 §3.2), split into its parts but not decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    raw: Bytes,
    uri: Bytes,
    path_len: usize,
}

impl Target {
    /// The target as sent, for logs.
    #[must_use]
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// Path and query in origin form, for every form of the target: `/a%20b?c=d`. `*` for
    /// `OPTIONS *`.
    #[must_use]
    pub fn uri(&self) -> &Bytes {
        &self.uri
    }

    /// The path, percent-encoded as sent. Starts with `/`, except for `OPTIONS *`.
    #[must_use]
    pub fn path(&self) -> Bytes {
        self.uri.slice(..self.path_len)
    }

    /// The query behind the first `?`; `None` without one.
    #[must_use]
    pub fn query(&self) -> Option<Bytes> {
        (self.path_len < self.uri.len()).then(|| self.uri.slice(self.path_len + 1..))
    }

    /// True if the request is about the server as a whole: `OPTIONS *`, or OPTIONS for a URI
    /// without path and query (RFC 9112 §3.2.4). Such a target has no path to look up.
    #[must_use]
    pub fn is_asterisk(&self) -> bool {
        self.uri == "*"
    }

    /// Parses a target. Also returns the authority of an absolute-form target.
    pub(crate) fn parse(
        raw: Bytes,
        method: &Method,
    ) -> Result<(Self, Option<Bytes>), RequestError> {
        // Clients do not send fragments (RFC 9110 §4.2.5); some servers cut them off, others treat
        // them as part of the path.
        if raw.contains(&b'#') {
            return Err(BAD_TARGET);
        }
        match raw.first() {
            Some(b'/') => Ok((Self::from_uri(raw.clone(), raw), None)),
            Some(b'*') if raw.len() == 1 && *method == Method::OPTIONS => {
                Ok((Self::from_uri(raw.clone(), raw), None))
            }
            _ => Self::absolute(raw, method),
        }
    }

    fn absolute(raw: Bytes, method: &Method) -> Result<(Self, Option<Bytes>), RequestError> {
        let scheme_len = [&b"http://"[..], b"https://"]
            .into_iter()
            .find(|s| raw.get(..s.len()).is_some_and(|start| start.eq_ignore_ascii_case(s)))
            .ok_or(BAD_TARGET)?
            .len();
        let rest = raw.slice(scheme_len..);
        let end = rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len());
        let (authority, after) = (rest.slice(..end), rest.slice(end..));
        if !is_host(&authority) {
            return Err(BAD_TARGET);
        }
        let uri = match after.first() {
            Some(b'/') => after,
            // RFC 9112 §3.2.4: OPTIONS for a URI without path and query is about the server as a
            // whole.
            None if *method == Method::OPTIONS => Bytes::from_static(b"*"),
            _ => [b"/", &after[..]].concat().into(),
        };
        Ok((Self::from_uri(raw, uri), Some(authority)))
    }

    fn from_uri(raw: Bytes, uri: Bytes) -> Self {
        let path_len = memchr::memchr(b'?', &uri).unwrap_or(uri.len());
        Self { raw, uri, path_len }
    }
}

/// True if `host` is `uri-host [ ":" port ]` (RFC 9110 §7.2) with a host that is not empty
/// (§4.2.1).
#[must_use]
pub fn is_host(host: &[u8]) -> bool {
    let (name, port) = if host.first() == Some(&b'[') {
        let Some(end) = memchr::memchr(b']', host) else { return false };
        let address = &host[1..end];
        let is_ipv6 = std::str::from_utf8(address).is_ok_and(|a| a.parse::<Ipv6Addr>().is_ok());
        if !is_ipv6 && !is_ip_future(address) {
            return false;
        }
        (None, &host[end + 1..])
    } else {
        let end = memchr::memchr(b':', host).unwrap_or(host.len());
        (Some(&host[..end]), &host[end..])
    };
    name.is_none_or(is_reg_name) && is_port(port)
}

/// `IPvFuture` (RFC 3986 §3.2.2): `v`, a version in hexadecimal digits, `.`, an address.
fn is_ip_future(address: &[u8]) -> bool {
    let Some((b'v' | b'V', rest)) = address.split_first() else { return false };
    let Some(dot) = memchr::memchr(b'.', rest) else { return false };
    let (version, address) = (&rest[..dot], &rest[dot + 1..]);
    !version.is_empty()
        && version.iter().all(u8::is_ascii_hexdigit)
        && !address.is_empty()
        && address.iter().all(|b| is_name_byte(*b) || *b == b':')
}

/// `unreserved` or `sub-delims` (RFC 3986 §2).
const fn is_name_byte(b: u8) -> bool {
    IS_NAME_BYTE[b as usize]
}

const IS_NAME_BYTE: [bool; 256] = crate::response::table(
    b"-._~!$&'()*+,;=0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
);

/// `reg-name` (RFC 3986 §3.2.2), except for names that could be taken for a path, as in nginx: `.`,
/// and names with `..`. An application may put the host into a file name.
fn is_reg_name(name: &[u8]) -> bool {
    if name == b"." || name.windows(2).any(|pair| pair == b"..") {
        return false;
    }
    // Most names are not encoded.
    if name.iter().all(|byte| is_name_byte(*byte)) {
        return !name.is_empty();
    }
    let mut rest = name;
    while let [first, after @ ..] = rest {
        rest = match first {
            b'%' => match after {
                [a, b, after @ ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => after,
                _ => return false,
            },
            b if is_name_byte(*b) => after,
            _ => return false,
        };
    }
    !name.is_empty()
}

/// True if `port` is empty, or `:` and an optional port number (RFC 3986 §3.2.3).
fn is_port(port: &[u8]) -> bool {
    let Some((b':', digits)) = port.split_first() else { return port.is_empty() };
    digits.is_empty()
        || digits.len() <= 5
            && digits
                .iter()
                .try_fold(0, |port: u32, digit| {
                    digit.is_ascii_digit().then(|| port * 10 + u32::from(digit - b'0'))
                })
                .is_some_and(|port| port <= u32::from(u16::MAX))
}
