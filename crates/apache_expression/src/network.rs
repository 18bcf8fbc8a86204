//! Networks in `Require ip`, `Allow from` and `-ipmatch`.

use std::net::{IpAddr, Ipv4Addr};

use crate::lossy;

/// An address and the length of its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Parses `10`, `10.1`, `10.1.2.3`, `10.0.0.0/8`, `10.0.0.0/255.0.0.0`, `2001:db8::/32`.
    ///
    /// # Errors
    /// A sentence that says what was expected.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let wrong = || format!("{:?} is not an address or a network", lossy(text));
        let text = std::str::from_utf8(text).map_err(|_| wrong())?;
        let (address, mask) = match text.split_once('/') {
            Some((address, mask)) => (address, Some(mask)),
            None => (text, None),
        };
        let (address, known) = address_of(address).ok_or_else(wrong)?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match mask {
            None => Some(known),
            Some(mask) => match (mask.parse::<u8>(), mask.parse::<Ipv4Addr>()) {
                (Ok(prefix), _) => Some(prefix).filter(|prefix| *prefix <= bits),
                (_, Ok(mask)) if address.is_ipv4() => {
                    let (mask, ones) = (u32::from(mask), u32::from(mask).leading_ones());
                    let whole = mask.checked_shl(ones).unwrap_or(0) == 0;
                    u8::try_from(ones).ok().filter(|_| whole)
                }
                _ => None,
            },
        };
        Ok(Self { address, prefix: prefix.ok_or_else(wrong)? })
    }

    /// True if an address is in the network.
    pub fn contains(self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(address)) => {
                let shift = 32 - u32::from(self.prefix);
                let differ = u32::from(net) ^ u32::from(address);
                differ.checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(net), IpAddr::V6(address)) => {
                let shift = 128 - u32::from(self.prefix);
                let differ = u128::from(net) ^ u128::from(address);
                differ.checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// An address, or its first one to three numbers, and the number of known bits.
fn address_of(text: &str) -> Option<(IpAddr, u8)> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some((address, if address.is_ipv4() { 32 } else { 128 }));
    }
    let text = text.strip_suffix('.').unwrap_or(text);
    let numbers: Vec<u8> = text.split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
    if numbers.is_empty() || numbers.len() > 3 {
        return None;
    }
    let mut octets = [0; 4];
    octets[..numbers.len()].copy_from_slice(&numbers);
    Some((Ipv4Addr::from(octets).into(), u8::try_from(numbers.len() * 8).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        for (network, address, inside) in [
            ("10", "10.1.2.3", true),
            ("10.1.", "10.2.0.1", false),
            ("192.168.1.0/24", "192.168.1.77", true),
            ("192.168.0.0/255.255.0.0", "192.168.9.9", true),
            ("127.0.0.1", "::ffff:127.0.0.1", true),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("::1", "::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "127.0.0.1", false),
        ] {
            let parsed = Network::parse(network.as_bytes()).unwrap();
            assert_eq!(parsed.contains(address.parse().unwrap()), inside, "{network} {address}");
        }
        for wrong in ["", "example.org", "10.0.0.0/33", "10.0.0.0/255.0.255.0", "1.2.3.4.5", "300"]
        {
            assert!(Network::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
