//! The addresses of clients behind proxies: `RemoteIPHeader` and its like.
//!
//! The keys for trusted proxies are of the whole server, the directives perhaps of one host. Where
//! both differ, Sendoff would judge another address than Apache: rules about addresses refuse there.

use std::net::IpAddr;

use sendoff_convert_document::network::{self, is_network};
use sendoff_convert_document::{Directive, Section};

/// The statements about proxies that hold for a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trust {
    /// The address of a client is the one of its connection.
    None,
    Proxies {
        field: String,
        networks: Vec<String>,
        /// True if the proxies may name addresses of private networks.
        is_internal: bool,
    },
    /// They cannot be expressed.
    Unknown,
}

/// The addresses that rules of a site judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clients {
    /// The same ones as in Apache.
    Same,
    /// The same ones, unless a proxy names an address of a private network.
    SameIfPublic,
    /// Perhaps others.
    Unknown,
}

/// Other directives that change the addresses of clients.
const OTHERS: [&str; 4] = [
    "remoteiptrustedproxylist",
    "remoteipinternalproxylist",
    "remoteipproxyprotocol",
    "remoteipproxyprotocolexceptions",
];

impl Trust {
    /// The statements of the server, and of a host in it. A host's own list replaces the server's.
    pub(super) fn of(main: &[Directive], host: Option<&[Directive]>) -> Self {
        let named = |block: &[Directive], names: &[&str]| -> Vec<Directive> {
            block.iter().filter(|one| names.contains(&one.name.as_str())).cloned().collect()
        };
        let effective = |names: &[&str]| {
            let own = named(host.unwrap_or_default(), names);
            if own.is_empty() { named(main, names) } else { own }
        };
        let is_odd = |one: &Directive| {
            one.name != "remoteipproxyprotocol" || !one.word().eq_ignore_ascii_case("off")
        };
        if effective(&OTHERS).iter().any(is_odd) {
            return Self::Unknown;
        }
        let Some(field) = effective(&["remoteipheader"]).pop() else { return Self::None };
        let proxies = effective(&["remoteipinternalproxy", "remoteiptrustedproxy"]);
        let networks: Vec<String> = proxies.iter().flat_map(|one| one.words.clone()).collect();
        // Without a list Apache trusts every client.
        match !networks.is_empty() && networks.iter().all(|network| is_network(network)) {
            true => Self::Proxies {
                field: field.word().to_owned(),
                networks,
                is_internal: proxies.iter().all(|one| one.name == "remoteipinternalproxy"),
            },
            false => Self::Unknown,
        }
    }

    /// The keys of the whole server.
    pub(super) fn set(&self, top: &mut Section) {
        let Self::Proxies { field, networks, .. } = self else { return };
        match field.eq_ignore_ascii_case("x-forwarded-for") {
            true => top.set("proxy_field", "X-Forwarded-For alone"),
            false => top.set("proxy_field", field.as_str()),
        }
        top.set_list("trusted_proxies", networks.clone());
    }

    /// The addresses that a site with these statements judges, if the server has `top`.
    pub(super) fn clients(&self, top: &Self) -> Clients {
        match self {
            Self::Unknown => Clients::Unknown,
            own if own != top => Clients::Unknown,
            Self::Proxies { is_internal: false, .. } => Clients::SameIfPublic,
            _ => Clients::Same,
        }
    }
}

impl Clients {
    pub(super) fn are_unknown(self) -> bool {
        self == Self::Unknown
    }

    /// True if a client of these networks is one of them in Apache, too.
    pub(super) fn are_judged_alike(self, networks: &[String]) -> bool {
        match self {
            Self::Same => true,
            Self::SameIfPublic => networks.iter().all(|network| is_public(network)),
            Self::Unknown => false,
        }
    }
}

/// True for a network none of whose addresses is in one of the networks that Apache takes for
/// private.
fn is_public(network: &str) -> bool {
    match network::parse(network) {
        Some((IpAddr::V4(address), 8..)) => {
            !matches!(address.octets()[0], 0 | 10 | 127 | 169 | 172 | 192 | 224..)
        }
        Some((IpAddr::V6(address), 3..)) => address.segments()[0] >> 13 == 1,
        _ => false,
    }
}

/// Names the directives whose effect the server does not have.
pub(super) fn name(blocks: [&[Directive]; 2], clients: Clients, site: &mut Section) {
    if !clients.are_unknown() {
        return;
    }
    let is_own = |one: &&Directive| {
        OTHERS.contains(&one.name.as_str())
            || matches!(
                one.name.as_str(),
                "remoteipheader" | "remoteipinternalproxy" | "remoteiptrustedproxy"
            )
    };
    let mut is_named = false;
    for directive in blocks.into_iter().flatten().filter(is_own) {
        directive.left_out(site, "trusted proxies are networks, and of the whole server");
        is_named = true;
    }
    if !is_named {
        site.comment("trusted_proxies also holds for this site: its rules about addresses refuse.");
    }
}
