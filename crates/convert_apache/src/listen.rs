//! Addresses and hosts of a site.

use sendoff_convert_document::{Directive, Section};

/// An address of a `<VirtualHost>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// `None`: every address of the machine.
    host: Option<String>,
    port: u16,
}

/// Reads `*:80`, `192.0.2.1:443`, `[::1]:80`, `_default_:443`, or without a port.
pub(super) fn address(text: &str) -> Option<Address> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let port = match port {
        None | Some("*") => 80,
        Some(port) => port.parse().ok()?,
    };
    let host = match host {
        "*" | "_default_" | "" | "0.0.0.0" => None,
        host => Some(host.to_owned()),
    };
    let is_address =
        |host: &String| host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
    host.as_ref().is_none_or(is_address).then_some(Address { host, port })
}

impl Address {
    /// The value of `listen`.
    pub(super) fn listen(&self, has_tls: bool) -> String {
        let tls = if has_tls { " tls" } else { "" };
        match &self.host {
            Some(host) => format!("{host}:{}{tls}", self.port),
            None => format!("{}{tls}", self.port),
        }
    }
}

/// The addresses of `Listen`, those with `https` among them.
pub(super) fn listened(main: &[Directive]) -> Vec<(Address, bool)> {
    main.iter()
        .filter(|directive| directive.name == "listen")
        .filter_map(|listen| {
            let text = match listen.word().bytes().all(|b| b.is_ascii_digit()) {
                true => format!("*:{}", listen.word()),
                false => listen.word().to_owned(),
            };
            let has_tls = listen.words.get(1).is_some_and(|word| word == "https");
            Some((address(&text)?, has_tls))
        })
        .collect()
}

/// The hosts of `ServerName` and `ServerAlias`.
pub(super) fn hosts(block: &[Directive], site: &mut Section) -> Vec<String> {
    let mut hosts: Vec<String> = Vec::new();
    for directive in block {
        let words: &[String] = match directive.name.as_str() {
            "servername" => &directive.words[..directive.words.len().min(1)],
            "serveralias" => &directive.words,
            _ => continue,
        };
        for word in words {
            let name = word.rsplit_once("://").map_or(word.as_str(), |(_, name)| name);
            let name = match name.rsplit_once(':') {
                Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
                _ => name,
            };
            let name = name.to_ascii_lowercase();
            let has_star = name.contains(['*', '?']);
            let is_known = !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.*[]:".contains(&b))
                && (!has_star || name.starts_with("*.") && name.matches('*').count() == 1);
            match is_known {
                true if !hosts.contains(&name) => hosts.push(name),
                true => {}
                false => directive.left_out(site, "such a host is not known"),
            }
        }
    }
    hosts
}
