//! Certificates that the server signs itself: each is made once and kept.

use std::fs::{DirBuilder, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{CertificateParams, DnType, KeyPair};

use crate::credentials::{Credentials, certificates, read_text};
use crate::examine::Leaf;
use crate::identity::identity;

/// Lifetime of a certificate; Apple's browsers refuse longer ones.
const LIFETIME: Duration = Duration::from_secs(825 * 24 * 60 * 60);

/// A certificate with less validity left is replaced at the next start.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The certificate in `folder` for these hosts and addresses; makes one if there is no usable one.
/// Certificate and key are in one file, so that they always belong together.
///
/// # Errors
/// A sentence: the folder cannot be written.
pub(crate) fn kept(folder: &Path, names: &[String]) -> Result<Credentials, String> {
    let first = names.first().map_or("localhost", |name| name.as_str());
    let path = folder.join(format!("{}.pem", first.replace(['*', '/', '\0'], "_")));
    if let Ok(text) = read_text(&path)
        && is_usable(&text, names)
    {
        return Ok(credentials(text));
    }
    let text = pem(names)?;
    store(folder, &path, &text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(credentials(text))
}

/// Makes a certificate for these hosts and addresses without keeping it.
///
/// # Errors
/// A sentence: the system refuses.
pub(crate) fn passing(names: &[String]) -> Result<Credentials, String> {
    pem(names).map(credentials)
}

fn credentials(text: String) -> Credentials {
    Credentials::new(text.clone(), text)
}

fn is_usable(text: &str, names: &[String]) -> bool {
    let Ok(leaf) = certificates(text.as_bytes()).and_then(|chain| Leaf::read(&chain[0])) else {
        return false;
    };
    let soon = SystemTime::now() + RENEW_BEFORE;
    let soon = soon.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    names.iter().all(|name| leaf.names.contains(name))
        && u64::try_from(leaf.ends).is_ok_and(|ends| ends > soon)
        && identity(&credentials(text.to_owned())).is_ok()
}

fn pem(names: &[String]) -> Result<String, String> {
    let wrong = |error: rcgen::Error| format!("no certificate can be made: {error}");
    let key = KeyPair::generate().map_err(wrong)?;
    let mut params = CertificateParams::new(names).map_err(wrong)?;
    params.distinguished_name.push(DnType::CommonName, "sendoff (signed by itself)");
    let now = SystemTime::now();
    // Clients' clocks may be slow.
    params.not_before = (now - Duration::from_secs(60 * 60)).into();
    params.not_after = (now + LIFETIME).into();
    let certificate = params.self_signed(&key).map_err(wrong)?;
    Ok(certificate.pem() + &key.serialize_pem())
}

/// Writes a file that only our user may read. A server that starts at the same moment sees the
/// whole file or none.
fn store(folder: &Path, path: &Path, text: &str) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = File::create(&draft)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&draft, path)
}
