//! The certificates that the configuration asks for.

use sendoff_config::{Certificate, Config, Host, ListenAddress, Site};
use sha1::{Digest, Sha1};

/// A method by which an authority checks that a name leads to this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// A TLS handshake at port 443.
    TlsAlpn01,
    /// A request without TLS at port 80.
    Http01,
    /// A TXT record.
    Dns01,
}

/// A certificate that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WantedCertificate {
    /// Its names, in order.
    pub(crate) names: Vec<String>,
    /// The methods that can prove the names, in the order in which they are tried; never empty.
    pub(crate) methods: Vec<Method>,
}

impl WantedCertificate {
    /// The base name of its files. Certificates for the same names have the same one.
    pub(crate) fn file(&self) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        let first = self.names.first().map_or("", |name| name.as_str());
        let first: String = first.chars().map(|c| if plain(c) { c } else { '_' }).collect();
        if self.names.len() == 1 {
            return first;
        }
        let digest = Sha1::digest(self.names.join(" "));
        let short: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        format!("{first}-{short}")
    }
}

/// The certificates of all sites. Sites with the same names share one.
pub(crate) fn wanted(config: &Config) -> Vec<WantedCertificate> {
    let mut all: Vec<WantedCertificate> = Vec::new();
    for site in config.sites.iter().filter(|site| asks(site)) {
        let mut names: Vec<_> = site.hosts.iter().map(Host::certificate_name).collect();
        names.sort();
        names.dedup();
        let methods = methods(config, site);
        match all.iter_mut().find(|known| known.names == names) {
            Some(known) if methods.len() > known.methods.len() => known.methods = methods,
            Some(_) => {}
            None if names.is_empty() => {}
            None => all.push(WantedCertificate { names, methods }),
        }
    }
    all
}

/// True if both configurations ask for the same certificates, in the same way, for sites with the
/// same numbers.
#[must_use]
pub fn is_same_work(from: &Config, to: &Config) -> bool {
    let sites = |config: &Config| -> Vec<_> {
        config.sites.iter().map(|site| asks(site).then(|| site.hosts.clone())).collect()
    };
    from.acme == to.acme
        && from.fleet == to.fleet
        && from.state == to.state
        && from.log == to.log
        && sites(from) == sites(to)
        && wanted(from) == wanted(to)
}

fn asks(site: &Site) -> bool {
    site.tls.as_ref().is_some_and(|tls| tls.certificate == Certificate::Acme)
}

/// The methods for a site. Without the operator's program for DNS the authority connects over TCP; its connections may be forwarded to
/// other ports than 443 and 80.
fn methods(config: &Config, site: &Site) -> Vec<Method> {
    if config.acme.as_ref().is_some_and(|acme| acme.dns.is_some()) {
        return vec![Method::Dns01];
    }
    let listeners = site.listeners.iter().filter_map(|number| config.listen.get(*number));
    let tcp: Vec<_> =
        listeners.filter(|one| matches!(one.address, ListenAddress::Tcp(_))).collect();
    let mut methods = Vec::new();
    if tcp.iter().any(|one| one.tls) {
        methods.push(Method::TlsAlpn01);
    }
    // Listeners without TLS answer challenges for every site.
    let is_clear =
        |one: &sendoff_config::Listener| !one.tls && matches!(one.address, ListenAddress::Tcp(_));
    if config.listen.iter().any(is_clear) || methods.is_empty() {
        methods.push(Method::Http01);
    }
    methods
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> String {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        WantedCertificate { names, methods: vec![Method::Http01] }.file()
    }

    #[test]
    fn files_are_told_apart_by_all_names() {
        assert_eq!(of(&["a.test"]), "a.test");
        assert_eq!(of(&["../x"]), ".._x");
        let two = of(&["a.test", "b.test"]);
        assert!(two.starts_with("a.test-") && two.len() == "a.test-".len() + 8, "{two}");
        assert_ne!(two, of(&["a.test", "c.test"]));
    }
}
