//! Proxies whose statements about the client are trusted, and their networks.

use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::route::Network;

/// Proxies whose statements about the client are trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedProxies {
    /// The networks of proxies that connect over TCP.
    pub networks: Vec<Network>,
    /// True if every process that can connect to a UNIX listener is trusted.
    pub unix: bool,
    /// The request fields that are read. Only one kind is read: a proxy that writes one of them
    /// passes on the other as the client sent it.
    pub fields: ProxyFields,
}

/// The request fields in which proxies name the client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProxyFields {
    /// `X-Forwarded-For`, `-Proto`, `-Host` and `-Port`.
    #[default]
    XForwarded,
    /// `X-Forwarded-For` alone: a proxy that writes no other field passes them on as the client
    /// sent them.
    Addresses {
        /// An address of a trusted proxy leads to the address before it.
        is_recursive: bool,
    },
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// No field.
    None,
    /// A field of this name, in small letters, whose value is one address: `cf-connecting-ip`.
    Single(String),
}

impl TrustedProxies {
    /// True if no client is a trusted proxy.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty() && !self.unix
    }

    /// True if `address` belongs to a trusted proxy.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(address))
    }

    /// Adds proxies as an operator writes them: `10.0.0.0/8`, `2001:db8::1`, `unix:`.
    ///
    /// # Errors
    /// A sentence that says what was expected.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        if text == "unix:" {
            self.unix = true;
        } else {
            self.networks.push(text.parse().map_err(|why| format!("{why}, or unix:"))?);
        }
        Ok(())
    }
}

impl Network {
    /// True if `address` is in the network. An IPv4 address may be written as IPv6
    /// (`::ffff:192.0.2.1`).
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let differs = |ours: u128, theirs: u128, bits: u8| {
            let suffix = bits.saturating_sub(self.prefix);
            (ours ^ theirs).checked_shr(suffix.into()).unwrap_or(0) != 0
        };
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                !differs(ours.to_bits().into(), theirs.to_bits().into(), 32)
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                !differs(ours.to_bits(), theirs.to_bits(), 128)
            }
            _ => false,
        }
    }
}

/// `192.0.2.0/24`, `2001:db8::/32`, or one address.
impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not an address or a network such as 192.0.2.0/24");
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        if address.to_canonical() != address {
            return Err(format!(
                "{text:?} is an IPv4 network in the form of IPv6; write it as IPv4"
            ));
        }
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => bits,
            Some(digits) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
                digits.parse().ok().filter(|&prefix| prefix <= bits).ok_or_else(wrong)?
            }
            Some(_) => return Err(wrong()),
        };
        Ok(Self { address, prefix })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_the_addresses_with_their_prefix() {
        for (network, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.77/24", "192.0.2.0", "192.0.1.255"),
            ("10.0.0.0/8", "::ffff:10.1.2.3", "::10.1.2.3"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.0"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::1", "::1", "::"),
            ("::/0", "ffff::", "1.2.3.4"),
        ] {
            let parsed: Network = network.parse().unwrap();
            assert!(parsed.contains(inside.parse().unwrap()), "{network} {inside}");
            assert!(!parsed.contains(outside.parse().unwrap()), "{network} {outside}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for bad in [
            "",
            "/",
            "10",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0.0/+8",
            "10.0.0.0/8/8",
            "::/129",
            "10.0.0.0/256",
            "010.0.0.1",
            "localhost",
            "::ffff:10.0.0.0/104",
        ] {
            assert!(bad.parse::<Network>().is_err(), "{bad:?}");
        }
        let mut proxies = TrustedProxies::default();
        assert!(proxies.is_empty());
        proxies.add("unix:").unwrap();
        assert!(!proxies.is_empty() && !proxies.contains("::1".parse().unwrap()));
        proxies.add("::1").unwrap();
        assert!(proxies.contains("::1".parse().unwrap()));
        assert!(proxies.add("unix").unwrap_err().contains("unix:"));
    }
}
