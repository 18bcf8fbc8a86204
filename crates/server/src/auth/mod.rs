//! Basic authentication (RFC 7617): who may ask for a path that a route protects.
//!
//! A hash takes up to a tenth of a second to compute, so that is done beside the event loop, for one client at a time, and a name and
//! password that were right are remembered for a while. After a wrong password the next attempts from the same address wait.

mod apr1;
mod passwords;

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lru::LruCache;
use rustix::fs::CWD;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};

use crate::static_files::{Identity, open_regular};
use passwords::Passwords;

/// The largest password file, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// Password files that are kept.
const MAX_FILES: NonZeroUsize = NonZeroUsize::new(64).expect("not zero");

/// Pairs of name and password that were right, and how long that is remembered.
const MAX_KNOWN: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// Addresses whose last attempts were wrong.
const MAX_FAILING: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");

/// How long an address waits after its first wrong password. The time doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Attempts of one address that may wait; further ones count as wrong.
const MAX_ATTEMPTS: usize = 32;

/// After this time without an attempt the pause begins anew.
const FORGIVEN_AFTER: Duration = Duration::from_secs(300);

/// What the clients of one event loop have shown.
#[derive(Debug)]
pub(crate) struct Auth {
    files: RefCell<LruCache<PathBuf, File>>,
    /// By a hash of file, version, name and password. Its key is random, so nothing can be learned from the hash.
    known: RefCell<LruCache<u64, Instant>>,
    failing: RefCell<LruCache<Vec<u8>, Failing>>,
    hasher: RandomState,
    /// For each address with attempts under way.
    attempts: RefCell<HashMap<Vec<u8>, Arc<Semaphore>>>,
    /// One hash is computed at a time.
    turn: Arc<Semaphore>,
}

#[derive(Debug, Clone)]
struct File {
    version: Identity,
    passwords: Arc<Passwords>,
}

#[derive(Debug, Clone, Copy)]
struct Failing {
    pause: Duration,
    last: Instant,
}

impl Default for Auth {
    fn default() -> Self {
        Self {
            files: RefCell::new(LruCache::new(MAX_FILES)),
            known: RefCell::new(LruCache::new(MAX_KNOWN)),
            failing: RefCell::new(LruCache::new(MAX_FAILING)),
            hasher: RandomState::new(),
            attempts: RefCell::default(),
            turn: Arc::new(Semaphore::new(1)),
        }
    }
}

/// Whether a client may ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Access {
    /// It has shown this user's password.
    User(Vec<u8>),
    /// It has shown no password, or a wrong one.
    Denied,
}

impl Auth {
    /// Checks the value of `Authorization` against a password file. `client` is the client's address.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) async fn check(
        &self,
        users: &Path,
        authorization: Option<&[u8]>,
        client: &[u8],
    ) -> io::Result<Access> {
        let Some((user, password)) = authorization.and_then(credentials) else {
            return Ok(Access::Denied);
        };
        let File { version, passwords } = self.file(users)?;
        let key = self.hasher.hash_one((users, version, &user, &password));
        if self.known.borrow_mut().get(&key).is_some_and(|since| since.elapsed() < KNOWN_FOR) {
            return Ok(Access::User(user));
        }
        // One attempt of an address at a time, so that its pauses add up and others get their turn.
        let Some(_attempt) = self.begin_attempt(client).await else { return Ok(Access::Denied) };
        if self.known.borrow_mut().get(&key).is_some_and(|since| since.elapsed() < KNOWN_FOR) {
            return Ok(Access::User(user));
        }
        self.pause(client).await;
        let turn = self.turn.acquire().await;
        let name = user.clone();
        let verified = tokio::task::spawn_blocking(move || passwords.verify(&name, &password));
        let is_right = verified.await.map_err(io::Error::other)?;
        drop(turn);
        if !is_right {
            self.note_failure(client);
            return Ok(Access::Denied);
        }
        self.failing.borrow_mut().pop(client);
        self.known.borrow_mut().put(key, Instant::now());
        Ok(Access::User(user))
    }

    /// Waits until no other attempt of the address is under way. `None`: too many wait already.
    async fn begin_attempt(&self, client: &[u8]) -> Option<OwnedSemaphorePermit> {
        let attempts = {
            let mut attempts = self.attempts.borrow_mut();
            attempts.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
            Arc::clone(
                attempts.entry(client.to_vec()).or_insert_with(|| Arc::new(Semaphore::new(1))),
            )
        };
        if Arc::strong_count(&attempts) > MAX_ATTEMPTS {
            return None;
        }
        attempts.acquire_owned().await.ok()
    }

    /// The current contents of a password file.
    fn file(&self, path: &Path) -> io::Result<File> {
        let (file, version) = open_regular(CWD, path)?;
        if let Some(file) = self.files.borrow_mut().get(path)
            && file.version == version
        {
            return Ok(file.clone());
        }
        let mut bytes = Vec::new();
        file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(io::Error::other(format!("it has more than {MAX_FILE} bytes")));
        }
        let passwords = Arc::new(Passwords::parse(&bytes));
        let file = File { version, passwords };
        self.files.borrow_mut().put(path.to_owned(), file.clone());
        Ok(file)
    }

    /// Waits as long as the address must after its wrong passwords.
    async fn pause(&self, client: &[u8]) {
        let failing = self.failing.borrow_mut().get(client).copied();
        let recent = failing.filter(|failing| failing.last.elapsed() < FORGIVEN_AFTER);
        if let Some(Failing { pause, .. }) = recent {
            sleep(pause).await;
        }
    }

    fn note_failure(&self, client: &[u8]) {
        let mut failing = self.failing.borrow_mut();
        let last = Instant::now();
        let before = failing.get(client).filter(|failing| failing.last.elapsed() < FORGIVEN_AFTER);
        let pause = before.map_or(FIRST_PAUSE, |before| (before.pause * 2).min(LONGEST_PAUSE));
        failing.put(client.to_vec(), Failing { pause, last });
    }
}

/// The name and the password of a field `Basic BASE64`.
fn credentials(field: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let space = field.iter().position(|&b| b == b' ')?;
    let (scheme, encoded) = field.split_at(space);
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim_ascii()).ok()?;
    let colon = decoded.iter().position(|&b| b == b':')?;
    Some((decoded[..colon].to_vec(), decoded[colon + 1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(credentials: &str) -> Vec<u8> {
        format!("basic  {}", STANDARD.encode(credentials)).into_bytes()
    }

    /// Checks the credentials and says how long that took in virtual time.
    async fn check(auth: &Auth, file: &Path, text: &str, client: &str) -> (bool, Duration) {
        let before = Instant::now();
        let access = auth.check(file, Some(&field(text)), client.as_bytes()).await.unwrap();
        let user = text.split(':').next().unwrap();
        let may = access == Access::User(user.as_bytes().to_vec());
        assert_eq!(!may, access == Access::Denied);
        (may, before.elapsed())
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn wrong_passwords_make_their_address_wait_and_no_other() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let line = "ann:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n";
        std::fs::write(file.path(), line).unwrap();
        let auth = Auth::default();
        let check = async |text: &str, client: &str| check(&auth, file.path(), text, client).await;
        assert!(!check("ann:wrong", "a").await.0);
        for (attempt, least) in [(1, 100), (2, 200), (3, 400)] {
            let (may, time) = check("ann:wrong", "a").await;
            assert!(!may && time >= Duration::from_millis(least), "{attempt}: {time:?}");
        }
        let (may, time) = check("ann:open sesame", "b").await;
        assert!(may && time < FIRST_PAUSE, "{time:?}");
        // Who has the right password is known and does not wait, wherever the request comes from.
        let (may, time) = check("ann:open sesame", "a").await;
        assert!(may && time < FIRST_PAUSE, "{time:?}");
        for _ in 0..10 {
            assert!(!check("bob:x", "c").await.0);
        }
        let (_, time) = check("bob:x", "c").await;
        assert!(time <= LONGEST_PAUSE + FIRST_PAUSE, "{time:?}");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_changed_file_counts_at_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "ann:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n").unwrap();
        let auth = Auth::default();
        assert!(check(&auth, file.path(), "ann:open sesame", "a").await.0);
        std::fs::write(file.path(), "bob:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n\n").unwrap();
        assert!(!check(&auth, file.path(), "ann:open sesame", "b").await.0);
        assert!(check(&auth, file.path(), "bob:open sesame", "c").await.0);
        drop(file);
        let gone = auth.check(Path::new("/nonexistent"), Some(&field("a:b")), b"d").await;
        assert!(gone.is_err());
        let none = auth.check(Path::new("/nonexistent"), None, b"d").await;
        assert_eq!(none.unwrap(), Access::Denied);
    }

    #[test]
    fn only_the_basic_scheme_is_understood() {
        let pair = |name: &str, password: &str| Some((name.into(), password.into()));
        assert_eq!(credentials(b"Basic YTpiOmM="), pair("a", "b:c"));
        assert_eq!(credentials(b"BASIC Og=="), pair("", ""));
        for wrong in ["Basic", "Basic !", "Bearer YTpi", "Basic YQ==", ""] {
            assert_eq!(credentials(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
