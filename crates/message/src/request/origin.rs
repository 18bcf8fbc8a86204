//! The two ends of a connection, its scheme and its TLS handshake.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use sendoff_config::TrustedProxies;
use sendoff_tls::{ClientCertificate, ClientDemand};

/// Facts about a connection that are known before its first request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The place of the listener that accepted it, by which sites know the listener: its number in
    /// `Config::listen` at the start of the front. Other listeners get further places at reloads.
    pub listener: usize,
    /// The scheme of the listener's connections.
    pub scheme: Scheme,
    /// The results of the TLS handshake; `None` without TLS.
    pub tls: Option<Rc<TlsFacts>>,
    /// The client's end.
    pub peer: Endpoint,
    /// The end that the client connected to.
    pub local: Endpoint,
    /// The peer is a proxy whose PROXY protocol header names no client.
    pub is_anonymous: bool,
}

impl Origin {
    /// True if a trusted proxy has made the fields about the client, so they count.
    /// A proxy of connections that does not name its client passes on what the client says.
    #[must_use]
    pub fn vouches(&self, proxies: &TrustedProxies) -> bool {
        !self.is_anonymous && self.is_trusted(proxies)
    }

    /// True if the peer is a trusted proxy.
    #[must_use]
    pub fn is_trusted(&self, proxies: &TrustedProxies) -> bool {
        self.peer.ip().map_or(proxies.unix, |address| proxies.contains(address))
    }
}

/// The scheme of a request's URI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// The connection is in the clear.
    Http,
    /// The connection is encrypted.
    Https,
}

impl Scheme {
    /// The port of a URI that names none.
    #[must_use]
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// The scheme as it stands in a URI.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// The name of TLS 1.3 as OpenSSL and nginx write it.
pub const TLS_13: &str = "TLSv1.3";

/// The results of a TLS handshake.
#[derive(Debug, PartialEq, Eq)]
pub struct TlsFacts {
    /// True if the kernel encrypts bytes written to the socket; otherwise the server does.
    pub by_kernel: bool,
    /// The version as OpenSSL and nginx write it: [`TLS_13`].
    pub version: &'static str,
    /// The cipher suite, by its name in OpenSSL and nginx.
    pub cipher: &'static str,
    /// The host that the client named (SNI).
    pub server_name: Option<Rc<str>>,
    /// The demand for client certificates under which the client has connected.
    pub demand: Option<Arc<ClientDemand>>,
    /// The certificate that the client has shown and that was verified.
    pub client_certificate: Option<ClientCertificate>,
}

/// One end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// An address and a port; port 0: the port is not known.
    Ip(SocketAddr),
    /// A UNIX socket with its path; clients' sockets have none.
    Unix(Option<Rc<Path>>),
}

impl Endpoint {
    /// The address without the port; `None` for a UNIX socket.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(address) => Some(address.ip()),
            Self::Unix(_) => None,
        }
    }

    /// The port, if it has one and it is known.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Ip(address) => Some(address.port()).filter(|&port| port > 0),
            Self::Unix(_) => None,
        }
    }

    /// The address without the port, as in CGI parameters: `192.0.2.1`, `2001:db8::1`,
    /// `unix:/run/site.sock`; `unix:` for a client's socket. nginx writes the same.
    #[must_use]
    pub fn address(&self) -> Cow<'static, [u8]> {
        match self {
            Self::Ip(address) => Cow::Owned(match address.ip() {
                IpAddr::V4(address) => decimal(address),
                IpAddr::V6(address) => address.to_string().into_bytes(),
            }),
            Self::Unix(None) => Cow::Borrowed(b"unix:"),
            Self::Unix(Some(path)) => Cow::Owned([b"unix:", path.as_os_str().as_bytes()].concat()),
        }
    }
}

/// The address as `Display` writes it. `Display` itself took 3.5 % of the front's instructions for
/// a small page (two addresses per request).
fn decimal(address: Ipv4Addr) -> Vec<u8> {
    let mut text = Vec::with_capacity("255.255.255.255".len());
    for (number, octet) in address.octets().into_iter().enumerate() {
        if number > 0 {
            text.push(b'.');
        }
        let digits = [octet / 100, octet / 10 % 10, octet % 10];
        let first = digits[..2].iter().position(|&digit| digit > 0).unwrap_or(2);
        text.extend(digits[first..].iter().map(|digit| b'0' + digit));
    }
    text
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

/// For logs: with the port, if it is known.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) if address.port() == 0 => address.ip().fmt(f),
            Self::Ip(address) => address.fmt(f),
            Self::Unix(path) => {
                write!(f, "unix:{}", path.as_deref().unwrap_or(Path::new("")).display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_shown_with_what_they_have() {
        let ip = |text: &str| Endpoint::from(text.parse::<SocketAddr>().unwrap());
        let path = Endpoint::Unix(Some(Path::new("/run/a.sock").into()));
        for (endpoint, shown, address, port) in [
            (ip("192.0.2.1:5"), "192.0.2.1:5", "192.0.2.1", Some(5)),
            (ip("10.0.100.255:80"), "10.0.100.255:80", "10.0.100.255", Some(80)),
            (ip("192.0.2.1:0"), "192.0.2.1", "192.0.2.1", None),
            (ip("[2001:db8::1]:80"), "[2001:db8::1]:80", "2001:db8::1", Some(80)),
            (Endpoint::Unix(None), "unix:", "unix:", None),
            (path, "unix:/run/a.sock", "unix:/run/a.sock", None),
        ] {
            assert_eq!(endpoint.to_string(), shown);
            assert_eq!((&*endpoint.address(), endpoint.port()), (address.as_bytes(), port));
            assert_eq!(endpoint.ip().is_some(), !shown.starts_with("unix:"));
        }
    }
}
