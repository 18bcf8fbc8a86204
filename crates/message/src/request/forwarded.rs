//! Statements of trusted proxies about a request: the client's address, and the scheme, host and
//! port that the client asked for.
//!
//! Each proxy appends the address of its own peer to a list, so the list is read from its end: the
//! last address was added by our peer, the address before it by the proxy that has the last
//! address, and so on. The first address from the right that does not belong to a trusted proxy is
//! the client. Everything further left was sent by the client and is ignored: its commas and quotes
//! cannot change how the right end is read.
//!
//! ```text
//!  X-Forwarded-For:  (anything the client sent), 203.0.113.9, 10.0.0.2
//!                                                 │            └ trusted proxy, added by our peer
//!                                                 └ client, added by 10.0.0.2
//! ```

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, header};
use sendoff_config::{ProxyFields, TrustedProxies};
use sendoff_http1::is_host;

use super::Scheme;

/// The statements of trusted proxies about a request. No field comes from the client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forwarded {
    /// The client's address; port 0: the proxies do not give the port. `None`: they do not name the
    /// client, or hide it.
    pub client: Option<SocketAddr>,
    /// The scheme that the client used.
    pub scheme: Option<Scheme>,
    /// The authority that the client asked for, `host` or `host:port`; valid.
    pub host: Option<Bytes>,
    /// The port that the client asked for.
    pub port: Option<u16>,
    /// The reason why a part was ignored, for the log.
    pub complaint: Option<&'static str>,
}

impl Forwarded {
    /// Reads a request's fields. The peer must be a trusted proxy.
    #[must_use]
    pub fn read(headers: &HeaderMap, proxies: &TrustedProxies) -> Self {
        match &proxies.fields {
            ProxyFields::XForwarded => x_forwarded(headers, proxies),
            ProxyFields::Addresses { is_recursive } => addresses(headers, proxies, *is_recursive).0,
            ProxyFields::Forwarded => forwarded(headers, proxies),
            ProxyFields::None => Self::default(),
            ProxyFields::Single(name) => single(headers, name),
        }
    }

    /// The port for `SERVER_PORT`, as the proxies state it or as it follows from the host and the
    /// scheme. `asked` is the authority in the request; its port counts if the proxies state only
    /// the scheme. `None`: the proxies state nothing about the port.
    #[must_use]
    pub fn server_port(&self, asked: Option<&[u8]>) -> Option<u16> {
        let of_host = |host: &[u8]| port_of(host).or_else(|| Some(self.scheme?.default_port()));
        match (self.port, self.host.as_deref(), self.scheme) {
            (Some(port), _, _) => Some(port),
            (None, Some(host), _) => of_host(host),
            (None, None, Some(scheme)) => {
                asked.and_then(port_of).or_else(|| Some(scheme.default_port()))
            }
            (None, None, None) => None,
        }
    }
}

/// Reads the addresses in `X-Forwarded-For`. Also returns the number of proxies before our peer that
/// have added an element.
fn addresses(
    headers: &HeaderMap,
    proxies: &TrustedProxies,
    is_recursive: bool,
) -> (Forwarded, usize) {
    const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
    let (mut told, mut hops) = (Forwarded::default(), 0);
    for element in elements(headers, &FOR) {
        match node(element) {
            Node::Address(address) => {
                hops += usize::from(told.client.is_some());
                told.client = Some(address);
                if !is_recursive || !proxies.contains(address.ip()) {
                    break;
                }
            }
            Node::Hidden => break,
            Node::Malformed => {
                told.complaint = Some("X-Forwarded-For has something that is no address");
                break;
            }
        }
    }
    (told, hops)
}

fn x_forwarded(headers: &HeaderMap, proxies: &TrustedProxies) -> Forwarded {
    const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
    const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
    const PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
    let (mut told, hops) = addresses(headers, proxies, true);
    let said = |name: &HeaderName| element_of(headers, name, hops);
    if let Some(proto) = said(&PROTO) {
        told.scheme = scheme(proto);
        let is_known = told.scheme.is_some();
        told.complain_unless(is_known, "X-Forwarded-Proto is neither http nor https");
    }
    if let Some(host) = said(&HOST) {
        told.host = Some(host).filter(|host| is_host(host)).map(Bytes::copy_from_slice);
        let is_valid = told.host.is_some();
        told.complain_unless(is_valid, "X-Forwarded-Host is no host");
    }
    if let Some(digits) = said(&PORT) {
        told.port = port(digits).filter(|&port| port > 0);
        let is_valid = told.port.is_some();
        told.complain_unless(is_valid, "X-Forwarded-Port is no port");
    }
    let has_other = headers.contains_key(header::FORWARDED) && told == Forwarded::default();
    told.complain_unless(
        !has_other,
        "Forwarded is not read; proxy_field (--proxy-field) would change that",
    );
    told
}

/// Reads a field that names only the client. A second field or a list may be the client's own, so
/// the address then stays unknown.
fn single(headers: &HeaderMap, name: &str) -> Forwarded {
    let mut told = Forwarded::default();
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => {}
        (Some(value), None) => match node(value.as_bytes().trim_ascii()) {
            Node::Address(address) => told.client = Some(address),
            Node::Hidden => {}
            Node::Malformed => {
                told.complaint = Some("the field of proxy_field has something that is no address");
            }
        },
        (Some(_), Some(_)) => told.complaint = Some("the field of proxy_field stands twice"),
    }
    told
}

fn forwarded(headers: &HeaderMap, proxies: &TrustedProxies) -> Forwarded {
    let mut told = Forwarded::default();
    let lines = headers.get_all(header::FORWARDED).iter().rev();
    for text in lines.flat_map(|line| QuotedElements(Some(line.as_bytes()))) {
        if text.is_empty() {
            continue;
        }
        let Some(element) = Element::parse(text) else {
            told.complaint = Some("Forwarded has an element that cannot be understood");
            break;
        };
        // The other parameters of an element describe the connection whose peer the element names.
        told.scheme = element.proto.as_deref().and_then(scheme);
        let host = element.host.as_deref().filter(|host| is_host(host));
        told.host = host.map(Bytes::copy_from_slice);
        match element.node.as_deref().map_or(Node::Hidden, node) {
            Node::Address(address) => {
                told.client = Some(address);
                if !proxies.contains(address.ip()) {
                    break;
                }
            }
            Node::Hidden => break,
            Node::Malformed => {
                told.complaint = Some("Forwarded names something that is no address");
                break;
            }
        }
    }
    told
}

impl Forwarded {
    fn complain_unless(&mut self, is_fine: bool, complaint: &'static str) {
        if !is_fine {
            self.complaint.get_or_insert(complaint);
        }
    }
}

/// The peer of a proxy, as the proxy names it.
#[derive(Debug, PartialEq, Eq)]
enum Node {
    Address(SocketAddr),
    /// `unknown`, or a name that only the proxy understands (RFC 7239 §6.3).
    Hidden,
    Malformed,
}

/// Parses `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`,
/// `unknown`, `_name`.
fn node(text: &[u8]) -> Node {
    let Ok(text) = std::str::from_utf8(text) else { return Node::Malformed };
    if text.eq_ignore_ascii_case("unknown") || text.starts_with('_') {
        return Node::Hidden;
    }
    let whole =
        |address: IpAddr, port| Node::Address(SocketAddr::new(address.to_canonical(), port));
    if let Ok(address) = text.parse() {
        return whole(address, 0);
    }
    let (address, port_text) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, "")) => (address.parse::<Ipv6Addr>().map(IpAddr::from), None),
        Some((address, rest)) => {
            (address.parse::<Ipv6Addr>().map(IpAddr::from), rest.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((address, rest)) => (address.parse::<Ipv4Addr>().map(IpAddr::from), Some(rest)),
            None => return Node::Malformed,
        },
    };
    let is_bare = text.ends_with(']');
    let number = match port_text {
        None if is_bare => Some(0),
        // The port may be hidden as well.
        Some(text) if text.starts_with('_') => Some(0),
        Some(text) => port(text.as_bytes()),
        None => None,
    };
    match (address, number) {
        (Ok(address), Some(number)) => whole(address, number),
        _ => Node::Malformed,
    }
}

fn scheme(text: &[u8]) -> Option<Scheme> {
    [Scheme::Http, Scheme::Https]
        .into_iter()
        .find(|scheme| text.eq_ignore_ascii_case(scheme.as_str().as_bytes()))
}

/// Parses one to five digits, at most 65535.
fn port(digits: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(digits).ok()?;
    let is_number = (1..=5).contains(&text.len()) && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| text.parse().ok())?
}

/// The port in an authority.
fn port_of(host: &[u8]) -> Option<u16> {
    let colon = host.iter().rposition(|&byte| byte == b':')?;
    port(&host[colon + 1..]).filter(|&port| port > 0)
}

/// The elements of all fields of a name, last first, without empty ones.
fn elements<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h [u8]> {
    let lines = headers.get_all(name).iter().rev();
    let elements = lines.flat_map(|line| line.as_bytes().rsplit(|&byte| byte == b','));
    elements.map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// The element of the proxy `hops` before our peer. If there are fewer elements, the proxies
/// replace this field instead of appending to it, and the last element counts.
fn element_of<'h>(headers: &'h HeaderMap, name: &HeaderName, hops: usize) -> Option<&'h [u8]> {
    let mut all = elements(headers, name);
    let last = all.next()?;
    if hops == 0 { Some(last) } else { all.nth(hops - 1).or(Some(last)) }
}

/// The elements of a line of `Forwarded`, last first. A comma in a quoted string separates nothing.
struct QuotedElements<'v>(Option<&'v [u8]>);

impl<'v> Iterator for QuotedElements<'v> {
    type Item = &'v [u8];

    fn next(&mut self) -> Option<&'v [u8]> {
        let line = self.0?;
        let mut is_quoted = false;
        for (at, &byte) in line.iter().enumerate().rev() {
            match byte {
                b'"' if !is_quoted => is_quoted = true,
                b'"' => is_quoted = is_escaped(&line[..at]),
                b',' if !is_quoted => {
                    self.0 = Some(&line[..at]);
                    return Some(line[at + 1..].trim_ascii());
                }
                _ => {}
            }
        }
        self.0 = None;
        Some(line.trim_ascii())
    }
}

/// True if the character after `before` is escaped by a backslash.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

/// An element of `Forwarded` (RFC 7239 §4).
#[derive(Debug, Default)]
struct Element<'v> {
    node: Option<Cow<'v, [u8]>>,
    proto: Option<Cow<'v, [u8]>>,
    host: Option<Cow<'v, [u8]>>,
}

impl<'v> Element<'v> {
    fn parse(mut text: &'v [u8]) -> Option<Self> {
        let mut element = Self::default();
        while !text.is_empty() {
            let equals = text.iter().position(|&byte| byte == b'=')?;
            let name = text[..equals].trim_ascii();
            let (value, rest) = value(&text[equals + 1..])?;
            let place = match &*name.to_ascii_lowercase() {
                b"for" => Some(&mut element.node),
                b"proto" => Some(&mut element.proto),
                b"host" => Some(&mut element.host),
                _ if is_token(name) => None,
                _ => return None,
            };
            // A parameter must not occur twice.
            if let Some(place) = place
                && place.replace(value).is_some()
            {
                return None;
            }
            text = match rest.trim_ascii_start() {
                [] => b"",
                [b';', rest @ ..] => rest.trim_ascii_start(),
                _ => return None,
            };
        }
        Some(element)
    }
}

/// Splits off the value of a parameter, which is a token or a quoted string. Addresses should be
/// quoted because of their colons and brackets (RFC 7239 §6); they are accepted without quotes.
fn value(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let [b'"', quoted @ ..] = text else {
        let end = text.iter().position(|&byte| byte == b';').unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        let value = value.trim_ascii_end();
        let is_value = |&byte: &u8| is_token(&[byte]) || b":[]".contains(&byte);
        return (!value.is_empty() && value.iter().all(is_value))
            .then_some((Cow::Borrowed(value), rest));
    };
    let mut value = Vec::new();
    let mut bytes = quoted.iter().enumerate();
    while let Some((at, &byte)) = bytes.next() {
        match byte {
            b'"' => return Some((Cow::Owned(value), &quoted[at + 1..])),
            b'\\' => value.push(*bytes.next()?.1),
            _ => value.push(byte),
        }
    }
    None
}

/// True for a token (RFC 9110 §5.6.2).
fn is_token(text: &[u8]) -> bool {
    let is_tchar = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !text.is_empty() && text.iter().all(is_tchar)
}

#[cfg(test)]
mod tests;
