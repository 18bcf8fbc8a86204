//! The credentials of all sites, on their way from the supervisor to the front.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use sendoff_config::{Certificate, Config, Host, Site, Tls};
use sendoff_sys::memfd;
use serde::{Deserialize, Serialize};

use crate::credentials::{Credentials, read, read_text};
use crate::self_signed;
use crate::server::identity;

/// The largest vault, in bytes.
const MAX_LEN: u64 = 256 << 20;

/// The credentials of all sites, by their numbers; `None`: the site does not speak TLS.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Vault(pub Vec<Option<Credentials>>);

/// What is wrong with the credentials of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// The number of the site.
    pub site: usize,
    /// A sentence without a full stop.
    pub says: String,
    /// Whether the credentials cannot be used; otherwise clients will complain.
    pub is_error: bool,
}

impl Vault {
    /// Reads the credentials of every site, and checks that each key fits its certificate. Makes self-signed certificates that
    /// are not there. A site whose credentials cannot be used has none in the vault, and there is a complaint.
    #[must_use]
    pub fn fill(config: &Config) -> (Self, Vec<Complaint>) {
        let mut complaints = Vec::new();
        let of_site = |(number, site): (usize, &Site)| {
            examined(site, site.tls.as_ref()?, &config.state, number, &mut complaints)
        };
        let all = config.sites.iter().enumerate().map(of_site).collect();
        (Self(all), complaints)
    }

    /// What is wrong with the files that sites name. Makes nothing.
    #[must_use]
    pub fn complaints(config: &Config) -> Vec<Complaint> {
        let mut complaints = Vec::new();
        for (number, site) in config.sites.iter().enumerate() {
            if let Some(tls @ Tls { certificate: Certificate::Files { .. }, .. }) = &site.tls {
                examined(site, tls, &config.state, number, &mut complaints);
            }
        }
        complaints
    }

    /// Writes the credentials to a file that exists in memory only.
    ///
    /// # Errors
    /// The system has no descriptor or memory for it.
    pub fn seal(&self) -> io::Result<OwnedFd> {
        let text = serde_json::to_vec(self)?;
        memfd::sealed(c"sendoff-keys", text.len() as u64, |file| {
            File::from(file.try_clone_to_owned()?).write_all(&text)
        })
    }

    /// Reads what [`seal`](Self::seal) wrote, from the beginning of the file.
    ///
    /// # Errors
    /// The descriptor cannot be read, or does not hold credentials.
    pub fn read(file: OwnedFd) -> io::Result<Self> {
        let file = File::from(file);
        let len = file.metadata()?.len().min(MAX_LEN);
        let mut text = vec![0; usize::try_from(len).unwrap_or(0)];
        file.read_exact_at(&mut text, 0)?;
        Ok(serde_json::from_slice(&text)?)
    }
}

/// The credentials of the site with this number, if they can be used. Complaints are added to the others.
fn examined(
    site: &Site,
    tls: &Tls,
    state: &Path,
    number: usize,
    complaints: &mut Vec<Complaint>,
) -> Option<Credentials> {
    let mut complain = |is_error, says| complaints.push(Complaint { site: number, says, is_error });
    let usable = credentials(site, tls, state).and_then(|credentials| {
        let warnings = match &tls.certificate {
            Certificate::Files { chain, key, .. } => check(&credentials, chain, key, &names(site))?,
            Certificate::SelfSigned => Vec::new(),
        };
        Ok((credentials, warnings))
    });
    match usable {
        Ok((credentials, warnings)) => {
            warnings.into_iter().for_each(|says| complain(false, says));
            Some(credentials)
        }
        Err(says) => {
            complain(true, says);
            None
        }
    }
}

/// What clients that ask for these hosts will complain about. Fails if the credentials cannot be used.
fn check(
    credentials: &Credentials,
    chain: &Path,
    key: &Path,
    hosts: &[String],
) -> Result<Vec<String>, String> {
    let (chain, key) = (chain.display(), key.display());
    let certificates = credentials.certificates().map_err(|why| format!("{chain}: {why}"))?;
    credentials.private_key().map_err(|why| format!("{key}: {why}"))?;
    identity(credentials).map_err(|why| format!("{chain} and {key}: {why}"))?;
    let warnings =
        crate::warnings(&certificates, hosts).map_err(|why| format!("{chain}: {why}"))?;
    Ok(warnings.into_iter().map(|what| format!("{chain}: {what}")).collect())
}

fn credentials(site: &Site, tls: &Tls, state: &Path) -> Result<Credentials, String> {
    let mut credentials = match &tls.certificate {
        Certificate::Files { chain, key, ocsp } => Credentials {
            chain: read_text(chain)?,
            key: read_text(key)?,
            ocsp: ocsp.as_deref().map(read).transpose()?,
            client_issuers: None,
        },
        Certificate::SelfSigned => {
            self_signed::kept(&state.join("self-signed"), &self_signed_names(site))?
        }
    };
    let issuers = tls.clients.as_ref().map(|clients| read_text(&clients.issuers));
    credentials.client_issuers = issuers.transpose()?;
    Ok(credentials)
}

/// The hosts of a site as certificates name them.
fn names(site: &Site) -> Vec<String> {
    let name = |host: &Host| match host {
        Host::Exact(name) => name.clone(),
        Host::Beneath(ending) => format!("*{ending}"),
    };
    site.hosts.iter().map(name).collect()
}

/// A site without hosts answers for every name; the certificate can only be for those of this machine.
fn self_signed_names(site: &Site) -> Vec<String> {
    let bare = |name: String| name.trim_matches(['[', ']']).to_owned();
    let names: Vec<_> = names(site).into_iter().map(bare).collect();
    if names.is_empty() {
        ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec()
    } else {
        names
    }
}
