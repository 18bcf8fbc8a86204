//! The host to which a request is bound: its cookie names the host, or consistent hashing gives it to
//! the client, path, field or cookie of the request.

use std::fmt;

use sendoff_config::{Balance, HashedPart, Sticky, Upstream};
use sendoff_message::request::{Request, Who, sent_cookie};
use sha2::{Digest, Sha256};

use super::tagged_cookie::{TaggedCookie, tagged};

/// The rules by which an upstream binds requests to hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    balance: Balance,
    sticky: Option<Sticky>,
}

/// A host in cookies and in consistent hashing. It depends on the upstream's name and the host's
/// address alone, so it is the same after a restart, and on each server of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HostTag(u64);

/// The wish of a request for a host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct HostWish {
    /// The host that its cookie names. It may be a host that the upstream does not have.
    pub(super) bound: Option<HostTag>,
    /// Requests with the same key go to the same host.
    pub(super) key: Option<u64>,
}

/// A cookie that binds the client to the host that has answered it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostCookie<'a> {
    /// The name of the cookie.
    pub name: &'a str,
    pub(super) tag: HostTag,
}

impl Placement {
    /// No request is bound.
    pub(super) const FREE: Self = Self { balance: Balance::Least, sticky: None };

    /// The rules that the configuration sets for an upstream.
    pub fn of(upstream: &Upstream) -> Self {
        Self { balance: upstream.balance.clone(), sticky: upstream.sticky.clone() }
    }

    /// The wish of a request.
    pub(super) fn wish(&self, request: &Request) -> HostWish {
        let cookie = |name: &str| sent_cookie(&request.headers, name);
        let bound = match &self.sticky {
            Some(Sticky::OfServer(name)) => cookie(name).and_then(HostTag::parse),
            Some(Sticky::OfApplication(name)) => cookie(name).and_then(tagged).map(|(tag, _)| tag),
            None => None,
        };
        let key = match &self.balance {
            Balance::Least => None,
            Balance::Hash(HashedPart::Client) => match Who::of(&request.peer) {
                Who::V4(address) => Some(hash(&[&address])),
                Who::V6(network) => Some(hash(&[&network])),
                // All clients of a UNIX socket would go to one host.
                Who::Local => None,
            },
            Balance::Hash(HashedPart::Path) => Some(hash(&[&request.path])),
            Balance::Hash(HashedPart::Header(name)) => {
                request.headers.get(name).map(|value| hash(&[value.as_bytes()]))
            }
            Balance::Hash(HashedPart::Cookie(name)) => cookie(name).map(|value| hash(&[value])),
        };
        HostWish { bound, key }
    }

    /// The cookie that the server sets for a client whose request had this wish; `None`: the client
    /// has it already, or the server sets none.
    pub(super) fn cookie(&self, wish: &HostWish, tag: HostTag) -> Option<HostCookie<'_>> {
        let name = self.cookie_name().filter(|_| wish.bound != Some(tag))?;
        Some(HostCookie { name, tag })
    }

    /// The name of the cookie that the server sets.
    pub(super) fn cookie_name(&self) -> Option<&str> {
        match &self.sticky {
            Some(Sticky::OfServer(name)) => Some(name),
            Some(Sticky::OfApplication(_)) | None => None,
        }
    }

    /// The application's cookie that carries the tags of hosts.
    pub(super) fn tagged_cookie(&self) -> Option<TaggedCookie<'_>> {
        match &self.sticky {
            Some(Sticky::OfApplication(name)) => Some(TaggedCookie { name }),
            Some(Sticky::OfServer(_)) | None => None,
        }
    }

    /// The part of requests that decides about their hosts, unless a cookie does.
    pub(super) fn balance(&self) -> &Balance {
        &self.balance
    }
}

impl HostTag {
    /// The tag of an upstream's host.
    pub(super) fn of(upstream: &str, address: &impl fmt::Display) -> Self {
        Self(hash(&[upstream.as_bytes(), address.to_string().as_bytes()]))
    }

    /// The tag in the value of a cookie; `None`: the server has not set this cookie.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let digits = Some(value).filter(|value| value.len() == 16 && value.iter().all(is_digit))?;
        u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().map(Self)
    }

    /// The claim of a host with this share on requests with this key: the host with the largest
    /// claim gets them (weighted rendezvous hashing). If a host comes, goes, or changes its share,
    /// only the requests that it gains or loses change their host.
    pub(super) fn claim(self, key: u64, share: f64) -> f64 {
        // A number between 0 and 1, different for each pair of key and host.
        #[expect(clippy::cast_precision_loss, reason = "52 bits fit into an f64")]
        let drawn = ((mix(key ^ self.0) >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
        -share / drawn.ln()
    }
}

impl fmt::Display for HostTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The value of the cookie.
impl fmt::Display for HostCookie<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tag.fmt(f)
    }
}

/// The first 64 bits of a hash that is the same on each machine and in each version.
fn hash(parts: &[&[u8]]) -> u64 {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.len().to_be_bytes());
        hasher.update(part);
    }
    let digest = hasher.finalize();
    digest.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// A permutation of 64-bit numbers in which each bit of the input changes half of the output: the
/// finalizer of SplitMix64.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sendoff_message::request::sample::request;

    fn placement(balance: &str, sticky: Option<&str>) -> Placement {
        let sticky = sticky.map(|cookie| Sticky::OfServer(cookie.to_owned()));
        Placement { balance: balance.parse().unwrap(), sticky }
    }

    #[test]
    fn a_tag_is_read_back_and_never_changes() {
        let tag = HostTag::of("shop", &"10.0.0.1:80");
        // Clients have such cookies: another value would move all of them to other hosts.
        assert_eq!(tag.to_string(), "743009548c95a958");
        assert_eq!(HostTag::parse(tag.to_string().as_bytes()), Some(tag));
        assert_ne!(HostTag::of("shop1", &"0.0.0.1:80"), HostTag::of("shop", &"10.0.0.1:80"));
        for wrong in ["", "1", "+123456789abcdef", "0123456789ABCDEF", "0123456789abcdef0"] {
            assert_eq!(HostTag::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn requests_that_are_alike_have_the_same_key() {
        let mut one = request(None);
        one.headers.insert("x-user", "anna".parse().unwrap());
        one.headers.insert("cookie", "id=7".parse().unwrap());
        let mut other = one.clone();
        other.path = b"/other".to_vec();
        other.peer = sendoff_message::request::Endpoint::Ip("192.0.2.1:1".parse().unwrap());
        for (balance, is_same) in
            [("client", false), ("path", false), ("header:x-user", true), ("cookie:id", true)]
        {
            let placement = placement(balance, None);
            let [one, other] = [&one, &other].map(|request| placement.wish(request).key.unwrap());
            assert_eq!(one == other, is_same, "{balance}");
        }
        for balance in ["least", "header:x-none", "cookie:none"] {
            assert_eq!(placement(balance, None).wish(&one).key, None, "{balance}");
        }
    }

    #[test]
    fn a_client_gets_the_cookie_of_another_host_only() {
        let placement = placement("least", Some("host"));
        let [tag, other] = ["a:1", "b:1"].map(|address| HostTag::of("app", &address));
        let mut request = request(None);
        assert!(placement.cookie(&placement.wish(&request), tag).is_some());
        request.headers.insert("cookie", format!("x=y; host={tag}").parse().unwrap());
        let wish = placement.wish(&request);
        assert_eq!(placement.cookie(&wish, tag), None);
        let cookie = placement.cookie(&wish, other).unwrap();
        assert_eq!((cookie.name, cookie.to_string()), ("host", other.to_string()));
        assert_eq!(Placement::FREE.cookie(&HostWish::default(), tag), None);
    }
}
