//! The addresses of a block: hosts, ports, and the protocol.

use sendoff_convert_document::Place;

use super::global::{Global, Https};

/// An address, as `https://example.org:8443`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// `None`: every host.
    pub(super) host: Option<String>,
    pub(super) port: u16,
    pub(super) has_tls: bool,
    pub(super) place: Place,
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// It cannot be expressed; the reason.
    pub(super) fn read(text: &str, place: &Place, global: &Global) -> Result<Self, String> {
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme @ ("http" | "https"), rest)) => (Some(scheme), rest),
            Some((scheme, _)) => return Err(format!("the protocol {scheme} is not known")),
            None => (None, text),
        };
        if rest.contains('/') || rest.contains('{') {
            return Err("a path or a placeholder in an address is not known".to_owned());
        }
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                let port: u16 = port.parse().map_err(|_| format!("{port} is no port"))?;
                (host, Some(port))
            }
            _ => (rest, None),
        };
        let host = (!host.is_empty() && host != "*").then(|| host.to_ascii_lowercase());
        let is_name = |host: &String| {
            host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.*_[]:".contains(&b))
                && (!host.contains('*') || host.starts_with("*.") && host.matches('*').count() == 1)
        };
        if !host.as_ref().is_none_or(is_name) {
            return Err("such a host is not known".to_owned());
        }
        let has_tls = match (scheme, port) {
            (Some(scheme), _) => scheme == "https",
            (None, Some(port)) if port == global.http_port => false,
            (None, Some(port)) if port == global.https_port => true,
            (None, _) => host.is_some() && global.https != Https::Off,
        };
        let port = port.unwrap_or(match has_tls {
            true => global.https_port,
            false => global.http_port,
        });
        Ok(Self { host, port, has_tls, place: place.clone() })
    }

    /// The address to listen on, at a network address or at all.
    pub(super) fn listen(&self, bind: Option<&str>) -> String {
        let tls = if self.has_tls { " tls" } else { "" };
        match bind {
            Some(host) if host.contains(':') => format!("[{host}]:{}{tls}", self.port),
            Some(host) => format!("{host}:{}{tls}", self.port),
            None => format!("{}{tls}", self.port),
        }
    }

    /// True if Caddy makes the certificate of this host itself: an authority knows it not.
    pub(super) fn is_internal(&self) -> bool {
        const ENDS: [&str; 4] = [".localhost", ".local", ".internal", ".home.arpa"];
        self.host.as_ref().is_some_and(|host| {
            host == "localhost"
                || ENDS.iter().any(|end| host.ends_with(end))
                || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok()
        })
    }
}
