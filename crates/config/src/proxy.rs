//! Applications that requests are passed on to over HTTP, SCGI or AJP.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An application that speaks HTTP, SCGI or AJP, and how it is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proxy {
    /// Where it listens.
    pub address: ProxyAddress,
    /// What it speaks.
    pub protocol: ProxyProtocol,
    /// What it is told about the client.
    pub forwarded: ForwardedFields,
    /// Whether a new connection begins with a header of the PROXY protocol, which names the client. Such a connection serves one request.
    pub proxy_protocol: bool,
    /// Time limits.
    pub timeouts: ProxyTimeouts,
}

/// Where an application listens. Written behind the scheme of its URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProxyAddress {
    /// A UNIX socket.
    Unix(#[serde(with = "crate::path::one")] PathBuf),
    /// A host, by name or number, and a port.
    Tcp(String),
    /// On the hosts of the upstream with this name.
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

/// What an application speaks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProxyProtocol {
    /// HTTP/1.1.
    Http {
        /// The `Host` field of requests.
        host: ProxyHost,
        /// `None`: in the clear.
        tls: Option<ProxyTls>,
        /// Whether clients may change to another protocol, such as WebSocket.
        upgrade: bool,
    },
    /// SCGI.
    Scgi,
    /// AJP 1.3.
    Ajp {
        /// What the application demands of servers that ask it.
        secret: Option<String>,
        /// The largest packet, in bytes.
        packet_size: usize,
    },
}

/// The `Host` field of requests that are passed on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProxyHost {
    /// The host that the client asked for.
    Client,
    /// The host and port of the application.
    Upstream,
    /// This text.
    Fixed(String),
}

/// How an application is met under TLS.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyTls {
    /// The name that its certificate must have, and that it is told (SNI).
    pub server_name: String,
    /// A file in PEM with the roots that its certificate must lead to; `None`: those of the system.
    #[serde(with = "crate::path::optional")]
    pub roots: Option<PathBuf>,
    /// Whether its certificate is checked.
    pub verify: bool,
}

/// The fields that tell an application about the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ForwardedFields {
    /// `X-Forwarded-For`, `-Proto`, `-Host` and `-Port`.
    XForwarded,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// None; what the client has sent of them is passed on.
    Off,
}

/// Time limits of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyTimeouts {
    /// Until it has taken a connection; TLS included.
    pub connect: Duration,
    /// From the request to the first byte of the response.
    pub first_byte: Duration,
    /// How long it may neither send anything nor take anything of the request.
    pub silence: Duration,
    /// From the request to the end of the response; `None`: any.
    pub total: Option<Duration>,
    /// How long nothing may pass in either direction after a change of the protocol.
    pub tunnel: Duration,
}

impl Default for ProxyTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            first_byte: Duration::from_secs(60),
            silence: Duration::from_secs(60),
            total: None,
            tunnel: Duration::from_secs(3600),
        }
    }
}

/// As the operator wrote it: `http://127.0.0.1:8080`, `scgi://unix:/run/app.sock`.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match &self.protocol {
            ProxyProtocol::Http { tls: None, .. } => "http",
            ProxyProtocol::Http { tls: Some(_), .. } => "https",
            ProxyProtocol::Scgi => "scgi",
            ProxyProtocol::Ajp { .. } => "ajp",
        };
        write!(f, "{scheme}://{}", self.address)
    }
}
