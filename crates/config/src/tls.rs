//! TLS of sites.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// TLS of a site. Keys and certificates are not part of the configuration, which every process may
/// read: the supervisor reads them and gives them only to the front.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The source of the certificate.
    pub certificate: Certificate,
    /// The demand for client certificates; `None`: clients are not asked for one.
    pub clients: Option<ClientCertificates>,
    /// The oldest version that is spoken.
    pub oldest: TlsVersion,
}

/// The source of a site's certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Certificate {
    /// From files in PEM.
    Files {
        /// The certificate, followed by the certificates of its issuers up to a root.
        #[serde(with = "crate::path::one")]
        chain: PathBuf,
        /// The private key.
        #[serde(with = "crate::path::one")]
        key: PathBuf,
        /// A response of the issuer's OCSP responder in DER (RFC 6960), which is stapled.
        #[serde(with = "crate::path::optional")]
        ocsp: Option<PathBuf>,
    },
    /// The server signs it itself, once, and keeps it in [`Config::state`](crate::Config::state).
    SelfSigned,
    /// The server obtains it from an authority ([`Config::acme`](crate::Config::acme)) and renews
    /// it.
    Acme,
}

/// The demand for client certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientCertificates {
    /// The certificates of the trusted issuers, in PEM.
    #[serde(with = "crate::path::one")]
    pub issuers: PathBuf,
    /// Refuses clients without a certificate.
    pub required: bool,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}
