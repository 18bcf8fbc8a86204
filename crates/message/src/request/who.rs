//! Which clients count as one, where clients are limited.

use std::net::IpAddr;

use super::Endpoint;

/// What counts as one client: an IPv4 address, or the /64 network of an IPv6 address, because its owner has all 2^64 addresses in it.
/// Clients on UNIX sockets have no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Who {
    /// An IPv4 address.
    V4([u8; 4]),
    /// The network of an IPv6 address: its first 64 bits.
    V6([u8; 8]),
    /// A process of this machine, over a UNIX socket.
    Local,
}

impl Who {
    /// Who has this end of a connection.
    pub fn of(client: &Endpoint) -> Self {
        match client.ip().map(|address| address.to_canonical()) {
            Some(IpAddr::V4(address)) => Self::V4(address.octets()),
            Some(IpAddr::V6(address)) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                Self::V6([a, b, c, d, e, f, g, h])
            }
            None => Self::Local,
        }
    }
}
