//! A site's credentials, as text.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};

/// Largest file that is read, in bytes. A chain of certificates has some kilobytes.
const MAX_FILE: u64 = 1 << 20;

/// A site's proof of its name, and the issuers that its clients' certificates must come from.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// The site's certificate and its issuers' certificates, in PEM.
    pub chain: String,
    /// The private key, in PEM.
    pub key: String,
    /// A response of the issuer's OCSP responder, in DER.
    pub ocsp: Option<Vec<u8>>,
    /// The issuers of clients' certificates, in PEM.
    pub client_issuers: Option<String>,
}

/// Without the key.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("chain", &self.chain).finish_non_exhaustive()
    }
}

impl Credentials {
    /// A certificate and its key.
    pub(crate) fn new(chain: String, key: String) -> Self {
        Self { chain, key, ocsp: None, client_issuers: None }
    }

    /// The certificates, the site's own first.
    ///
    /// # Errors
    /// A sentence: there is no certificate, or one cannot be decoded.
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        certificates(self.chain.as_bytes())
    }

    /// The private key.
    ///
    /// # Errors
    /// A sentence: there is no usable key.
    pub fn private_key(&self) -> Result<PrivateKeyDer<'static>, String> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|error| {
            if self.key.contains("ENCRYPTED") {
                "the key is protected by a passphrase; `openssl pkey -in FILE` writes it without"
                    .to_owned()
            } else if !matches!(error, pem::Error::NoItemsFound) {
                damaged_pem(&error)
            } else if self.key.contains("BEGIN CERTIFICATE") {
                "this is a certificate, not a private key".to_owned()
            } else {
                "no private key in PEM (\"-----BEGIN PRIVATE KEY-----\")".to_owned()
            }
        })
    }
}

/// The certificates in a text.
pub(crate) fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) if contains(text, b"PRIVATE KEY-----") => {
            Err("this is a private key, not a certificate".to_owned())
        }
        Ok(_) => Err("no certificate in PEM (\"-----BEGIN CERTIFICATE-----\")".to_owned()),
        Err(error) => Err(damaged_pem(&error)),
    }
}

/// Describes the damage of a text that begins as PEM does, and the remedy. The library's own
/// message shows lines as lists of byte values.
fn damaged_pem(error: &pem::Error) -> String {
    let copy = "copy the whole file again";
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            let label = String::from_utf8_lossy(end_marker);
            format!("the file is cut off: the line \"-----END {label}-----\" is missing; {copy}")
        }
        pem::Error::IllegalSectionStart { line } => {
            let line = String::from_utf8_lossy(line);
            format!(
                "this is not PEM: the line \"{}\" does not end with -----; {copy}",
                line.trim_end()
            )
        }
        pem::Error::Base64Decode(why) => {
            format!("this is not PEM: its base64 is damaged ({why}); {copy}")
        }
        other => format!("this is not PEM: {other}"),
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Reads a file in PEM.
///
/// # Errors
/// A sentence that names the file.
pub(crate) fn read_text(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let bytes = read(path)?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        // The text between the sections of PEM may be in any character set.
        Err(error) if contains(error.as_bytes(), b"-----BEGIN ") => {
            Ok(String::from_utf8_lossy(error.as_bytes()).into_owned())
        }
        Err(_) => Err(format!(
            "{shown}: this is not PEM; `openssl x509 -inform der -in FILE` (or pkey) writes PEM"
        )),
    }
}

/// Reads a file.
///
/// # Errors
/// A sentence that names the file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let shown = path.display();
    // Opening a FIFO would block the server's start.
    let is_file = path.metadata().map_err(|error| format!("{shown}: {error}"))?.is_file();
    if !is_file {
        return Err(format!("{shown}: this is not a file"));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("{shown}: {error}"))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(format!("{shown}: larger than {} KiB", MAX_FILE >> 10));
    }
    Ok(bytes)
}
