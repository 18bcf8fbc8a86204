//! The TLS configuration of one site.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use sendoff_config::{Tls, TlsAlgorithms, TlsVersion};

use crate::algorithms::provider;
use crate::credentials::Credentials;
use crate::identity::{PROVIDER, identity, issuers};
use crate::tickets::Tickets;

/// The protocol that an authority names when it validates a challenge (ALPN, RFC 8737 §4).
pub const ACME_PROTOCOL: &[u8] = b"acme-tls/1";

/// The TLS settings of one site.
#[derive(Debug, Clone)]
pub struct SiteTls {
    /// For the clients that name the site.
    pub config: Arc<ServerConfig>,
    /// The demand for client certificates in `config`.
    pub clients: Option<Arc<ClientDemand>>,
}

/// A demand for client certificates. Handshakes under equal demands have proved the same.
#[derive(Debug, PartialEq, Eq)]
pub struct ClientDemand {
    /// The certificates of the trusted issuers, in PEM.
    issuers: String,
    /// Clients without a certificate are refused.
    pub required: bool,
}

/// Presents the same certificate to every client.
#[derive(Debug)]
struct Only(Arc<CertifiedKey>);

impl ResolvesServerCert for Only {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// The TLS settings for the clients of one site, with these algorithms. `protocols`: for ALPN, the preferred one first.
///
/// # Errors
/// A sentence: the credentials cannot be used.
pub fn site_tls(
    credentials: &Credentials,
    tls: &Tls,
    algorithms: &TlsAlgorithms,
    tickets: &Tickets,
    protocols: &[&[u8]],
) -> Result<SiteTls, String> {
    let provider = provider(algorithms);
    let versions: &[_] = match tls.oldest {
        TlsVersion::Tls12 => &[&TLS13, &TLS12],
        TlsVersion::Tls13 => &[&TLS13],
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(|error| error.to_string())?;
    let (builder, tickets, clients) = match (&tls.clients, &credentials.client_issuers) {
        (Some(clients), Some(text)) => {
            let roots = issuers(text.as_bytes())?.into();
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            let verifier =
                if clients.required { verifier } else { verifier.allow_unauthenticated() };
            let verifier = verifier.build().map_err(|error| error.to_string())?;
            let demand = ClientDemand { issuers: text.clone(), required: clients.required };
            // A ticket proves only that some site accepted its client. With ticket keys of its own,
            // the site accepts only its own tickets.
            let builder = builder.with_client_cert_verifier(verifier);
            (builder, Tickets::new()?, Some(Arc::new(demand)))
        }
        _ => (builder.with_no_client_auth(), tickets.clone(), None),
    };
    let mut config =
        builder.with_cert_resolver(Arc::new(Only(identity(credentials).map_err(|(_, why)| why)?)));
    config.ticketer = tickets.producer();
    // TLS 1.2 sessions are resumed by tickets, too: a session store would belong to one event loop.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    // The kernel needs the keys for TLS.
    config.enable_secret_extraction = true;
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(SiteTls { config: Arc::new(config), clients })
}

/// Presents the certificate of the site that a client names.
struct BySite<F>(F);

impl<F> std::fmt::Debug for BySite<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BySite")
    }
}

impl<F> ResolvesServerCert for BySite<F>
where
    F: Fn(Option<&str>) -> Option<Arc<ServerConfig>> + Send + Sync,
{
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        (self.0)(hello.server_name())?.cert_resolver.resolve(hello)
    }
}

/// The TLS configuration for clients of QUIC, whose hello is read too late to choose another
/// configuration by it: it asks for no client certificates, and `of_site` has the configuration of
/// the site that a client names, whose certificate it gets.
///
/// # Errors
/// A sentence: this machine has no TLS 1.3.
pub fn quic_config(
    algorithms: &TlsAlgorithms,
    tickets: &Tickets,
    protocols: &[&[u8]],
    of_site: impl Fn(Option<&str>) -> Option<Arc<ServerConfig>> + Send + Sync + 'static,
) -> Result<Arc<ServerConfig>, String> {
    let mut config = ServerConfig::builder_with_provider(provider(algorithms))
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(BySite(of_site)));
    config.ticketer = tickets.producer();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(Arc::new(config))
}

/// The TLS configuration for an authority that validates a challenge.
pub(crate) fn challenge_config(credentials: &Credentials) -> Result<Arc<ServerConfig>, String> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(&PROVIDER))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(|error| error.to_string())?;
    // Without a check that they belong together: rustls does not parse certificates with unknown
    // critical extensions.
    let key = PROVIDER.key_provider.load_private_key(credentials.private_key()?);
    let key = key.map_err(|error| format!("the key cannot be used: {error}"))?;
    let only = Arc::new(Only(Arc::new(CertifiedKey::new(credentials.certificates()?, key))));
    let mut config = builder.with_no_client_auth().with_cert_resolver(only);
    // The authority does not resume the session.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.alpn_protocols = vec![ACME_PROTOCOL.to_vec()];
    Ok(Arc::new(config))
}
