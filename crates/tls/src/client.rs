//! TLS to the servers that this server asks on behalf of clients.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use sendoff_config::ProxyTls;

use crate::identity::issuers;

/// Verification of a server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// The certificate must have the server's name and lead to one of the roots.
    Certificate,
    /// Any certificate is accepted, so a machine on the way can pose as the server.
    Nothing,
}

/// The prerequisites of TLS connections to one server.
pub struct TlsClient {
    /// The configuration of each connection.
    pub config: Arc<ClientConfig>,
    /// The name that the server's certificate must have.
    pub server_name: ServerName<'static>,
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server_name.fmt(f)
    }
}

impl TlsClient {
    /// `protocol`: the only protocol that ALPN offers; `None`: without ALPN.
    ///
    /// # Errors
    /// A sentence: there are no roots, or no certificate can have the name.
    pub fn new(tls: &ProxyTls, protocol: Option<&[u8]>) -> Result<Self, String> {
        let verify = if tls.verify { Verify::Certificate } else { Verify::Nothing };
        let mut config = client_config(tls.roots.as_deref(), verify)?;
        config.alpn_protocols = protocol.map(<[u8]>::to_vec).into_iter().collect();
        let server_name = ServerName::try_from(tls.server_name.clone())
            .map_err(|_| format!("{:?} is no name that a certificate can have", tls.server_name))?;
        Ok(Self { config: Arc::new(config), server_name })
    }
}

/// The TLS configuration for connections to a server. `roots`: a file in PEM; `None`: the system's
/// roots.
///
/// # Errors
/// A sentence: there are no roots.
pub fn client_config(roots: Option<&Path>, verify: Verify) -> Result<ClientConfig, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(match verify {
        Verify::Certificate => builder.with_root_certificates(root_store(roots)?),
        Verify::Nothing => {
            let any = Arc::new(AnyCertificate(provider));
            builder.dangerous().with_custom_certificate_verifier(any)
        }
    }
    .with_no_client_auth())
}

fn root_store(roots: Option<&Path>) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    let Some(path) = roots else {
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let missing = "the system has no root certificates: install the package ca-certificates";
        return if store.is_empty() { Err(missing.to_owned()) } else { Ok(store) };
    };
    let wrong = |why: String| format!("{}: {why}", path.display());
    let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    issuers(&text).map_err(wrong)
}

/// Accepts every certificate, but requires that the server has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _issuers: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
