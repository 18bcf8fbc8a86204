//! Parsed credentials: a certificate with its key, and issuers.

use std::sync::{Arc, LazyLock};

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::sign::CertifiedKey;
use rustls::{Error, RootCertStore};

use crate::credentials::{Credentials, certificates};
use crate::examine::{Misfit, damage, misfit, unusable_key};

/// All cryptographic algorithms.
pub(crate) static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(aws_lc_rs::default_provider()));

/// The faulty part of a site's credentials: one of its files, or the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The file with the certificate.
    Certificate,
    /// The file with the key.
    Key,
    /// The response of the OCSP responder.
    Ocsp,
    /// The issuers of clients' certificates.
    ClientIssuers,
    /// All parts together.
    Site,
}

/// Certificate and key, if they belong together.
///
/// # Errors
/// A sentence and its subject: the certificate, the key, or both of them (`Whose::Site`).
pub(crate) fn identity(credentials: &Credentials) -> Result<Arc<CertifiedKey>, (Whose, String)> {
    let chain = credentials.certificates().map_err(|why| (Whose::Certificate, why))?;
    let key = credentials.private_key().map_err(|why| (Whose::Key, why))?;
    let signing = PROVIDER.key_provider.load_private_key(key);
    let signing = signing.map_err(|error| {
        let of_kind = chain.first().and_then(unusable_key);
        (Whose::Key, of_kind.unwrap_or_else(|| format!("the key cannot be used: {error}")))
    })?;
    let mut certified = CertifiedKey::new(chain, signing);
    match certified.keys_match() {
        // Keys of hardware modules do not reveal their public half.
        Ok(()) | Err(Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {}
        Err(error) => {
            let public = certified.key.public_key();
            return Err(match misfit(&certified.cert, public.as_deref(), &error.to_string()) {
                Misfit::Chain(why) => (Whose::Certificate, why),
                Misfit::Both(why) => (Whose::Site, why),
            });
        }
    }
    certified.ocsp.clone_from(&credentials.ocsp);
    Ok(Arc::new(certified))
}

/// Reads the issuers of the other side's certificates.
///
/// # Errors
/// A sentence: there is no issuer, or one cannot be used.
pub(crate) fn issuers(text: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for (number, issuer) in certificates(text)?.into_iter().enumerate() {
        let damage = damage(number, &issuer);
        roots.add(issuer).map_err(|error| {
            let number = number + 1;
            damage.unwrap_or_else(|| {
                format!("certificate {number} of the file cannot be an issuer ({error}); remove it from the file")
            })
        })?;
    }
    Ok(roots)
}
