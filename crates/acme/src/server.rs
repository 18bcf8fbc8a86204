//! The agent's requests to the server for which it works.

use std::io;

use sendoff_tls::{Challenge, Vault};
use serde::{Deserialize, Serialize};

/// The server for which certificates are obtained.
pub trait Server {
    /// Makes the server answer these challenges and no others. Returns when it does.
    fn answer(&self, challenges: &[Challenge]) -> impl Future<Output = io::Result<()>>;

    /// Makes the server use these certificates. Returns when it does.
    fn serve(&self, vault: Vault) -> impl Future<Output = io::Result<()>>;

    /// Reports the states of the certificates to the server.
    fn report(&self, certificates: &[CertificateReport]) -> io::Result<()>;
}

/// The state of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateReport {
    /// Its names.
    pub names: Vec<String>,
    /// The end of its validity, in seconds since 1970; `None` if there is no certificate yet.
    pub ends: Option<u64>,
    /// The time of the next attempt, in seconds since 1970.
    pub asks: u64,
    /// The reason why the last attempt failed; `None` if it succeeded or there was none.
    pub error: Option<String>,
    /// The node of the fleet that has obtained it; `None`: this server, or there is none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}
