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

/// The algorithms that clients of every listener with TLS may choose from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsAlgorithms {
    /// If no suite of a version of TLS is listed, all of its suites are allowed.
    pub ciphers: Vec<CipherSuite>,
    /// The preferred one first; empty: the server's choice.
    pub groups: Vec<KeyExchange>,
}

/// A cipher suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "`names` says which suite each variant is")]
pub enum CipherSuite {
    Aes128,
    Aes256,
    ChaCha20,
    EcdsaAes128,
    EcdsaAes256,
    EcdsaChaCha20,
    RsaAes128,
    RsaAes256,
    RsaChaCha20,
}

impl CipherSuite {
    /// All cipher suites. TLS 1.3 has the first three.
    pub const ALL: [Self; 9] = [
        Self::Aes128,
        Self::Aes256,
        Self::ChaCha20,
        Self::EcdsaAes128,
        Self::EcdsaAes256,
        Self::EcdsaChaCha20,
        Self::RsaAes128,
        Self::RsaAes256,
        Self::RsaChaCha20,
    ];

    /// The names in the registry of IANA and of OpenSSL.
    #[must_use]
    pub const fn names(self) -> [&'static str; 2] {
        match self {
            Self::Aes128 => ["TLS_AES_128_GCM_SHA256"; 2],
            Self::Aes256 => ["TLS_AES_256_GCM_SHA384"; 2],
            Self::ChaCha20 => ["TLS_CHACHA20_POLY1305_SHA256"; 2],
            Self::EcdsaAes128 => {
                ["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"]
            }
            Self::EcdsaAes256 => {
                ["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"]
            }
            Self::EcdsaChaCha20 => {
                ["TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"]
            }
            Self::RsaAes128 => {
                ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"]
            }
            Self::RsaAes256 => {
                ["TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"]
            }
            Self::RsaChaCha20 => {
                ["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"]
            }
        }
    }
}

/// A group for the key exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyExchange {
    /// X25519 together with ML-KEM-768, which withstands quantum computers.
    X25519MlKem768,
    /// X25519 (RFC 7748).
    X25519,
    /// NIST's P-256.
    P256,
    /// NIST's P-384.
    P384,
}

impl KeyExchange {
    /// All groups, the server's preferred one first.
    pub const ALL: [Self; 4] = [Self::X25519MlKem768, Self::X25519, Self::P256, Self::P384];

    /// The names in the registry of IANA, by NIST, and in older versions of OpenSSL.
    #[must_use]
    pub const fn names(self) -> [&'static str; 3] {
        match self {
            Self::X25519MlKem768 => ["X25519MLKEM768"; 3],
            Self::X25519 => ["X25519", "x25519", "x25519"],
            Self::P256 => ["secp256r1", "P-256", "prime256v1"],
            Self::P384 => ["secp384r1", "P-384", "secp384r1"],
        }
    }
}
