//! How a site's clients are met under TLS.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// TLS of a site. Keys and certificates are not part of the configuration, which every process may read: the supervisor reads them
/// and gives them to the front alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// Where the certificate comes from.
    pub certificate: Certificate,
    /// Whether clients show certificates; `None`: they are not asked.
    pub clients: Option<ClientCertificates>,
    /// The oldest version that is spoken.
    pub oldest: TlsVersion,
}

/// Where a site's certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Certificate {
    /// From files in PEM.
    Files {
        /// The certificate, followed by those of its issuers up to a root.
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
    /// The server obtains it from an authority ([`Config::acme`](crate::Config::acme)) and renews it.
    Acme,
}

/// What clients must show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientCertificates {
    /// The certificates of the issuers that are trusted, in PEM.
    #[serde(with = "crate::path::one")]
    pub issuers: PathBuf,
    /// Whether clients without a certificate are refused.
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
