//! The key of a page: requests with the same key get the same page.

use std::fmt::Write;

use http::HeaderName;
use sendoff_message::request::{Request, Scheme, host_name};
use sendoff_site::effects::Effects;
use sha1::{Digest, Sha1};

use super::address::PageAddress;

/// The common properties of requests for the same page, apart from the fields that the page names
/// in `Vary`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    text: Vec<u8>,
    hash: Hash,
}

/// Request fields that tell an application another address or method than the client asked for.
/// Pages that an application builds from them must not reach other clients. In alphabetical order.
const STEERING: [&str; 26] = [
    "cf-visitor",
    "cloudfront-forwarded-proto",
    "forwarded",
    "front-end-https",
    "surrogate-capability",
    "x-forwarded-host",
    "x-forwarded-https",
    "x-forwarded-path",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-forwarded-protocol",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "x-forwarded-uri",
    "x-host",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-forwarded-host",
    "x-original-host",
    "x-original-url",
    "x-rewrite-url",
    "x-scheme",
    "x-url-scheme",
];

/// Fields that the server sets for each request anew, and on which no page depends.
const OF_EACH_REQUEST: [&str; 2] = ["traceparent", "tracestate"];

/// Bytes of most keys.
const USUAL: usize = 512;

/// Hash of a key: 20 bytes. Keys with the same hash are told apart by their texts.
pub(super) type Hash = [u8; 20];

impl Key {
    /// The key of a request to the site with this name. `answering`: the parts that identify the
    /// application; lists that begin with the same part have the same length.
    pub fn new(site: &str, request: &Request, answering: &[&[u8]], effects: &Effects) -> Self {
        Self::with_environment(site, request, answering, effects, effects.environment())
    }

    /// As [`new`](Self::new), if the page depends on no more variables of `.htaccess` files than
    /// these.
    pub fn with_environment(
        site: &str,
        request: &Request,
        answering: &[&[u8]],
        effects: &Effects,
        environment: &[(Vec<u8>, Vec<u8>)],
    ) -> Self {
        let scheme = match request.scheme {
            Scheme::Http => &b"http"[..],
            Scheme::Https => b"https",
        };
        // As sent: applications see it so, and may redirect clients that spell it otherwise.
        let host = request.host.as_deref().unwrap_or_default();
        let port = request.port.map(|port| port.to_string()).unwrap_or_default();
        // The client's request, and the path and query after rewrite rules.
        let query = request.query.as_deref().unwrap_or_default();
        let asked =
            [site.as_bytes(), scheme, host, port.as_bytes(), &request.uri, &request.path, query];
        // Variables that routes and `.htaccess` files set for the script. An empty pair separates
        // the two lists.
        let params = effects.params.iter().map(|(name, value)| (&name[..], &value[..]));
        let environment = environment.iter().map(|(name, value)| (&name[..], &value[..]));
        let told = params.chain([(&b""[..], &b""[..])]).chain(environment);
        let told = told.flat_map(|(name, value)| [name, value]);
        // Few requests have one, and most of these the server's own. A look for each of the names
        // takes longer than all else here.
        let place = |name: &HeaderName| STEERING.binary_search(&name.as_str()).ok();
        let mut steering: Vec<_> = request.headers.keys().filter_map(place).collect();
        steering.sort_unstable();
        let steering = steering.into_iter().flat_map(|place| {
            let name = STEERING[place];
            let values = request.headers.get_all(name).iter();
            values.flat_map(|value| [name.as_bytes(), value.as_bytes()])
        });
        let mut text = Vec::with_capacity(USUAL);
        for part in asked.into_iter().chain(answering.iter().copied()).chain(told).chain(steering) {
            append(&mut text, part);
        }
        append_ruled(&mut text, request);
        Self::of_text(text)
    }

    /// The key of a request that has these properties, too.
    pub(super) fn with(&self, parts: &[Vec<u8>]) -> Self {
        let mut text = self.text.clone();
        parts.iter().for_each(|part| append(&mut text, part));
        Self::of_text(text)
    }

    pub(super) fn of_text(text: Vec<u8>) -> Self {
        let hash = Sha1::digest(&text).into();
        Self { text, hash }
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    pub(super) fn hash(&self) -> Hash {
        self.hash
    }

    /// The address of its pages; empty if the text is not a key's.
    pub(super) fn address(&self) -> PageAddress {
        site_and_address(&self.text).1
    }
}

/// Appends the request fields that rules of the server have set or removed, behind their number:
/// rules may depend on the client. A value that only repeats the client's address is left out, as
/// `REMOTE_ADDR` is.
fn append_ruled(text: &mut Vec<u8>, request: &Request) {
    let names = request.ruled.iter().filter(|name| !OF_EACH_REQUEST.contains(&name.as_str()));
    let mut names: Vec<_> = names.collect();
    if names.is_empty() {
        return;
    }
    names.sort_unstable_by_key(|name| name.as_str());
    append(text, &names.len().to_le_bytes());
    let address = request.peer.address();
    for name in names {
        let values = request.headers.get_all(name).iter();
        let values: Vec<_> = values.filter(|value| value.as_bytes() != &*address).collect();
        append(text, name.as_str().as_bytes());
        append(text, &values.len().to_le_bytes());
        values.iter().for_each(|value| append(text, value.as_bytes()));
    }
}

/// Appends a part of a key behind its length, so that different lists have different texts.
fn append(text: &mut Vec<u8>, part: &[u8]) {
    text.extend_from_slice(&(part.len() as u64).to_le_bytes());
    text.extend_from_slice(part);
}

/// The name of the site and the address of the pages with this key; empty if the text is not a
/// key's.
pub(super) fn site_and_address(text: &[u8]) -> (&[u8], PageAddress) {
    let mut rest = text;
    let mut part = || {
        let (len, behind) = rest.split_first_chunk()?;
        let (part, behind) = behind.split_at_checked(u64::from_le_bytes(*len).try_into().ok()?)?;
        rest = behind;
        Some(part)
    };
    let [site, _scheme, host, _port, uri] = [(); 5].map(|()| part().unwrap_or_default());
    (site, PageAddress::new(&host_name(host), uri))
}

/// File name of this hash, in hexadecimal digits.
pub(super) fn hex(hash: &Hash) -> String {
    hash.iter().fold(String::new(), |mut name, byte| {
        // Writing to a string does not fail.
        let _ = write!(name, "{byte:02x}");
        name
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use sendoff_message::request::sample::request;

    #[test]
    fn what_may_change_a_page_changes_its_key() {
        let base = || request(Some("a.test"));
        let none = Effects::default();
        let (script_a, script_b) = ([&b"/a"[..], b"www"], [&b"/b"[..], b"www"]);
        let key = |request: &Request| Key::new("site", request, &script_a, &none);
        let mut others = vec![base(); 9];
        others[0].uri = "/b".into();
        others[1].path = b"/b".to_vec();
        others[2].query = Some("".into());
        others[2].uri = "/?".into();
        others[3].host = Some("b.test".into());
        others[4].scheme = Scheme::Https;
        others[5].port = Some(81);
        others[6].headers.insert("x-forwarded-host", "evil.test".parse().unwrap());
        others[7].headers.insert("x-original-url", "/b".parse().unwrap());
        others[8].host = Some("A.test".into());
        for other in &others {
            assert_ne!(key(&base()).hash(), key(other).hash(), "{other:?}");
        }
        assert!(STEERING.is_sorted());
        for name in STEERING {
            let mut other = base();
            other.headers.insert(name, "x".parse().unwrap());
            assert_ne!(key(&base()), key(&other), "{name}");
        }
        let mut told = Effects::default();
        told.params = vec![(Bytes::from("A"), b"1".to_vec())];
        for other in [
            Key::new("site", &base(), &script_a, &told),
            Key::new("other", &base(), &script_a, &none),
            Key::new("site", &base(), &script_b, &none),
            Key::new("site", &base(), &[b"/a", b"beta"], &none),
        ] {
            assert_ne!(key(&base()), other);
        }
    }

    /// Rules may set fields for some clients only. Fields that clients send are no part of the key.
    #[test]
    fn fields_by_rules_are_a_part_of_the_key() {
        let key = |request: &Request| Key::new("site", request, &[b"/a"], &Effects::default());
        let ruled = |fields: &[(&'static str, &str)], names: &[&'static str]| {
            let mut request = request(Some("a.test"));
            names.iter().for_each(|name| request.rule(&HeaderName::from_static(name)));
            for (name, value) in fields {
                request.headers.append(*name, value.parse().unwrap());
            }
            key(&request)
        };
        let sent = ruled(&[("x-a", "1")], &[]);
        assert_eq!(sent, ruled(&[], &[]));
        let (x, xy) = (["x-a"], ["x-a", "x-b"]);
        let all = [
            sent,
            ruled(&[], &x),
            ruled(&[("x-a", "")], &x),
            ruled(&[("x-a", "1")], &x),
            ruled(&[("x-a", "2")], &x),
            ruled(&[("x-a", "1"), ("x-a", "2")], &x),
            ruled(&[("x-a", "1"), ("x-b", "2")], &xy),
            ruled(&[("x-a", "1")], &xy),
        ];
        for (number, one) in all.iter().enumerate() {
            assert!(!all[..number].contains(one), "{number}");
        }
        let address = String::from_utf8(request(None).peer.address().into_owned()).unwrap();
        assert_eq!(ruled(&[("x-a", &address)], &x), ruled(&[], &x));
        let traced = |id| ruled(&[("traceparent", id)], &["traceparent"]);
        assert_eq!(traced("1"), traced("2"));
        let order = ["x-b", "x-a"];
        assert_eq!(ruled(&[("x-a", "1")], &xy), ruled(&[("x-a", "1")], &order));
    }

    #[test]
    fn a_key_knows_where_its_pages_are() {
        let mut request = request(Some("A.test:8080"));
        request.uri = "/x%79?q".into();
        let key = Key::new("site", &request, &[b"/a"], &Effects::default());
        assert_eq!(key.address(), PageAddress::new("a.test", b"/xy?q"));
        assert_eq!(Key::of_text(vec![255; 20]).address(), PageAddress::new("", b""));
    }
}
