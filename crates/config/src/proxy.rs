//! Applications that requests are passed on to over HTTP, SCGI, uwsgi or AJP.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An application that speaks HTTP, SCGI, uwsgi or AJP, and the settings of requests to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proxy {
    /// The address.
    pub address: ProxyAddress,
    /// The protocol.
    pub protocol: GatewayProtocol,
    /// The fields that tell it about the client.
    pub forwarded: ForwardedFields,
    /// New connections begin with a header of the PROXY protocol, which names the client. Such a
    /// connection serves one request.
    pub proxy_protocol: bool,
    /// Time limits.
    pub timeouts: ProxyTimeouts,
    /// Its URLs and cookies in the form for clients.
    pub urls: ProxyUrls,
}

/// URLs and cookies of an application in the form for its clients.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyUrls {
    /// Takes the prefix of the route off the paths of requests, and puts it before the paths in
    /// responses.
    pub strip_prefix: bool,
    /// Beginnings of URLs in responses, with their replacements, the longest first; `None`: the
    /// address of the application becomes the client's.
    pub redirects: Option<Vec<(String, String)>>,
    /// Beginnings of the paths of cookies, with their replacements, the longest first; `None`: a
    /// stripped prefix is put before the paths.
    pub cookie_paths: Option<Vec<(String, String)>>,
    /// Domains of cookies, with their replacements; an empty one: the cookie gets no domain.
    pub cookie_domains: Vec<(String, String)>,
}

/// The address of an application, which stands behind the scheme of its URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProxyAddress {
    /// A UNIX socket.
    Unix(#[serde(with = "crate::path::one")] PathBuf),
    /// A host, by name or number, and a port.
    Tcp(String),
    /// The hosts of the upstream with this name.
    Upstream(String),
}

impl fmt::Display for ProxyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host_port) => f.write_str(host_port),
            Self::Upstream(name) => write!(f, "upstream:{name}"),
        }
    }
}

/// The protocol of an application.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GatewayProtocol {
    /// HTTP/1.1.
    Http {
        /// The `Host` field of requests.
        host: ProxyHost,
        /// `None`: without TLS.
        tls: Option<ProxyTls>,
        /// Lets clients change to another protocol, such as WebSocket.
        upgrade: bool,
        /// Accepts response heads whose lines end with LF alone.
        bare_line_feeds: bool,
    },
    /// HTTP/2.
    Http2 {
        /// The authority of requests.
        host: ProxyHost,
        /// `None`: without TLS, by prior knowledge.
        tls: Option<ProxyTls>,
        /// Lets clients change to WebSocket.
        upgrade: bool,
        /// Calls of gRPC-Web are passed on as calls of gRPC.
        grpc_web: bool,
    },
    /// SCGI.
    Scgi,
    /// The uwsgi protocol.
    Uwsgi,
    /// AJP 1.3.
    Ajp {
        /// The secret that the application demands from servers.
        secret: Option<String>,
        /// The largest packet, in bytes.
        packet_size: usize,
    },
}

/// The `Host` field of requests that are passed on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProxyHost {
    /// The host that the client named.
    Client,
    /// The host and port of the application.
    Upstream,
    /// This text.
    Fixed(String),
}

/// TLS to an application.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyTls {
    /// The name that its certificate must have, and that the handshake names (SNI).
    pub server_name: String,
    /// A PEM file with the root certificates that its certificate must lead to; `None`: the
    /// system's.
    #[serde(with = "crate::path::optional")]
    pub roots: Option<PathBuf>,
    /// Checks the application's certificate.
    pub verify: bool,
}

/// The fields that tell an application about the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ForwardedFields {
    /// `X-Forwarded-For`, `-Proto`, `-Host` and `-Port`.
    XForwarded,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// None; fields that the client sent are passed on.
    Off,
}

/// The longest time without a byte in either direction of a conversation, such as a WebSocket or a
/// stream of gRPC, unless the configuration sets another.
pub const TUNNEL_TIMEOUT: Duration = Duration::from_secs(3600);

/// Time limits of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyTimeouts {
    /// Until the connection is made, with its TLS handshake.
    pub connect: Duration,
    /// From the request to the first byte of the response.
    pub first_byte: Duration,
    /// While the application neither sends anything nor reads anything of the request.
    pub silence: Duration,
    /// From the request to the end of the response; `None`: no limit.
    pub total: Option<Duration>,
    /// Without a byte in either direction after a change of the protocol.
    pub tunnel: Duration,
}

impl Default for ProxyTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            first_byte: Duration::from_secs(60),
            silence: Duration::from_secs(60),
            total: None,
            tunnel: TUNNEL_TIMEOUT,
        }
    }
}

/// As the operator wrote it: `http://127.0.0.1:8080`, `scgi://unix:/run/app.sock`.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match &self.protocol {
            GatewayProtocol::Http { tls: None, .. } => "http",
            GatewayProtocol::Http { tls: Some(_), .. } => "https",
            GatewayProtocol::Http2 { tls: None, .. } => "h2",
            GatewayProtocol::Http2 { tls: Some(_), .. } => "h2s",
            GatewayProtocol::Scgi => "scgi",
            GatewayProtocol::Uwsgi => "uwsgi",
            GatewayProtocol::Ajp { .. } => "ajp",
        };
        write!(f, "{scheme}://{}", self.address)
    }
}
