//! The secrets of the front, on their way from the supervisor: the credentials of all sites, and the
//! secrets of a node of a fleet.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use sendoff_config::{Certificate, Config, Host, Site, Tls};
use sendoff_sys::memfd;
use serde::{Deserialize, Serialize};

use crate::credentials::{Credentials, read, read_text};
use crate::examine::stapled;
use crate::fleet_secret::FleetSecrets;
use crate::identity::{Whose, identity, issuers};
use crate::obtained::Obtained;
use crate::self_signed;

/// Largest vault, in bytes.
const MAX_LEN: u64 = 256 << 20;

/// The secrets of the front.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Vault {
    /// The credentials of all sites, indexed by their numbers; `None` for a site without TLS.
    pub sites: Vec<Option<Credentials>>,
    /// The secrets by which the node belongs to its fleet.
    pub fleet: FleetSecrets,
}

/// A fault of a site's credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// The number of the site.
    pub site: usize,
    /// The faulty part.
    pub whose: Whose,
    /// A sentence without a full stop.
    pub says: String,
    /// True if the credentials cannot be used; otherwise clients will complain.
    pub is_error: bool,
}

/// A sentence, and the part that it is about.
type Trouble = (Whose, String);

impl Vault {
    /// Reads the credentials of every site, and checks that each key belongs to its certificate.
    /// Makes missing self-signed certificates, also for sites whose certificate has not been
    /// obtained yet. A site without usable credentials has none in the vault, and there is a
    /// complaint.
    #[must_use]
    pub fn fill(config: &Config) -> (Self, Vec<Complaint>) {
        let mut complaints = Vec::new();
        let obtained = obtained(config);
        let of_site = |(number, site): (usize, &Site)| {
            let from = Sources { state: &config.state, obtained: &obtained };
            examined(site, site.tls.as_ref()?, from, number, &mut complaints)
        };
        let all = config.sites.iter().enumerate().map(of_site).collect();
        (Self { sites: all, ..Self::default() }, complaints)
    }

    /// Lists the faults of the files that sites name. Creates no files.
    #[must_use]
    pub fn complaints(config: &Config) -> Vec<Complaint> {
        let mut complaints = Vec::new();
        let from = Sources { state: &config.state, obtained: &Obtained::default() };
        for (number, site) in config.sites.iter().enumerate() {
            match &site.tls {
                Some(tls @ Tls { certificate: Certificate::Files { .. }, .. }) => {
                    examined(site, tls, from, number, &mut complaints);
                }
                Some(tls) => {
                    if let Err((whose, says)) = client_issuers(tls) {
                        complaints.push(Complaint { site: number, whose, says, is_error: true });
                    }
                }
                None => {}
            }
        }
        complaints
    }

    /// The certificates that have been obtained for sites that ask for that; `None` for every other
    /// site.
    #[must_use]
    pub fn obtained(config: &Config) -> Self {
        let obtained = obtained(config);
        let of_site = |site: &Site| {
            let asks = site.tls.as_ref()?.certificate == Certificate::Acme;
            let (credentials, _) = obtained.best(&names(site)).filter(|_| asks)?;
            Some(credentials.clone())
        };
        Self { sites: config.sites.iter().map(of_site).collect(), ..Self::default() }
    }

    /// Replaces the certificates and keys of sites. The issuers of clients' certificates stay, and so
    /// do the secrets of the fleet.
    pub fn replace(&mut self, with: Self) {
        for (site, new) in self.sites.iter_mut().zip(with.sites) {
            if let (Some(site), Some(Credentials { chain, key, ocsp, .. })) = (site, new) {
                (site.chain, site.key, site.ocsp) = (chain, key, ocsp);
            }
        }
    }

    /// Writes the credentials to a sealed file in memory.
    ///
    /// # Errors
    /// The system has no descriptor or memory for the file.
    pub fn seal(&self) -> io::Result<OwnedFd> {
        let text = serde_json::to_vec(self)?;
        memfd::sealed(c"sendoff-keys", text.len() as u64, |file| {
            File::from(file.try_clone_to_owned()?).write_all(&text)
        })
    }

    /// Reads the credentials that [`seal`](Self::seal) has written, from the beginning of the file.
    ///
    /// # Errors
    /// The descriptor cannot be read, or does not contain credentials.
    pub fn read(file: OwnedFd) -> io::Result<Self> {
        let file = File::from(file);
        let len = file.metadata()?.len().min(MAX_LEN);
        let mut text = vec![0; usize::try_from(len).unwrap_or(0)];
        file.read_exact_at(&mut text, 0)?;
        Ok(serde_json::from_slice(&text)?)
    }
}

/// The certificates that were obtained, if a site asks for one.
fn obtained(config: &Config) -> Obtained {
    let folder = config.acme.as_ref().map(|acme| acme.certificates(&config.state));
    folder.map_or_else(Obtained::default, |folder| Obtained::read(&folder))
}

/// Sources of credentials that are not files named by a site.
#[derive(Clone, Copy)]
struct Sources<'f> {
    /// The folder for certificates that the server makes.
    state: &'f Path,
    obtained: &'f Obtained,
}

/// The credentials of the site with this number, if they can be used. Appends complaints to
/// `complaints`.
fn examined(
    site: &Site,
    tls: &Tls,
    from: Sources<'_>,
    number: usize,
    complaints: &mut Vec<Complaint>,
) -> Option<Credentials> {
    let mut complain = |is_error, (whose, says)| {
        complaints.push(Complaint { site: number, whose, says, is_error });
    };
    let usable = credentials(site, tls, from).and_then(|credentials| {
        let warnings = match &tls.certificate {
            Certificate::Files { chain, key, ocsp } => {
                check(&credentials, chain, key, ocsp.as_deref(), &names(site))?
            }
            Certificate::SelfSigned => Vec::new(),
            Certificate::Acme if from.obtained.best(&names(site)).is_some() => Vec::new(),
            Certificate::Acme => vec![(Whose::Site, NOT_YET.to_owned())],
        };
        Ok((credentials, warnings))
    });
    match usable {
        Ok((credentials, warnings)) => {
            warnings.into_iter().for_each(|says| complain(false, says));
            Some(credentials)
        }
        Err(trouble) => {
            complain(true, trouble);
            None
        }
    }
}

/// Lists faults that clients asking for these hosts will complain about. Fails if the credentials
/// cannot be used.
fn check(
    credentials: &Credentials,
    chain: &Path,
    key: &Path,
    ocsp: Option<&Path>,
    hosts: &[String],
) -> Result<Vec<Trouble>, Trouble> {
    let (chain, key) = (chain.display(), key.display());
    let of_chain = |why| (Whose::Certificate, format!("{chain}: {why}"));
    let certificates = credentials.certificates().map_err(of_chain)?;
    identity(credentials).map_err(|(whose, why)| match whose {
        Whose::Certificate => of_chain(why),
        Whose::Key => (Whose::Key, format!("{key}: {why}")),
        _ => (Whose::Key, format!("{key} and {chain}: {why}")),
    })?;
    let warnings = crate::warnings(&certificates, hosts).map_err(of_chain)?;
    let mut warnings: Vec<_> = warnings.into_iter().map(of_chain).collect();
    if let (Some(path), Some(bytes), Some(own)) = (ocsp, &credentials.ocsp, certificates.first()) {
        let of_response = |why| (Whose::Ocsp, format!("{}: {why}", path.display()));
        let warning = stapled(bytes, own).map_err(of_response)?;
        warnings.extend(warning.map(of_response));
    }
    Ok(warnings)
}

/// The text of the issuers of clients' certificates, if it can be used; `None` if the site asks for
/// no certificates.
fn client_issuers(tls: &Tls) -> Result<Option<String>, Trouble> {
    let Some(clients) = &tls.clients else { return Ok(None) };
    let trouble = |why| (Whose::ClientIssuers, why);
    let text = read_text(&clients.issuers).map_err(trouble)?;
    let named = |why| trouble(format!("{}: {why}", clients.issuers.display()));
    issuers(text.as_bytes()).map_err(named)?;
    Ok(Some(text))
}

/// The complaint about a site whose certificate has not been obtained yet.
const NOT_YET: &str = "there is no certificate yet; until it has been obtained, clients get one that the server signed itself";

fn credentials(site: &Site, tls: &Tls, from: Sources<'_>) -> Result<Credentials, Trouble> {
    let of = |whose| move |says| (whose, says);
    let mut credentials = match &tls.certificate {
        Certificate::Files { chain, key, ocsp } => Credentials {
            chain: read_text(chain).map_err(of(Whose::Certificate))?,
            key: read_text(key).map_err(of(Whose::Key))?,
            ocsp: ocsp.as_deref().map(read).transpose().map_err(of(Whose::Ocsp))?,
            client_issuers: None,
        },
        Certificate::SelfSigned => {
            let folder = from.state.join("self-signed");
            self_signed::kept(&folder, &self_signed_names(site)).map_err(of(Whose::Site))?
        }
        Certificate::Acme => match from.obtained.best(&names(site)) {
            Some((obtained, _)) => obtained.clone(),
            None => self_signed::passing(&names(site)).map_err(of(Whose::Site))?,
        },
    };
    credentials.client_issuers = client_issuers(tls)?;
    Ok(credentials)
}

/// The hosts of a site in the notation of certificates.
fn names(site: &Site) -> Vec<String> {
    site.hosts.iter().map(Host::certificate_name).collect()
}

/// A site without hosts answers for every name; its certificate can only name this machine.
fn self_signed_names(site: &Site) -> Vec<String> {
    let bare = |name: String| name.trim_matches(['[', ']']).to_owned();
    let names: Vec<_> = names(site).into_iter().map(bare).collect();
    if names.is_empty() {
        ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec()
    } else {
        names
    }
}
