//! Upstreams with several hosts.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::site::Address;

/// Hosts that run the same application, to which [`Address::Upstream`] refers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// Its unique name.
    pub name: String,
    /// The hosts, at least one.
    pub hosts: Vec<UpstreamHost>,
    /// The choice of the host for a request.
    pub balance: Balance,
    /// The clients that stay with their hosts; `None`: each request is free to go to any host.
    pub sticky: Option<Sticky>,
    /// Connections to each host at a time; `None`: the number that the host reports, or that the
    /// server finds out.
    pub connections: Option<u32>,
    /// Failures in a row after which a host is taken for down.
    pub fails: u32,
    /// Time until a host that is down gets another request; it doubles with each further failure,
    /// up to a minute.
    pub retry_after: Duration,
    /// Time in which the share of a host that has come back grows to its full size; zero: at once.
    pub slow_start: Duration,
    /// The checks of each host beside requests; `None`: only requests show whether it is up.
    pub probe: Option<Probe>,
}

/// Checks of hosts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// The pause between two checks of a host.
    pub every: Duration,
    /// The request that a host must answer; `None`: it must accept a connection.
    pub request: Option<HostCheck>,
}

/// A request by which a host is checked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HostCheck {
    /// A `GET` request.
    Http(HttpCheck),
    /// A call of gRPC's health service.
    Grpc(GrpcCheck),
}

/// A call of `grpc.health.v1.Health/Check`. A host that is up answers `SERVING`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrpcCheck {
    /// The service that must be able to answer; empty: the host as a whole.
    pub service: String,
    /// The authority; `None`: the address of the host.
    pub host: Option<String>,
}

/// A `GET` request, and the answer of a host that is up.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpCheck {
    /// The path.
    pub path: String,
    /// The `Host` field; `None`: the address of the host.
    pub host: Option<String>,
    /// The status; `None`: any from 200 to 399.
    pub status: Option<u16>,
    /// A text that the body contains, in the first [`HttpCheck::MAX_BODY`] bytes.
    pub body: Option<String>,
}

impl HttpCheck {
    /// Bytes of a body in which the text is searched. Longer answers would cost each check time.
    pub const MAX_BODY: usize = 64 * 1024;
}

/// The choice of the host for a request that no cookie binds to one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Balance {
    /// The host with the fewest requests for its weight.
    Least,
    /// The same host for all requests that are alike in this respect, by consistent hashing.
    Hash(HashedPart),
}

/// The part of a request by which [`Balance::Hash`] chooses.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HashedPart {
    /// The client: an IPv4 address or a /64 network of IPv6.
    Client,
    /// The path, without the query.
    Path,
    /// The value of the field with this name.
    Header(String),
    /// The value of the cookie with this name.
    Cookie(String),
}

/// The cookie with which clients stay with the host that answered them first, by its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Sticky {
    /// A cookie of the server, whose value names the host.
    OfServer(String),
    /// A cookie of the application. The server writes the host in front of the value for clients,
    /// and removes it again for the application.
    OfApplication(String),
}

/// A host of an upstream, or a name that leads to several.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamHost {
    /// The address.
    pub address: UpstreamAddress,
    /// Its share of requests, at least 1.
    pub weight: u32,
    /// Hosts with a higher rank get requests only while no host with a lower rank is up.
    pub rank: u16,
}

/// The address of an upstream's hosts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum UpstreamAddress {
    /// This address; a host name stands for each of its addresses.
    At(Address),
    /// The targets of the SRV records of this name (RFC 2782).
    Service(String),
}

/// The rank of `spare` hosts. Priorities of SRV records are lower in practice.
const SPARE: u16 = 1 << 12;

impl FromStr for UpstreamHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_ascii_whitespace();
        let at = words.next().unwrap_or_default();
        let address = match at.strip_prefix("srv:") {
            Some("") => return Err("behind srv: the name of a service is expected".to_owned()),
            Some(name) => UpstreamAddress::Service(name.to_owned()),
            None => {
                let has_scheme = at.starts_with("unix:") || at.starts_with("tcp:");
                let with_scheme = format!("tcp:{at}");
                let address: Result<Address, _> =
                    if has_scheme { at } else { &with_scheme }.parse();
                UpstreamAddress::At(address.map_err(|_| {
                    format!("\"{at}\" is neither HOST:PORT nor unix:/PATH nor srv:NAME")
                })?)
            }
        };
        let mut host = Self { address, weight: 1, rank: 0 };
        for word in words {
            match (word, word.strip_prefix("weight=").map(str::parse)) {
                ("spare", _) => host.rank = SPARE,
                (_, Some(Ok(weight @ 1..=1000))) => host.weight = weight,
                (_, Some(_)) => return Err("a weight is a number from 1 to 1000".to_owned()),
                _ => return Err(format!("\"{word}\" is neither weight=N nor spare")),
            }
        }
        Ok(host)
    }
}

impl fmt::Display for UpstreamHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            UpstreamAddress::At(Address::Tcp(host_port)) => f.write_str(host_port)?,
            UpstreamAddress::At(address) => address.fmt(f)?,
            UpstreamAddress::Service(name) => write!(f, "srv:{name}")?,
        }
        if self.weight != 1 {
            write!(f, " weight={}", self.weight)?;
        }
        if self.rank == SPARE { f.write_str(" spare") } else { Ok(()) }
    }
}

/// The prefixes of parts that are named.
const HEADER: &str = "header:";
const COOKIE: &str = "cookie:";

impl FromStr for Balance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = |name: &str, what: &str| match is_token(name) {
            true => Ok(name.to_owned()),
            false => Err(format!("behind {what} the name is expected: \"{what}NAME\"")),
        };
        Ok(Self::Hash(match text {
            "least" => return Ok(Self::Least),
            "client" => HashedPart::Client,
            "path" => HashedPart::Path,
            _ => match (text.strip_prefix(HEADER), text.strip_prefix(COOKIE)) {
                (Some(name), _) => HashedPart::Header(named(name, HEADER)?.to_ascii_lowercase()),
                (None, Some(name)) => HashedPart::Cookie(named(name, COOKIE)?),
                (None, None) => return Err(format!("\"{text}\" is no way to choose a host")),
            },
        }))
    }
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Least => f.write_str("least"),
            Self::Hash(part) => part.fmt(f),
        }
    }
}

impl fmt::Display for HashedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client => f.write_str("client"),
            Self::Path => f.write_str("path"),
            Self::Header(name) => write!(f, "{HEADER}{name}"),
            Self::Cookie(name) => write!(f, "{COOKIE}{name}"),
        }
    }
}

/// True if the text may be the name of a field or a cookie (RFC 9110 §5.6.2).
fn is_token(text: &str) -> bool {
    let is_mark = |byte| b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || is_mark(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_written_as_they_are_read() {
        for text in [
            "app1:9000",
            "[::1]:9000 weight=2",
            "unix:/run/app.sock spare",
            "srv:_fastcgi._tcp.example.org weight=5 spare",
        ] {
            assert_eq!(text.parse::<UpstreamHost>().unwrap().to_string(), text);
        }
        let tcp: UpstreamHost = "tcp:app1:9000".parse().unwrap();
        assert_eq!(tcp.to_string(), "app1:9000");
        for wrong in ["", "app1", "srv:", "unix:x", "a:1 weight=0", "a:1 weight=x", "a:1 backup"] {
            assert!(wrong.parse::<UpstreamHost>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn ways_to_choose_a_host_are_written_as_they_are_read() {
        for text in ["least", "client", "path", "header:x-user", "cookie:PHPSESSID"] {
            assert_eq!(text.parse::<Balance>().unwrap().to_string(), text);
        }
        for wrong in ["", "random", "header:", "header:a b", "cookie:", "cookie:a=b"] {
            assert!(wrong.parse::<Balance>().is_err(), "{wrong}");
        }
    }
}
