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
    /// Its name, which no other upstream has.
    pub name: String,
    /// The hosts, at least one.
    pub hosts: Vec<UpstreamHost>,
    /// Connections to each host at a time; `None`: what the host says, or is found to take.
    pub connections: Option<u32>,
    /// Failures in a row after which a host is taken for down.
    pub fails: u32,
    /// The time until a host that is down is tried again; it doubles with each further failure, up to a minute.
    pub retry_after: Duration,
    /// The time in which a host that has come back gets its whole share of requests; zero: at once.
    pub slow_start: Duration,
    /// How often each host is connected to, to see whether it is there; `None`: only requests tell.
    pub probe: Option<Duration>,
}

/// A host of an upstream, or a name that leads to several.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamHost {
    /// Where it is.
    pub address: UpstreamAddress,
    /// Its share of requests, at least 1.
    pub weight: u32,
    /// Hosts of a higher rank get requests while none of a lower one is up.
    pub rank: u16,
}

/// Where hosts of an upstream are.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum UpstreamAddress {
    /// At this address. Of a host name, at each address that it has.
    At(Address),
    /// Where the SRV records of this name say (RFC 2782).
    Service(String),
}

/// The rank of hosts that are spare; priorities of SRV records are less in practice.
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
}
