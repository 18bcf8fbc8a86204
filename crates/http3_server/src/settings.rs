//! The settings that this server announces, and its limits.

use std::sync::Arc;
use std::time::Duration;

use quinn_proto::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{IdleTimeout, ServerConfig, TransportConfig, VarInt};
use rustix::net::{AddressFamily, SocketType, socket, sockopt};
use rustls::Tls13CipherSuite;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;

/// The most open requests of a client on a connection; browsers and proxies are content with 100.
const STREAMS: u32 = 128;

/// Unidirectional streams: control, two of QPACK, and some of unknown types, which are refused.
const UNIDIRECTIONAL: u32 = 8;

/// The most bytes of one body that a client may send before the stream's task has taken them: 10
/// MB/s at a round-trip time of 100 ms.
const STREAM_WINDOW: u32 = 1 << 20;

/// The same for all bodies of a connection.
const CONNECTION_WINDOW: u32 = 1 << 20;

/// The most unacknowledged bytes of a new connection. Later it is twice the congestion window.
pub(crate) const SEND_WINDOW: u64 = 128 * 1024;

/// The most unacknowledged bytes of any connection: 100 Mbit/s at a round-trip time of 640 ms.
pub(crate) const MOST_SEND_WINDOW: u64 = 8 << 20;

/// The shortest idle timeout of QUIC: clients on bad networks need it to recover from losses.
const SHORTEST_IDLE: Duration = Duration::from_secs(5);

/// Clients whose first packets wait for an answer, at most, and their bytes.
const MOST_INCOMING: usize = 1024;
const MOST_INCOMING_BYTES: u64 = 64 * 1024;
const MOST_INCOMING_BYTES_TOTAL: u64 = 8 << 20;

/// The time after which QUIC gives up a silent client, for a front that ends idle connections after
/// `idle`.
pub(crate) fn idle_timeout(idle: Duration) -> Duration {
    idle.max(SHORTEST_IDLE)
}

/// The settings of QUIC with this TLS configuration, or the reason why it has none.
pub(crate) fn server_config(
    tls: &Arc<rustls::ServerConfig>,
    idle: Duration,
) -> Result<Arc<ServerConfig>, String> {
    // Initial packets have this suite whatever the operator allows (RFC 9001 §5.2).
    let initial = TLS13_AES_128_GCM_SHA256.tls13().and_then(Tls13CipherSuite::quic_suite);
    let initial = initial.ok_or("this machine has no AES-128-GCM for QUIC")?;
    let crypto = QuicServerConfig::with_initial(Arc::clone(tls), initial);
    let crypto = crypto.map_err(|error| error.to_string())?;
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(STREAMS.into())
        .max_concurrent_uni_streams(UNIDIRECTIONAL.into())
        .stream_receive_window(STREAM_WINDOW.into())
        .receive_window(CONNECTION_WINDOW.into())
        .send_window(SEND_WINDOW)
        .datagram_receive_buffer_size(None)
        .congestion_controller_factory(congestion_control())
        .max_idle_timeout(Some(timeout(idle_timeout(idle))));
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config
        .transport_config(Arc::new(transport))
        .max_incoming(MOST_INCOMING)
        .incoming_buffer_size(MOST_INCOMING_BYTES)
        .incoming_buffer_size_total(MOST_INCOMING_BYTES_TOTAL);
    Ok(Arc::new(config))
}

/// The congestion control that the system has for TCP, as far as QUIC has it: on a path of 20 ms
/// that loses 1 % of the packets, BBR carries 16 times as much as CUBIC.
fn congestion_control() -> Arc<dyn ControllerFactory + Send + Sync> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None);
    let name = socket.and_then(sockopt::tcp_congestion);
    match name.as_deref() {
        Ok("bbr") => Arc::new(BbrConfig::default()),
        Ok("reno") => Arc::new(NewRenoConfig::default()),
        _ => Arc::new(CubicConfig::default()),
    }
}

fn timeout(idle: Duration) -> IdleTimeout {
    IdleTimeout::try_from(idle).unwrap_or(VarInt::MAX.into())
}
