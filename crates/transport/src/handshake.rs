//! The TLS handshake of a connection that was just accepted.

use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use rustls::server::{Accepted, Acceptor};
use rustls::{CipherSuite, CommonState, ProtocolVersion, ServerConfig, ServerConnection};
use sendoff_message::request::{TLS_13, TlsFacts};
use sendoff_tls::{ACME_PROTOCOL, ClientCertificate};
use tokio::time::timeout;

use super::failure::HandshakeFailure;
use super::tls::{BufferedInput, RustlsSocket, Tls};
use super::{KernelTls, Tcp, Transport, kernel_has_tls, ktls};

/// Limits for draining a refused client, so that it can read the reason: time, and bytes that it
/// may send meanwhile.
const LINGER: Duration = Duration::from_secs(2);
const MOST_DRAINED: usize = 1 << 20;

/// Bytes per read of the bytes that are dropped.
const DRAINED_AT_ONCE: usize = 16 * 1024;

/// Answer to a client that speaks HTTP without TLS on a port for TLS; nginx, too, answers with 400.
const PLAIN_HTTP: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\
    Content-Length: 57\r\n\r\nThis port speaks TLS: the URL must begin with https://.\r\n\r\n";

/// The client's hello.
pub struct Hello<'h> {
    /// The host name in the hello (SNI, RFC 6066 §3).
    pub server_name: Option<&'h str>,
    /// True if the client is an authority that only validates the name (RFC 8737).
    pub is_authority: bool,
}

/// A connection whose handshake is complete.
pub enum Secured {
    /// The server encrypts.
    Server(Tls),
    /// The kernel encrypts.
    Kernel(KernelTls),
}

/// Makes a TLS connection from a TCP connection. `early`: bytes that have been read already.
/// `choose`: returns the configuration for a hello. `refused` gets the connection of a client that
/// was refused, for [`drain`].
///
/// # Errors
/// There is no connection; the client has been told the reason, if possible.
pub async fn accept(
    mut tcp: Tcp,
    mut early: BytesMut,
    choose: impl FnOnce(Hello<'_>) -> io::Result<Arc<ServerConfig>>,
    refused: &mut Option<Tcp>,
) -> Result<(Secured, TlsFacts), HandshakeFailure> {
    let (accepted, mut said) = match read_hello(&mut tcp, &mut early).await {
        Ok(read) => read,
        Err(failure) => {
            *refused = Some(tcp);
            return Err(failure);
        }
    };
    let hello = accepted.client_hello();
    let server_name: Option<Rc<str>> = hello.server_name().map(Rc::from);
    let is_authority =
        hello.alpn().is_some_and(|mut names| names.any(|name| name == ACME_PROTOCOL));
    let config = choose(Hello { server_name: server_name.as_deref(), is_authority })?;
    // An authority needs only the handshake.
    if kernel_has_tls() && !is_authority {
        said.unsplit(early);
        let note = |connection: &CommonState| facts(connection, server_name, true);
        let (kernel, facts) = ktls::accept(tcp, said, config, note, refused).await?;
        return Ok((Secured::Kernel(kernel), facts));
    }
    drop(said);
    let mut connection = match accepted.into_connection(config) {
        Ok(connection) => Box::new(connection),
        Err((error, mut alert)) => {
            // A failure to send the alert changes nothing.
            let _ = alert.write(&mut RustlsSocket(&mut tcp));
            *refused = Some(tcp);
            return Err(HandshakeFailure::Tls(error));
        }
    };
    loop {
        // Sends the server's last part of the handshake, and the session tickets.
        send(&mut connection, &mut tcp).await?;
        if !connection.is_handshaking() {
            break;
        }
        receive(&mut tcp, |tcp| connection.read_tls(&mut BufferedInput { early: &mut early, tcp }))
            .await?;
        if let Err(error) = connection.process_new_packets() {
            let _ = send(&mut connection, &mut tcp).await;
            *refused = Some(tcp);
            return Err(HandshakeFailure::Tls(error));
        }
    }
    if connection.alpn_protocol() == Some(ACME_PROTOCOL) {
        connection.send_close_notify();
        let _ = send(&mut connection, &mut tcp).await;
        return Err(HandshakeFailure::Authority);
    }
    let facts = facts(&connection, server_name, false)?;
    Ok((Secured::Server(Tls::new(tcp, connection)), facts))
}

/// Reads and drops a refused client's bytes until the client closes the connection. A TLS 1.3
/// client sends its request right after its part of the handshake. If those bytes stayed unread,
/// the kernel would reset the connection, and the client could not read why it was refused.
pub async fn drain(mut tcp: Tcp) {
    tcp.finish();
    let read_all = async {
        let mut buffer = BytesMut::new();
        let mut left = MOST_DRAINED;
        while left > 0 {
            buffer.clear();
            buffer.reserve(DRAINED_AT_ONCE);
            match poll_fn(|cx| tcp.poll_read(cx, &mut buffer)).await {
                Ok(read @ 1..) => left = left.saturating_sub(read),
                _ => return,
            }
        }
    };
    // The client is owed nothing more, so a timeout counts as the end.
    let _ = timeout(LINGER, read_all).await;
}

/// Returns the client's hello, and the bytes of it that were read.
async fn read_hello(
    tcp: &mut Tcp,
    early: &mut BytesMut,
) -> Result<(Accepted, BytesMut), HandshakeFailure> {
    let mut acceptor = Acceptor::default();
    let mut read = BytesMut::new();
    loop {
        receive(tcp, |tcp| {
            let mut input = BufferedInput { early, tcp };
            acceptor.read_tls(&mut Noted { read: &mut read, input: &mut input })
        })
        .await?;
        match acceptor.accept() {
            Ok(Some(accepted)) => return Ok((accepted, read)),
            Ok(None) => {}
            // TLS records begin with a small number, HTTP methods with a letter.
            Err(_) if read.first().is_some_and(u8::is_ascii_uppercase) => {
                let _ = tcp.try_send(&[IoSlice::new(PLAIN_HTTP)], false);
                return Err(HandshakeFailure::Plain);
            }
            Err((error, mut alert)) => {
                let _ = alert.write(&mut RustlsSocket(tcp));
                return Err(HandshakeFailure::Tls(error));
            }
        }
    }
}

/// Calls `read` whenever the socket may have bytes, until it has read some.
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

/// Records the bytes that pass through a reader.
struct Noted<'n, 's> {
    read: &'n mut BytesMut,
    input: &'n mut BufferedInput<'s>,
}

impl io::Read for Noted<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(buffer)?;
        self.read.extend_from_slice(&buffer[..n]);
        Ok(n)
    }
}

/// Sends all waiting records.
async fn send(connection: &mut ServerConnection, tcp: &mut Tcp) -> io::Result<()> {
    while connection.wants_write() {
        match connection.write_tls(&mut RustlsSocket(tcp)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                poll_fn(|cx| tcp.poll_writable(cx)).await?;
            }
            sent => drop(sent?),
        }
    }
    Ok(())
}

fn facts(
    connection: &CommonState,
    server_name: Option<Rc<str>>,
    by_kernel: bool,
) -> Result<TlsFacts, HandshakeFailure> {
    let version = match connection.protocol_version() {
        Some(ProtocolVersion::TLSv1_3) => TLS_13,
        _ => "TLSv1.2",
    };
    let suite = connection.negotiated_cipher_suite().map(|suite| suite.suite());
    let certificate = connection.peer_certificates().and_then(|chain| chain.first());
    let certificate = certificate.map(ClientCertificate::read).transpose();
    Ok(TlsFacts {
        by_kernel,
        version,
        cipher: suite.map_or("", cipher_name),
        server_name,
        demand: None,
        client_certificate: certificate
            .map_err(|why| io::Error::new(ErrorKind::InvalidData, why))?,
    })
}

/// The name of a cipher suite in the spelling of OpenSSL, Apache and nginx.
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
