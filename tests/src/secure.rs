//! TLS for scenarios: certificates, and connections of clients that trust every server.
//!
//! `SENDOFF_TEST_TLS=1` runs the scenarios over TLS, `SENDOFF_TEST_H3=1` over HTTP/3: each server
//! gets an address for it, and clients use that.

use crate::ports::Ports;
use crate::quic;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use sendoff_tls::{Verify, client_config};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

/// True if the scenarios run over TLS.
pub(crate) fn is_wanted() -> bool {
    quic::is_wanted() || std::env::var("SENDOFF_TEST_TLS").is_ok_and(|value| value == "1")
}

/// Ports at which servers of this process speak TLS.
pub(crate) static PORTS: Ports = Ports::new();

/// An authority that signs certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key in files.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The certificate, followed by the authority's.
    pub chain: PathBuf,
    /// The key.
    pub key: PathBuf,
}

impl Authority {
    /// A new authority.
    #[allow(clippy::new_without_default, reason = "each one is another")]
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "Authority of the scenarios");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Its own certificate in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Its key in PEM.
    pub fn key_pem(&self) -> String {
        self.0.key().serialize_pem()
    }

    /// Signs a certificate for these hosts, makes the folder, and writes `NAME.pem` and `NAME.key`
    /// to it.
    ///
    /// # Panics
    /// If the folder cannot be written.
    pub fn issue(&self, names: &[&str], folder: &Path, name: &str) -> Certificate {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let chain = params.signed_by(&key, &self.0).unwrap().pem() + &self.pem();
        std::fs::create_dir_all(folder).unwrap();
        let file = |ending: &str, text: &str| {
            let path = folder.join(format!("{name}.{ending}"));
            std::fs::write(&path, text).unwrap();
            path
        };
        Certificate { chain: file("pem", &chain), key: file("key", &key.serialize_pem()) }
    }
}

/// A client that trusts every server, without a socket.
pub fn trusting_client(host: &'static str) -> ClientConnection {
    let name = ServerName::try_from(host).unwrap();
    ClientConnection::new(Arc::clone(&TRUSTING), name).unwrap()
}

/// A client's connection.
pub(crate) enum Wire {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Wire {
    /// TLS, if a server of this process speaks it at the peer's port. ALPN offers HTTP/2, or
    /// nothing.
    pub(crate) fn new(stream: TcpStream, is_http2: bool) -> Self {
        let port = stream.peer_addr().map_or(0, |addr| addr.port());
        if !PORTS.has(port) {
            return Self::Plain(stream);
        }
        let name = ServerName::try_from("localhost").unwrap();
        let config = if is_http2 { &*TRUSTING_HTTP2 } else { &*TRUSTING };
        let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
        Self::Tls(Box::new(StreamOwned::new(connection, stream)))
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(tls) => &tls.sock,
        }
    }

    /// True if TLS has bytes for the socket.
    pub(crate) fn has_unwritten(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.conn.wants_write() || tls.conn.is_handshaking(),
        }
    }

    /// Ends the sending direction.
    pub(crate) fn half_close(&mut self) -> io::Result<()> {
        if let Self::Tls(tls) = self {
            tls.conn.send_close_notify();
            tls.flush()?;
        }
        self.socket().shutdown(std::net::Shutdown::Write)
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(tls) => tls.read(buffer),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(tls) => tls.flush(),
        }
    }
}

/// Trusts every server, and remembers no session.
static TRUSTING: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| trusting(&[]));

/// As [`TRUSTING`], and speaks HTTP/2.
static TRUSTING_HTTP2: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| trusting(&[b"h2"]));

fn trusting(protocols: &[&[u8]]) -> Arc<ClientConfig> {
    let mut config = client_config(None, Verify::Nothing).unwrap();
    config.resumption = rustls::client::Resumption::disabled();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Arc::new(config)
}
