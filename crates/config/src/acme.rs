//! Certificates that the server obtains from an authority (ACME, RFC 8555).

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The authority from which the server obtains certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acme {
    /// The URL of the authority's directory.
    pub directory: String,
    /// The e-mail address that the authority may write to.
    pub email: Option<String>,
    /// A PEM file with the root certificates for the TLS connection to the authority; `None`: the
    /// system's.
    #[serde(with = "crate::path::optional")]
    pub roots: Option<PathBuf>,
    /// The account elsewhere to which a new account is bound.
    pub binding: Option<AccountBinding>,
    /// Proves names by DNS; `None`: by connections to the server.
    pub dns: Option<DnsHook>,
}

/// An account that the operator has with the authority outside of ACME (RFC 8555 §7.3.4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccountBinding {
    /// The authority's name for its key.
    pub id: String,
    /// A file with the key in base64.
    #[serde(with = "crate::path::one")]
    pub key: PathBuf,
}

/// A program of the operator that publishes TXT records (RFC 8555 §8.4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DnsHook {
    /// The program.
    #[serde(with = "crate::path::one")]
    pub program: PathBuf,
    /// The time from its end until the authority is told to look.
    pub wait: Duration,
}

impl Acme {
    /// The folder for account and certificates beneath [`Config::state`](crate::Config::state).
    /// Each directory URL has its own folder, so that certificates of a staging directory never
    /// replace real ones.
    #[must_use]
    pub fn folder(&self, state: &Path) -> PathBuf {
        let name = self.directory.split_once("://").map_or(&*self.directory, |(_, rest)| rest);
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let name: String = name.chars().map(|c| if plain(c) { c } else { '_' }).collect();
        state.join("acme").join(name.trim_start_matches('.'))
    }

    /// The folder of the certificates.
    #[must_use]
    pub fn certificates(&self, state: &Path) -> PathBuf {
        self.folder(state).join("certificates")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_has_a_folder() {
        let folder = |directory: &str| {
            let acme = Acme { directory: directory.to_owned(), ..Acme::default() };
            acme.folder(Path::new("/state")).display().to_string()
        };
        let real = folder("https://ca.example:14000/dir?x=../y");
        assert_eq!(real, "/state/acme/ca.example_14000_dir_x_.._y");
        assert_eq!(folder("https://../../etc"), "/state/acme/_.._etc");
    }
}
