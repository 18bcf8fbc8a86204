//! The identity of a client for limits per client.

use std::hash::{DefaultHasher, Hasher};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Endpoint;

/// One client for the purpose of limits: an IPv4 address, or the /64 network of an IPv6 address,
/// because a network's owner can use all its 2^64 addresses. Clients on UNIX sockets have no
/// address and count as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Who {
    /// An IPv4 address.
    V4([u8; 4]),
    /// The network of an IPv6 address: its first 64 bits.
    V6([u8; 8]),
    /// A process of this machine, over a UNIX socket.
    Local,
}

/// The requests that a limit counts together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LimitKey {
    /// The requests of a client.
    Client(Who),
    /// The requests with a value of a map: a hash of the value.
    Value(u64),
}

impl LimitKey {
    /// The requests with this value.
    pub fn of_value(value: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(value);
        Self::Value(hasher.finish())
    }

    /// False if other machines mean another client by it: a process of this machine.
    pub fn is_known_elsewhere(&self) -> bool {
        match self {
            Self::Client(Who::Local | Who::V4([127, ..])) => false,
            // The network of the loopback address ::1.
            Self::Client(Who::V6(network)) => *network != [0; 8],
            Self::Client(Who::V4(_)) | Self::Value(_) => true,
        }
    }
}

impl Who {
    /// The client at this end of a connection.
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
