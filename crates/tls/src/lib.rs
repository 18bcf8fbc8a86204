//! Certificates and keys: reads, checks and makes them, and makes rustls configurations of them. No
//! sockets.
//!
//! ```text
//!  files, state folder ──▶ Vault (supervisor, root) ── sealed memory ──▶ Vault (front) ──▶ CertifiedKey ──▶ ServerConfig per site
//! ```
//!
//! The supervisor, which may be root, reads the keys and gives them only to the front: the
//! configuration itself also goes to the PHP masters.
#![forbid(unsafe_code)]

mod algorithms;
mod challenge;
mod client;
mod credentials;
mod examine;
mod fleet_secret;
mod identity;
mod obtained;
mod ocsp;
mod password;
mod self_signed;
mod server;
mod tickets;
mod vault;

pub use challenge::{Challenge, challenge_config};
pub use client::{TlsClient, Verify, client_config};
pub use credentials::Credentials;
pub use examine::{ClientCertificate, Leaf, warnings};
pub use fleet_secret::{FleetSecret, FleetSecrets, Seal, SealKey, Sealed};
pub use identity::Whose;
pub use obtained::{Obtained, usable_pem};
pub use password::Password;
pub use server::{ACME_PROTOCOL, ClientDemand, SiteTls, quic_config, site_tls};
pub use tickets::{SharedKey, TICKET_NAME, TICKET_SECRET, Tickets};
pub use vault::{Complaint, Vault};

#[cfg(test)]
mod tests;
