//! Networks in the form that Sendoff reads.

use std::net::IpAddr;

/// An address and the length of a prefix: `10.0.0.0/8`, `::1`; `None`: the text is no network.
#[must_use]
pub fn parse(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    Some((address, bits.unwrap_or(most))).filter(|(_, bits)| *bits <= most)
}

/// True for an address, and for a network with the length of its prefix.
#[must_use]
pub fn is_network(text: &str) -> bool {
    parse(text).is_some()
}

#[cfg(test)]
mod tests {
    use super::is_network;

    #[test]
    fn prefixes_have_a_length() {
        for text in ["10.0.0.0/8", "10.0.0.1", "0.0.0.0/0", "::1", "2001:db8::/32", "::/128"] {
            assert!(is_network(text), "{text}");
        }
        for text in ["10.0.0.0/33", "::/129", "10.0.0.0/", "10", "a/8", "10.0.0.0/255.0.0.0"] {
            assert!(!is_network(text), "{text}");
        }
    }
}
