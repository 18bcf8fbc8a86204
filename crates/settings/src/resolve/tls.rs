//! TLS of sites: their listeners, certificates and client certificates.

use sendoff_config::{
    AccountBinding, Acme, Certificate, ClientCertificates, DnsHook, ListenAddress, Site, Tls,
    TlsAlgorithms,
};
use sendoff_setting_values::{
    At, CertificateFrom, FilePath, HostName, List, Listen, ListenPlace, Place,
};

use super::context::{Context, unusable};
use super::listen::ListenersSoFar;
use crate::keys;
use crate::machine::FileKind;

/// The resolved TLS settings of a site.
#[derive(Debug, Default)]
pub(crate) struct SiteTls {
    pub(crate) tls: Option<Tls>,
    /// The port to which requests without TLS are redirected.
    pub(crate) https_port: Option<u16>,
}

/// The port of https.
const HTTPS: u16 = 443;

impl Context<'_> {
    /// The addresses of a site. A site with a certificate and without an address for TLS gets port
    /// 443; a site without a certificate is not served at addresses for TLS.
    pub(crate) fn met_by_tls(
        &mut self,
        section: &keys::Site,
        mut numbers: Vec<usize>,
        all: &mut ListenersSoFar,
    ) -> Vec<usize> {
        let speaks_tls =
            |all: &ListenersSoFar, number: &usize| all.get(*number).is_some_and(|one| one.tls);
        if let Some(tls) = &section.tls {
            if !numbers.iter().any(|number| speaks_tls(all, number)) {
                let everywhere = Listen {
                    place: ListenPlace::Everywhere(HTTPS),
                    proxy_protocol: false,
                    tls: true,
                    h3: false,
                    access: sendoff_setting_values::SocketAccess::default(),
                };
                let list = List(vec![At { value: everywhere, place: tls.place }]);
                numbers.extend(all.add(&list, self));
            }
            return numbers;
        }
        let in_clear: Vec<_> =
            numbers.iter().copied().filter(|number| !speaks_tls(all, number)).collect();
        let is_own = section.listen.is_some() && in_clear.len() < numbers.len();
        if is_own || in_clear.is_empty() && !numbers.is_empty() {
            let place = section.listen.as_ref().map_or(section.place, |listen| listen.place);
            self.problems
                .error(
                    place,
                    "clients speak TLS at an address of this site, and it has no certificate",
                )
                .help(
                    "for example: tls = { certificate = \"fullchain.pem\", key = \"privkey.pem\" }",
                );
        }
        in_clear
    }

    /// Resolves the TLS settings of a site.
    pub(crate) fn tls(
        &mut self,
        section: &keys::Site,
        top: &keys::Top,
        listeners: &[usize],
        all: &ListenersSoFar,
    ) -> SiteTls {
        let tls = section.tls.as_ref().and_then(|at| self.credentials(&at.value.0, section, top));
        let is_wanted = match &section.https_redirect {
            Some(wanted) => wanted.value,
            None => section.tls.is_some(),
        };
        let tls_port = listeners.iter().find_map(|number| match all.get(*number) {
            Some(listener) if listener.tls => match &listener.address {
                ListenAddress::Tcp(address) => Some(address.port()),
                ListenAddress::Quic(_) | ListenAddress::Unix(_) => None,
            },
            _ => None,
        });
        // A site without TLS of its own is behind a proxy that speaks TLS.
        let https_port = is_wanted.then(|| tls_port.unwrap_or(HTTPS));
        SiteTls { tls, https_port }
    }

    fn credentials(
        &mut self,
        section: &keys::Tls,
        site: &keys::Site,
        top: &keys::Top,
    ) -> Option<Tls> {
        let certificate = match section.certificate.as_ref().map(|from| &from.value) {
            None => {
                if !section.broken {
                    self.problems.error(section.place, "certificate is missing").help(
                        "a file in PEM, such as fullchain.pem, or \"auto\" or \"self-signed\"",
                    );
                }
                return None;
            }
            Some(CertificateFrom::SelfSigned) => {
                self.refuse_files(section, "a self-signed certificate needs no further file");
                Certificate::SelfSigned
            }
            Some(CertificateFrom::Auto) => {
                self.refuse_files(
                    section,
                    "the server obtains the certificate, with a key of its own",
                );
                if !site.broken {
                    self.check_names(site, top, section.place);
                }
                Certificate::Acme
            }
            Some(CertificateFrom::File(chain)) => {
                let Some(key) = &section.key else {
                    self.problems.error(section.place, "the key of the certificate is missing").help(
                        "for example: tls = { certificate = \"fullchain.pem\", key = \"privkey.pem\" }",
                    );
                    return None;
                };
                let place = section.certificate.as_ref().map_or(section.place, |at| at.place);
                let chain = At { value: FilePath(chain.clone()), place };
                Certificate::Files {
                    chain: self.file(&chain),
                    key: self.file(key),
                    ocsp: section.ocsp.as_ref().map(|ocsp| self.file(ocsp)),
                }
            }
        };
        let clients = section.client_issuers.as_ref().map(|issuers| ClientCertificates {
            issuers: self.file(issuers),
            required: section.client_certificates.value
                == sendoff_setting_values::ClientCertificates::Required,
        });
        if clients.is_none() && section.client_certificates.place != Place::Default {
            self.problems
                .error(section.client_certificates.place, "client_issuers is missing")
                .help("it names the issuers whose certificates count");
        }
        Some(Tls { certificate, clients, oldest: section.oldest.value.into() })
    }

    fn refuse_files(&mut self, section: &keys::Tls, says: &str) {
        for useless in [&section.key, &section.ocsp].into_iter().flatten() {
            self.problems.error(useless.place, says);
        }
    }

    /// Checks that the site's names can be proven: the authority asks for a proof for each name.
    fn check_names(&mut self, site: &keys::Site, top: &keys::Top, place: Place) {
        let Some(hosts) = &site.hosts else {
            self.problems
                .error(
                    place,
                    "a certificate can be obtained only for names, and this site has no hosts",
                )
                .help("hosts = [\"example.org\", \"www.example.org\"]; or tls = \"self-signed\"");
            return;
        };
        for host in &hosts.value.0 {
            let (says, help) = match &host.value {
                HostName::Beneath(_) if top.acme_dns.is_some() => continue,
                HostName::Beneath(ending) => (
                    format!("no certificate can be obtained for *{ending}"),
                    "authorities want wildcards to be proven by DNS: acme_dns names a program that publishes records; or list the hosts",
                ),
                HostName::Exact(name) if is_address(name) => (
                    format!("no certificate is obtained for the address {name}"),
                    "authorities sign names; give this address a site of its own with tls = \"self-signed\"",
                ),
                HostName::Exact(_) => continue,
            };
            self.problems.error(host.place, says).help(help);
        }
    }

    /// The authority that issues certificates, if a site asks for one.
    pub(crate) fn acme(&mut self, top: &keys::Top, sites: &[Site]) -> Option<Acme> {
        let asks =
            |site: &Site| site.tls.as_ref().is_some_and(|tls| tls.certificate == Certificate::Acme);
        let dns = top.acme_dns.as_ref().map(|program| DnsHook {
            program: self.file(program),
            wait: top.acme_dns_wait.value.0,
        });
        let binding = match (&top.acme_account_id, &top.acme_account_key) {
            (Some(id), Some(key)) => {
                Some(AccountBinding { id: id.value.0.clone(), key: self.file(key) })
            }
            (None, None) => None,
            (Some(At { place, .. }), None) | (None, Some(At { place, .. })) => {
                self.problems
                    .error(*place, "acme_account_id and acme_account_key belong together")
                    .help("the authority gives both to its customers");
                None
            }
        };
        sites.iter().any(asks).then(|| Acme {
            binding,
            dns,
            directory: top.acme_directory.value.0.clone(),
            email: top.acme_email.as_ref().map(|email| email.value.0.clone()),
            roots: top.acme_roots.as_ref().map(|roots| self.file(roots)),
        })
    }

    /// The path of a file that must exist. Its contents are checked later.
    pub(crate) fn file(&mut self, path: &At<FilePath>) -> std::path::PathBuf {
        let FilePath(name) = &path.value;
        let says = match self.machine.kind(name) {
            Ok(FileKind::File) => None,
            Ok(_) => Some(format!("{} is not a file", name.display())),
            Err(error) => Some(unusable(name, &error)),
        };
        if let Some(says) = says {
            self.problems.error(path.place, says);
        }
        name.clone()
    }
}

/// The algorithms of TLS that clients may choose from.
pub(crate) fn algorithms(top: &keys::Top) -> TlsAlgorithms {
    TlsAlgorithms {
        ciphers: top.tls_ciphers.iter().flat_map(|list| list.value.values()).copied().collect(),
        groups: top.tls_groups.iter().flat_map(|list| list.value.values()).copied().collect(),
    }
}

/// True if a host is an IP address; IPv6 addresses stand in brackets.
fn is_address(host: &str) -> bool {
    host.starts_with('[') || host.parse::<std::net::IpAddr>().is_ok()
}
