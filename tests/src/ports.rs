//! Ports at which servers of this process speak a protocol that clients must know of.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{LazyLock, Mutex};

/// The ports of one protocol.
pub(crate) struct Ports(LazyLock<Mutex<HashSet<u16>>>);

impl Ports {
    pub(crate) const fn new() -> Self {
        Self(LazyLock::new(Mutex::default))
    }

    /// Makes clients speak the protocol to this address.
    pub(crate) fn note(&self, addr: SocketAddr) {
        self.0.lock().unwrap().insert(addr.port());
    }

    /// True if clients speak the protocol to this port.
    pub(crate) fn has(&self, port: u16) -> bool {
        self.0.lock().unwrap().contains(&port)
    }

    /// Makes clients not speak it to this address any more: another server may get the port.
    pub(crate) fn forget(&self, addr: SocketAddr) {
        self.0.lock().unwrap().remove(&addr.port());
    }
}
