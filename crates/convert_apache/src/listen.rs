//! Addresses: `Listen`, and the words of `<VirtualHost>`.

use std::net::IpAddr;

use sendoff_convert_document::Directive;

/// An address that the server listens on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// `None`: every address of the machine.
    pub(super) host: Option<String>,
    pub(super) port: u16,
}

/// The addresses of a `<VirtualHost>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    host: Option<String>,
    /// `None`: every port that the server listens on.
    port: Option<u16>,
}

/// The port of a host if no other one is known.
const HTTP: u16 = 80;

/// A host and a port; `None`: these are none.
fn parts(text: &str) -> Option<(Option<String>, Option<u16>)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let port = match port {
        None | Some("*") => None,
        Some(port) => Some(port.parse().ok()?),
    };
    let host = match host {
        "*" | "_default_" | "" => None,
        host => Some(host.to_owned()),
    };
    let is_address = |host: &String| host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    host.as_ref().is_none_or(is_address).then_some((host, port))
}

/// Reads a word of a `<VirtualHost>`: `*:80`, `192.0.2.1:443`, `[::1]:80`, `_default_:443`, or one
/// without a port.
pub(super) fn wanted(text: &str) -> Option<Wanted> {
    let (host, port) = parts(text)?;
    Some(Wanted { host: host.filter(|host| host != "0.0.0.0"), port })
}

impl Wanted {
    /// Every port of every address.
    pub(super) fn any() -> Self {
        Self { host: None, port: None }
    }

    /// True if it names an address of the machine.
    pub(super) fn has_host(&self) -> bool {
        self.host.is_some()
    }

    /// The addresses of `Listen` that lead to this host.
    pub(super) fn among(&self, listened: &[Address]) -> Vec<Address> {
        let fits = |one: &&Address| {
            self.port.is_none_or(|port| port == one.port)
                && (self.host.is_none() || one.is_any() || one.host == self.host)
        };
        let found = listened.iter().filter(fits);
        found
            .map(|one| Address {
                host: self.host.clone().or_else(|| one.host.clone()),
                port: one.port,
            })
            .collect()
    }

    /// The address, if no `Listen` is known.
    pub(super) fn alone(&self) -> Address {
        Address { host: self.host.clone(), port: self.port.unwrap_or(HTTP) }
    }
}

impl Address {
    /// True for every address of the machine.
    pub(super) fn is_any(&self) -> bool {
        matches!(self.host.as_deref(), None | Some("0.0.0.0" | "[::]"))
    }

    /// True if a connection may come to both addresses.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let is_same = self.host == other.host || self.is_any() || other.is_any();
        self.port == other.port && is_same
    }

    /// The value of `listen`.
    pub(super) fn listen(&self, has_tls: bool) -> String {
        let tls = if has_tls { " tls" } else { "" };
        match &self.host {
            Some(host) => format!("{host}:{}{tls}", self.port),
            None => format!("{}{tls}", self.port),
        }
    }
}

/// The addresses of `Listen`; true for those that speak TLS.
pub(super) fn listened(main: &[Directive]) -> Vec<(Address, bool)> {
    main.iter()
        .filter(|directive| directive.name == "listen")
        .filter_map(|listen| {
            let word = listen.word();
            let (host, port) = match word.parse() {
                Ok(port) => (None, Some(port)),
                Err(_) => parts(word)?,
            };
            let has_tls = listen.words.get(1).is_some_and(|word| word == "https");
            Some((Address { host, port: port? }, has_tls))
        })
        .collect()
}
