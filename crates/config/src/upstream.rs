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
    /// Interval at which the server connects to each host to see whether it is up; `None`: only
    /// requests show it.
    pub probe: Option<Duration>,
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
