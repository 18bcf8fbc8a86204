//! Basic authentication (RFC 7617): access of clients to a path that a route protects.
//!
//! A hash takes up to a second to compute, so it is computed outside of the event loop, and a
//! correct name and password are remembered for a while. An attempt waits in up to four queues,
//! each of which lets one attempt through at a time (the last one several):
//!
//! | queue | purpose |
//! |---|---|
//! | of its address, with a pause after wrong passwords | passwords cannot be guessed quickly |
//! | of its site, for addresses whose last password was wrong | other addresses come first |
//! | of its site (on its event loop) | sites take turns, even if one of them has many attempts |
//! | of the server: half of the CPUs | other requests are answered meanwhile |
#![forbid(unsafe_code)]

mod address;
mod apr1;
mod passwords;

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use lru::LruCache;
use rustix::fs::CWD;
use sendoff_config::unusable_hashes;
use sendoff_message::request::Endpoint;
use sendoff_static_files::{Identity, SETTLED, open_regular};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use address::Addresses;
use passwords::Passwords;

/// The largest password file, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// Password files up to this size, in bytes, are read for each request with a password.
const COMPARED: u64 = 64 * 1024;

/// The number of password files that are cached.
const MAX_FILES: NonZeroUsize = NonZeroUsize::new(64).expect("not zero");

/// The number of correct pairs of name and password that are remembered, and the time for which
/// they are.
const MAX_KNOWN: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// Password files and correct passwords; one value for all event loops.
#[derive(Debug)]
pub struct Auth {
    files: Mutex<LruCache<PathBuf, File>>,
    /// By a hash of file, version, name and password. Its key is random, so the hash reveals
    /// nothing.
    known: Mutex<LruCache<u64, Instant>>,
    addresses: Addresses,
    hasher: RandomState,
    /// Limits the number of hashes that are computed at a time.
    turns: Arc<Semaphore>,
}

/// The queues of the attempts at one site.
#[derive(Debug)]
pub struct PasswordQueues {
    /// Attempts of addresses whose last password was wrong.
    failing: Semaphore,
    all: Semaphore,
}

impl Default for PasswordQueues {
    fn default() -> Self {
        Self { failing: Semaphore::new(1), all: Semaphore::new(1) }
    }
}

/// The version of a password file: its contents, which nginx and Apache also read for each request,
/// or the state of a file of more than [`COMPARED`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Version {
    /// A digest.
    Contents(u64),
    State(Identity),
}

impl Version {
    /// True if another version could have the same state: two changes within one tick of the
    /// kernel's clock.
    fn is_ambiguous(&self) -> bool {
        matches!(self, Self::State(state) if !state.is_older_than(SETTLED, SystemTime::now()))
    }
}

#[derive(Debug, Clone)]
struct File {
    version: Version,
    passwords: Arc<Passwords>,
}

impl Default for Auth {
    fn default() -> Self {
        let cpus = available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            files: Mutex::new(LruCache::new(MAX_FILES)),
            known: Mutex::new(LruCache::new(MAX_KNOWN)),
            addresses: Addresses::default(),
            hasher: RandomState::new(),
            turns: Arc::new(Semaphore::new((cpus / 2).max(1))),
        }
    }
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// The client has sent this user's password.
    User(Vec<u8>),
    /// The client has sent no password, or a wrong one.
    Denied,
    /// Too many attempts of the client's address are waiting.
    TooMany,
}

impl Auth {
    /// Checks the value of `Authorization` against a password file. `queues`: the queues of the
    /// site.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn check(
        &self,
        queues: &PasswordQueues,
        users: &Path,
        authorization: Option<&[u8]>,
        client: &Endpoint,
    ) -> io::Result<Access> {
        let Some((user, password)) = authorization.and_then(credentials) else {
            return Ok(Access::Denied);
        };
        let File { version, passwords } = self.file(users)?;
        let key = self.hasher.hash_one((users, version, &user, &password));
        if self.is_known(key) {
            return Ok(Access::User(user));
        }
        let address = self.addresses.of(client);
        let Some(_attempt) = address.begin().await else { return Ok(Access::TooMany) };
        // The previous attempt may have had the same password.
        if self.is_known(key) {
            return Ok(Access::User(user));
        }
        let mut failing = None;
        if let Some(pause) = address.pause() {
            sleep(pause).await;
            failing = queues.failing.acquire().await.ok();
        }
        let all = queues.all.acquire().await;
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let name = user.clone();
        let verified = tokio::task::spawn_blocking(move || {
            let is_right = passwords.verify(&name, &password);
            // Not earlier, even if the client has gone meanwhile.
            drop(turn);
            is_right
        });
        let is_right = verified.await.map_err(io::Error::other)?;
        drop((failing, all));
        address.note(is_right);
        if !is_right {
            return Ok(Access::Denied);
        }
        locked(&self.known).put(key, Instant::now());
        Ok(Access::User(user))
    }

    /// True if a name and password were correct a short while ago.
    fn is_known(&self, key: u64) -> bool {
        locked(&self.known).get(&key).is_some_and(|since| since.elapsed() < KNOWN_FOR)
    }

    /// The current contents of a password file.
    fn file(&self, path: &Path) -> io::Result<File> {
        let (file, state) = open_regular(CWD, path)?;
        let read = || {
            let mut bytes = Vec::new();
            file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > MAX_FILE {
                return Err(io::Error::other(format!("it has more than {MAX_FILE} bytes")));
            }
            Ok(bytes)
        };
        let known = |version| {
            let mut files = locked(&self.files);
            files.get(path).filter(|file| file.version == version).cloned()
        };
        let (version, bytes) = if state.size <= COMPARED {
            let bytes = read()?;
            let version = Version::Contents(self.hasher.hash_one(&bytes));
            if let Some(file) = known(version) {
                return Ok(file);
            }
            (version, bytes)
        } else {
            let version = Version::State(state);
            if let Some(file) = known(version) {
                return Ok(file);
            }
            (version, read()?)
        };
        for (why, line, count) in unusable_hashes(&bytes) {
            let (file, help) = (path.display(), why.help());
            tracing::warn!(
                "{file}:{line}: {why}: users with such hashes ({count}) are refused; {help}"
            );
        }
        let file = File { version, passwords: Arc::new(Passwords::parse(&bytes)) };
        if !version.is_ambiguous() {
            locked(&self.files).put(path.to_owned(), file.clone());
        }
        Ok(file)
    }
}

/// The value of `WWW-Authenticate` that asks for a name and a password.
pub fn challenge(realm: &str) -> Bytes {
    let realm = realm.replace(['\\', '"'], "");
    format!("Basic realm=\"{realm}\", charset=\"UTF-8\"").into()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
    use super::address::{FIRST_PAUSE, LONGEST_PAUSE};
    use super::*;

    /// A client by the last number of its address.
    fn client(number: u8) -> Endpoint {
        Endpoint::Ip(([192, 0, 2, number], 1).into())
    }

    fn field(credentials: &str) -> Vec<u8> {
        format!("basic  {}", STANDARD.encode(credentials)).into_bytes()
    }

    /// Checks the credentials. Returns the result and the elapsed virtual time.
    async fn check(auth: &Auth, file: &Path, text: &str, address: u8) -> (bool, Duration) {
        let before = Instant::now();
        let access = auth
            .check(&PasswordQueues::default(), file, Some(&field(text)), &client(address))
            .await
            .unwrap();
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
        let check = async |text: &str, client| check(&auth, file.path(), text, client).await;
        assert!(!check("ann:wrong", 1).await.0);
        for (attempt, least) in [(1, 100), (2, 200), (3, 400)] {
            let (may, time) = check("ann:wrong", 1).await;
            assert!(!may && time >= Duration::from_millis(least), "{attempt}: {time:?}");
        }
        let (may, time) = check("ann:open sesame", 2).await;
        assert!(may && time < FIRST_PAUSE, "{time:?}");
        // A client with a correct, remembered password does not wait, whatever its address.
        let (may, time) = check("ann:open sesame", 1).await;
        assert!(may && time < FIRST_PAUSE, "{time:?}");
        for _ in 0..10 {
            assert!(!check("bob:x", 3).await.0);
        }
        let (_, time) = check("bob:x", 3).await;
        assert!(time <= LONGEST_PAUSE + FIRST_PAUSE, "{time:?}");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_changed_file_counts_at_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "ann:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n").unwrap();
        let auth = Auth::default();
        assert!(check(&auth, file.path(), "ann:open sesame", 1).await.0);
        std::fs::write(file.path(), "bob:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n\n").unwrap();
        assert!(!check(&auth, file.path(), "ann:open sesame", 2).await.0);
        assert!(check(&auth, file.path(), "bob:open sesame", 3).await.0);
        drop(file);
        let line = PasswordQueues::default();
        let gone =
            auth.check(&line, Path::new("/nonexistent"), Some(&field("a:b")), &client(4)).await;
        assert!(gone.is_err());
        let none = auth.check(&line, Path::new("/nonexistent"), None, &client(4)).await;
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
