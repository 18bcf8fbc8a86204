//! What the agent asks of the server for which it works.

use std::io;

use sendoff_tls::{Challenge, Vault};
use serde::{Deserialize, Serialize};

/// The server for which certificates are obtained.
pub trait Server {
    /// Has the server answer these challenges and no others. Returns when it does.
    fn answer(&self, challenges: &[Challenge]) -> impl Future<Output = io::Result<()>>;

    /// Has the server meet its clients with these certificates. Returns when it does.
    fn serve(&self, vault: Vault) -> impl Future<Output = io::Result<()>>;

    /// Tells the server how its certificates are.
    fn report(&self, certificates: &[CertificateReport]) -> io::Result<()>;
}

/// How a certificate is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateReport {
    /// Its names.
    pub names: Vec<String>,
    /// Seconds since 1970 until which it holds; `None`: there is none yet.
    pub ends: Option<u64>,
    /// Seconds since 1970 when the authority is asked next.
    pub asks: u64,
    /// Why the last attempt failed; `None`: it succeeded, or there was none.
    pub error: Option<String>,
}
