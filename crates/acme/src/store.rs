//! The folder of the agent. Servers may share it, also over NFS: files are replaced as a whole, and
//! only the holder of the lock writes.
//!
//! | file | what |
//! |---|---|
//! | `account.json` | the account, with its key |
//! | `certificates/NAME.pem` | a certificate with its issuers and its key |
//! | `attempts/NAME.json` | the record of attempts ([`Record`]) |
//! | `challenges.json` | the challenges that every server answers |
//! | `lock` | locked by the server that asks the authority |
//! | `members` | locked, shared, by every server |

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use sendoff_config::Acme;
use sendoff_tls::{Challenge, Credentials, Leaf, usable_pem};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::schedule::Record;

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// The time for which challenges are answered, in seconds. A server that dies during its attempt
/// leaves its challenges in the folder.
pub(crate) const CHALLENGES_HOLD: u64 = 15 * 60;

/// The folder.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    certificates: PathBuf,
    /// Locked, shared, while this server uses the folder.
    members: File,
}

/// The right to write to the folder. Ends when it is dropped, or with the process.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "open means locked")] File);

/// Challenges in a file.
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct ChallengeFile {
    /// The time until which they are answered, in seconds since 1970.
    until: u64,
    challenges: Vec<Challenge>,
}

/// A state of the certificates, for comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version(Vec<(PathBuf, u64, i64, i64)>);

impl Store {
    /// Opens the folder, or creates it.
    ///
    /// # Errors
    /// The folder cannot be created, or belongs to other users.
    pub(crate) fn open(acme: &Acme, state: &Path) -> io::Result<Self> {
        let (folder, certificates) = (acme.folder(state), acme.certificates(state));
        for folder in [&certificates, &folder.join("attempts")] {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let members = lockable(&folder.join("members"))?;
        flock(&members, FlockOperation::LockShared)?;
        Ok(Self { folder, certificates, members })
    }

    /// Takes the lock; `None` if another server has it.
    pub(crate) fn try_lock(&self) -> io::Result<Option<Lock>> {
        let file = lockable(&self.folder.join("lock"))?;
        Ok(try_exclusive(&file)?.then_some(Lock(file)))
    }

    /// True if no other server uses the folder.
    pub(crate) fn is_alone(&self) -> bool {
        let alone = try_exclusive(&self.members).unwrap_or(false);
        // The change of the lock is not atomic. A server that asks at the same moment believes that
        // it is not alone, which does no harm. A server that starts at that moment waits.
        let _ = flock(&self.members, FlockOperation::LockShared);
        alone
    }

    /// The account, as it was stored.
    pub(crate) fn account<A: DeserializeOwned>(&self) -> Option<A> {
        serde_json::from_slice(&read(&self.folder.join("account.json")).ok()?).ok()
    }

    pub(crate) fn store_account(&self, account: &impl Serialize) -> io::Result<()> {
        store(&self.folder.join("account.json"), &serde_json::to_vec_pretty(account)?)
    }

    /// Puts the account aside, which the authority no longer knows.
    pub(crate) fn forget_account(&self) -> io::Result<()> {
        let path = self.folder.join("account.json");
        std::fs::rename(&path, path.with_extension("json.old"))
    }

    /// The record of attempts for a certificate.
    pub(crate) fn record(&self, name: &str) -> Record {
        let text = read(&self.record_path(name)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    pub(crate) fn store_record(&self, name: &str, record: &Record) -> io::Result<()> {
        store(&self.record_path(name), &serde_json::to_vec_pretty(record)?)
    }

    fn record_path(&self, name: &str) -> PathBuf {
        self.folder.join("attempts").join(format!("{name}.json"))
    }

    /// The stored certificate, if it is usable.
    pub(crate) fn certificate(&self, name: &str) -> Option<(Credentials, Leaf)> {
        let text = String::from_utf8(read(&self.certificate_path(name)).ok()?).ok()?;
        usable_pem(text).ok()
    }

    pub(crate) fn store_certificate(&self, name: &str, pem: &str) -> io::Result<()> {
        store(&self.certificate_path(name), pem.as_bytes())
    }

    fn certificate_path(&self, name: &str) -> PathBuf {
        self.certificates.join(format!("{name}.pem"))
    }

    /// A value that changes with every stored certificate.
    pub(crate) fn version(&self) -> Version {
        let entries = self.certificates.read_dir().into_iter().flatten().flatten();
        let entry = |entry: std::fs::DirEntry| {
            let facts = entry.metadata().ok()?;
            Some((entry.path(), facts.ino(), facts.mtime(), facts.mtime_nsec()))
        };
        let mut all: Vec<_> = entries.filter_map(entry).collect();
        all.sort();
        Version(all)
    }

    /// The challenges that every server answers now. The file is opened each time, which makes an
    /// NFS client ask its server.
    pub(crate) fn challenges(&self, now: u64) -> Vec<Challenge> {
        let text = read(&self.folder.join("challenges.json")).unwrap_or_default();
        let shared: ChallengeFile = serde_json::from_slice(&text).unwrap_or_default();
        if shared.until > now { shared.challenges } else { Vec::new() }
    }

    pub(crate) fn store_challenges(&self, challenges: &[Challenge], now: u64) -> io::Result<()> {
        let shared =
            ChallengeFile { until: now + CHALLENGES_HOLD, challenges: challenges.to_vec() };
        store(&self.folder.join("challenges.json"), &serde_json::to_vec(&shared)?)
    }
}

fn lockable(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn try_exclusive(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_FILE {
        return Err(ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// Writes a file that only the owner may read. Readers see the whole old or the whole new file,
/// even after a crash.
fn store(path: &Path, text: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(text)?;
    file.sync_all()?;
    std::fs::rename(&draft, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::schedule::Pending;

    fn acme() -> Acme {
        Acme { directory: "https://ca.test/dir".to_owned(), ..Acme::default() }
    }

    #[test]
    fn what_was_stored_is_private_and_found_again() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::open(&acme(), state.path()).unwrap();
        assert_eq!(store.record("a.test"), Record::default());
        let pending = Some(Pending { order: "o".to_owned(), key: "k".to_owned() });
        let mut record = Record::default();
        record.pending = pending;
        store.store_record("a.test", &record).unwrap();
        assert_eq!(store.record("a.test"), record);
        let (before, challenge) =
            (store.version(), Challenge::Http { token: "t".to_owned(), answer: "t.x".to_owned() });
        store.store_certificate("a.test", "x").unwrap();
        assert_ne!(store.version(), before);
        assert!(store.certificate("a.test").is_none(), "this is no certificate");
        store.store_challenges(std::slice::from_ref(&challenge), 100).unwrap();
        assert_eq!(store.challenges(101), [challenge]);
        assert_eq!(store.challenges(100 + CHALLENGES_HOLD), []);
        let folder = acme().folder(state.path());
        let mode = |path: PathBuf| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(folder.clone()), 0o700);
        for file in ["attempts/a.test.json", "certificates/a.test.pem", "challenges.json"] {
            assert_eq!(mode(folder.join(file)), 0o600, "{file}");
        }
    }

    #[test]
    fn one_of_two_servers_has_the_lock() {
        let state = tempfile::tempdir().unwrap();
        let first = Store::open(&acme(), state.path()).unwrap();
        assert!(first.is_alone());
        let second = Store::open(&acme(), state.path()).unwrap();
        assert!(!first.is_alone() && !second.is_alone());
        let lock = first.try_lock().unwrap();
        assert!(lock.is_some());
        assert!(second.try_lock().unwrap().is_none());
        drop(lock);
        assert!(second.try_lock().unwrap().is_some());
        drop(first);
        assert!(second.is_alone());
    }
}
