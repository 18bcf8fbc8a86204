//! A TLS connection to the server. `explain` verifies the certificate as any client would, and
//! reports a bad one. On a loopback address a bad certificate is only a note, because no authority
//! certifies names there.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    StreamOwned,
};

/// An open connection.
pub(super) struct Secure {
    pub(super) stream: StreamOwned<ClientConnection, TcpStream>,
    checks: Arc<Checks>,
}

impl Secure {
    /// Starts a connection to the server at `address` for the site `host`. The handshake takes
    /// place at the first write.
    ///
    /// # Errors
    /// The host is neither a name nor an address, or the connection fails.
    pub(super) fn open(host: &str, address: SocketAddr) -> io::Result<Self> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let checks = Arc::new(Checks::new(&provider, address.ip().is_loopback()));
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&checks) as _)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        let stream = StreamOwned::new(connection, TcpStream::connect(address)?);
        Ok(Self { stream, checks })
    }

    /// The objection that a client on another machine would raise against the certificate.
    pub(super) fn note(&self) -> Option<String> {
        self.checks.note.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

struct Checks {
    provider: Arc<CryptoProvider>,
    /// The verifier, or an error if the system has no root certificates.
    by_roots: Result<Arc<WebPkiServerVerifier>, String>,
    is_loopback: bool,
    note: Mutex<Option<String>>,
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checks").field("is_loopback", &self.is_loopback).finish_non_exhaustive()
    }
}

impl Checks {
    fn new(provider: &Arc<CryptoProvider>, is_loopback: bool) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let by_roots =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
                .build()
                .map_err(|error| error.to_string());
        Self { provider: Arc::clone(provider), by_roots, is_loopback, note: Mutex::default() }
    }
}

impl ServerCertVerifier for Checks {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let checked = match &self.by_roots {
            Ok(roots) => {
                roots.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            Err(why) => Err(Error::General(why.clone())),
        };
        match checked {
            Err(error) if self.is_loopback => {
                let mut note = self.note.lock().unwrap_or_else(PoisonError::into_inner);
                *note = Some(error.to_string());
                Ok(ServerCertVerified::assertion())
            }
            checked => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
