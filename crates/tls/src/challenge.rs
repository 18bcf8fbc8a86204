//! Challenges: proofs to an authority that the server is reached by a name (RFC 8555 §8).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{Certificate, CertificateParams, CustomExtension, KeyPair};
use rustls::ServerConfig;
use serde::{Deserialize, Serialize};

use crate::credentials::Credentials;
use crate::server;

/// Lifetime of a challenge's certificate. Authorities check only its names and its extension.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// A challenge by which an authority validates one of the server's names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Challenge {
    /// A request without TLS for `/.well-known/acme-challenge/TOKEN` (HTTP-01, RFC 8555 §8.3).
    Http {
        /// The last part of the path.
        token: String,
        /// The body of the response.
        answer: String,
    },
    /// A TLS handshake for [`ACME_PROTOCOL`](crate::ACME_PROTOCOL) (TLS-ALPN-01, RFC 8737).
    Tls {
        /// The name.
        host: String,
        /// The digest in the certificate: the SHA-256 of the key authorization.
        digest: Vec<u8>,
    },
}

/// The TLS configuration for an authority that validates a challenge.
///
/// # Errors
/// A sentence: the certificate cannot be made.
pub fn challenge_config(host: &str, digest: &[u8]) -> Result<Arc<ServerConfig>, String> {
    let (certificate, key) = certificate(host, digest)?;
    server::challenge_config(&Credentials::new(certificate.pem(), key.serialize_pem()))
}

/// A self-signed certificate for the name that contains the digest (RFC 8737 §3).
pub(crate) fn certificate(host: &str, digest: &[u8]) -> Result<(Certificate, KeyPair), String> {
    if digest.len() != 32 {
        return Err("the digest of a challenge has another length than that of SHA-256".to_owned());
    }
    let wrong = |error: rcgen::Error| format!("no certificate for a challenge: {error}");
    let key = KeyPair::generate().map_err(wrong)?;
    let mut params = CertificateParams::new([host.to_owned()]).map_err(wrong)?;
    let now = SystemTime::now();
    params.not_before = (now - Duration::from_secs(60 * 60)).into();
    params.not_after = (now + LIFETIME).into();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    Ok((params.self_signed(&key).map_err(wrong)?, key))
}
