//! The TLS handshake of a connection that was just accepted.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;
use rustls::server::{Accepted, Acceptor};
use rustls::{CipherSuite, ProtocolVersion, ServerConfig, ServerConnection};
use sendoff_tls::{ACME_PROTOCOL, ClientCertificate};

use super::tls::{Input, Socket, Tls};
use super::{Tcp, Transport};
use crate::request::TlsFacts;

/// What the client of a port for TLS is told that speaks HTTP in the clear; nginx, too, answers with 400.
const PLAIN_HTTP: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\
    Content-Length: 57\r\n\r\nThis port speaks TLS: the URL must begin with https://.\r\n\r\n";

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The client has left, or its socket is broken.
    Io(io::Error),
    /// The client and the server do not agree, or what the client sends is no TLS.
    Tls(rustls::Error),
    /// The client speaks HTTP in the clear.
    Plain,
    /// The client is an authority, which has checked a name: it needs no more than the handshake (RFC 8737 §3).
    Authority,
}

/// What a client says before it is answered.
pub(crate) struct Hello<'h> {
    /// The host that it names (SNI, RFC 6066 §3).
    pub(crate) server_name: Option<&'h str>,
    /// Whether it wants to check the name and nothing else (RFC 8737).
    pub(crate) is_authority: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::Plain => f.write_str("the client speaks HTTP in the clear"),
            Self::Authority => f.write_str("an authority has checked a name"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Makes a TLS connection of a TCP connection. `early`: what the client has sent already. `choose`: the configuration for
/// what the client says.
///
/// # Errors
/// There is no connection; the client has been told why, if it could be.
pub(crate) async fn accept(
    mut tcp: Tcp,
    mut early: BytesMut,
    choose: impl FnOnce(Hello<'_>) -> io::Result<Arc<ServerConfig>>,
) -> Result<(Tls, TlsFacts), Failure> {
    let accepted = read_hello(&mut tcp, &mut early).await?;
    let hello = accepted.client_hello();
    let server_name: Option<Rc<str>> = hello.server_name().map(Rc::from);
    let is_authority =
        hello.alpn().is_some_and(|mut names| names.any(|name| name == ACME_PROTOCOL));
    let config = choose(Hello { server_name: server_name.as_deref(), is_authority })?;
    let mut connection = match accepted.into_connection(config) {
        Ok(connection) => Box::new(connection),
        Err((error, mut alert)) => {
            // It does not matter if it cannot be sent.
            let _ = alert.write(&mut Socket(&mut tcp));
            return Err(Failure::Tls(error));
        }
    };
    loop {
        // What ends the handshake on the server's side, and session tickets, too.
        send(&mut connection, &mut tcp).await?;
        if !connection.is_handshaking() {
            break;
        }
        receive(&mut tcp, |tcp| connection.read_tls(&mut Input { early: &mut early, tcp })).await?;
        if let Err(error) = connection.process_new_packets() {
            let _ = send(&mut connection, &mut tcp).await;
            return Err(Failure::Tls(error));
        }
    }
    if connection.alpn_protocol() == Some(ACME_PROTOCOL) {
        connection.send_close_notify();
        let _ = send(&mut connection, &mut tcp).await;
        return Err(Failure::Authority);
    }
    let facts = facts(&connection, server_name)?;
    Ok((Tls::new(tcp, connection), facts))
}

async fn read_hello(tcp: &mut Tcp, early: &mut BytesMut) -> Result<Accepted, Failure> {
    let mut acceptor = Acceptor::default();
    let mut first = early.first().copied();
    loop {
        receive(tcp, |tcp| {
            let mut input = Input { early, tcp };
            acceptor.read_tls(&mut First { first: &mut first, input: &mut input })
        })
        .await?;
        match acceptor.accept() {
            Ok(Some(accepted)) => return Ok(accepted),
            Ok(None) => {}
            // Records begin with a small number, methods with a letter.
            Err(_) if first.is_some_and(|byte| byte.is_ascii_uppercase()) => {
                let _ = tcp.try_send(&[IoSlice::new(PLAIN_HTTP)], false);
                tcp.finish();
                return Err(Failure::Plain);
            }
            Err((error, mut alert)) => {
                let _ = alert.write(&mut Socket(tcp));
                return Err(Failure::Tls(error));
            }
        }
    }
}

/// Calls `read` until it has read something, each time that the socket may have more.
async fn receive(
    tcp: &mut Tcp,
    mut read: impl FnMut(&mut Tcp) -> io::Result<usize>,
) -> io::Result<()> {
    loop {
        match read(tcp) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                poll_fn(|cx| tcp.poll_readable(cx)).await?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Notes the first byte that is read.
struct First<'f, 's> {
    first: &'f mut Option<u8>,
    input: &'f mut Input<'s>,
}

impl io::Read for First<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(buffer)?;
        *self.first = self.first.or(buffer[..n].first().copied());
        Ok(n)
    }
}

/// Sends all records that wait.
async fn send(connection: &mut ServerConnection, tcp: &mut Tcp) -> io::Result<()> {
    while connection.wants_write() {
        match connection.write_tls(&mut Socket(tcp)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                poll_fn(|cx| tcp.poll_writable(cx)).await?;
            }
            sent => drop(sent?),
        }
    }
    Ok(())
}

fn facts(connection: &ServerConnection, server_name: Option<Rc<str>>) -> Result<TlsFacts, Failure> {
    let version = match connection.protocol_version() {
        Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
        _ => "TLSv1.2",
    };
    let suite = connection.negotiated_cipher_suite().map(|suite| suite.suite());
    let certificate = connection.peer_certificates().and_then(|chain| chain.first());
    let certificate = certificate.map(ClientCertificate::read).transpose();
    Ok(TlsFacts {
        version,
        cipher: suite.map_or("", cipher_name),
        server_name,
        client_certificate: certificate
            .map_err(|why| io::Error::new(ErrorKind::InvalidData, why))?,
    })
}

/// The name of a cipher suite as OpenSSL, and with it Apache and nginx, write it.
fn cipher_name(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => "ECDHE-ECDSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => "ECDHE-ECDSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => {
            "ECDHE-ECDSA-CHACHA20-POLY1305"
        }
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => "ECDHE-RSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => "ECDHE-RSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => "ECDHE-RSA-CHACHA20-POLY1305",
        other => other.as_str().unwrap_or_default(),
    }
}
