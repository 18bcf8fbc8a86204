//! Which sites speak TLS, where, and with what.

use sendoff_config::{Certificate, ClientCertificates, ListenAddress, Tls};

use super::context::{Context, unusable};
use super::listen::Listeners;
use crate::keys;
use crate::machine::Kind;
use crate::place::At;
use crate::value::List;
use crate::words::{self, CertificateFrom, FilePath, Listen, ListenPlace};

/// What a site has of TLS.
#[derive(Debug, Default)]
pub(crate) struct Secured {
    pub(crate) tls: Option<Tls>,
    /// The port that requests in the clear are redirected to.
    pub(crate) https_port: Option<u16>,
}

/// The port of https.
const HTTPS: u16 = 443;

impl Context<'_> {
    /// The addresses of a site: one with a certificate that has no address for TLS gets port 443; one without is not reached at
    /// addresses for TLS.
    pub(crate) fn met_by_tls(
        &mut self,
        section: &keys::Site,
        mut numbers: Vec<usize>,
        all: &mut Listeners,
    ) -> Vec<usize> {
        let speaks_tls =
            |all: &Listeners, number: &usize| all.get(*number).is_some_and(|one| one.tls);
        if let Some(tls) = &section.tls {
            if !numbers.iter().any(|number| speaks_tls(all, number)) {
                let everywhere = Listen {
                    place: ListenPlace::Everywhere(HTTPS),
                    proxy_protocol: false,
                    tls: true,
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

    /// Resolves what a site says about TLS.
    pub(crate) fn tls(
        &mut self,
        section: &keys::Site,
        listeners: &[usize],
        all: &Listeners,
    ) -> Secured {
        let tls = section.tls.as_ref().and_then(|at| self.credentials(&at.value.0));
        let is_wanted = match &section.https_redirect {
            Some(wanted) => wanted.value,
            None => section.tls.is_some(),
        };
        let tls_port = listeners.iter().find_map(|number| match all.get(*number) {
            Some(listener) if listener.tls => match &listener.address {
                ListenAddress::Tcp(address) => Some(address.port()),
                ListenAddress::Unix(_) => None,
            },
            _ => None,
        });
        // Without TLS of its own, the site is behind a proxy that speaks it.
        let https_port = is_wanted.then(|| tls_port.unwrap_or(HTTPS));
        Secured { tls, https_port }
    }

    fn credentials(&mut self, section: &keys::Tls) -> Option<Tls> {
        let certificate = match section.certificate.as_ref().map(|from| &from.value) {
            None => {
                if !section.broken {
                    self.problems
                        .error(section.place, "certificate is missing")
                        .help("a file in PEM, such as fullchain.pem, or \"self-signed\"");
                }
                return None;
            }
            Some(CertificateFrom::SelfSigned) => {
                for useless in [&section.key, &section.ocsp].into_iter().flatten() {
                    let says = "a self-signed certificate needs no further file";
                    self.problems.error(useless.place, says);
                }
                Certificate::SelfSigned
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
            required: section.client_certificates.value == words::ClientCertificates::Required,
        });
        if clients.is_none() && section.client_certificates.place != crate::Place::Default {
            self.problems
                .error(section.client_certificates.place, "client_issuers is missing")
                .help("it names the issuers whose certificates count");
        }
        Some(Tls { certificate, clients, oldest: section.oldest.value.into() })
    }

    /// A file that must exist. What is in it is seen later.
    fn file(&mut self, path: &At<FilePath>) -> std::path::PathBuf {
        let FilePath(name) = &path.value;
        let says = match self.machine.kind(name) {
            Ok(Kind::File) => None,
            Ok(_) => Some(format!("{} is not a file", name.display())),
            Err(error) => Some(unusable(name, &error)),
        };
        if let Some(says) = says {
            self.problems.error(path.place, says);
        }
        name.clone()
    }
}
