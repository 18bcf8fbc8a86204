//! A TLS connection to the server. `explain` verifies the certificate as any client would, and
//! reports a bad one. On a loopback address a bad certificate is only a note, because no authority
//! certifies names there.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::{ClientConnection, RootCertStore, StreamOwned};
use sendoff_tls::{Verify, client_config};

/// An open connection.
pub(super) struct Secure {
    pub(super) stream: StreamOwned<ClientConnection, TcpStream>,
    name: ServerName<'static>,
}

impl Secure {
    /// Starts a connection to the server at `address` for the site `host`. The handshake takes
    /// place at the first write.
    ///
    /// # Errors
    /// The host is neither a name nor an address, or the connection fails.
    pub(super) fn open(host: &str, address: SocketAddr) -> io::Result<Self> {
        let is_loopback = address.ip().is_loopback();
        let verify = if is_loopback { Verify::Nothing } else { Verify::Certificate };
        let mut config = client_config(None, verify).map_err(io::Error::other)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connection =
            ClientConnection::new(Arc::new(config), name.clone()).map_err(io::Error::other)?;
        let stream = StreamOwned::new(connection, TcpStream::connect(address)?);
        Ok(Self { stream, name })
    }

    /// The objection that a client on another machine would raise against the certificate.
    pub(super) fn note(&self) -> Option<String> {
        let (own, issuers) = self.stream.conn.peer_certificates()?.split_first()?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(aws_lc_rs::default_provider());
        match WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build() {
            Ok(roots) => roots
                .verify_server_cert(own, issuers, &self.name, &[], UnixTime::now())
                .err()
                .map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }
}
