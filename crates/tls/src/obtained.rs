//! A folder of certificates that were obtained from an authority. Each file contains the chain and
//! its key, so that they always belong together.

use std::path::Path;

use crate::credentials::{Credentials, read_text};
use crate::examine::Leaf;
use crate::identity::identity;

/// The certificates of a folder.
#[derive(Debug, Default)]
pub struct Obtained(Vec<(Credentials, Leaf)>);

impl Obtained {
    /// Reads the certificates. A missing folder has none; unusable files are left out.
    #[must_use]
    pub fn read(folder: &Path) -> Self {
        let files = folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
        let is_one = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "pem");
        Self(files.filter(is_one).filter_map(|path| usable(&path).ok()).collect())
    }

    /// The certificate that covers most of these names; among equals, the last to expire. When
    /// a site gets another name, its old certificate serves until there is one for all names.
    /// `None` if no certificate covers any of them.
    #[must_use]
    pub fn best(&self, names: &[String]) -> Option<(&Credentials, &Leaf)> {
        let covered = |leaf: &Leaf| names.iter().filter(|name| leaf.covers(name)).count();
        let known = self.0.iter().map(|(credentials, leaf)| (covered(leaf), credentials, leaf));
        let best = known.max_by_key(|(covered, _, leaf)| (*covered, leaf.ends))?;
        (best.0 > 0).then_some((best.1, best.2))
    }
}

/// Splits a text with a certificate and its key, if they belong together.
///
/// # Errors
/// A sentence: certificate or key cannot be used.
pub fn usable_pem(text: String) -> Result<(Credentials, Leaf), String> {
    let credentials = Credentials::new(text.clone(), text);
    identity(&credentials).map_err(|(_, why)| why)?;
    let leaf = Leaf::read(&credentials.certificates()?[0])?;
    Ok((credentials, leaf))
}

fn usable(path: &Path) -> Result<(Credentials, Leaf), String> {
    usable_pem(read_text(path)?)
}
