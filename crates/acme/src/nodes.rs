//! The part of the folder that the nodes of a fleet share, sealed in their engine. The owner of the
//! engine's lock asks the authority and writes; all nodes read.
//!
//! | value | what |
//! |---|---|
//! | `account` | `account.json` |
//! | `certificate:NAME` | `certificates/NAME.pem` |
//! | `attempts:NAME` | `attempts/NAME.json` |
//! | `challenges` | the challenges that every node answers |
//! | `lock` | a random token of its owner |

use std::cell::RefCell;
use std::time::{Duration, Instant};

use sendoff_config::{Acme, Config};
use sendoff_fleet::{FleetLock, NotShared, SealedValues};
use sendoff_tls::{Challenge, FleetSecrets, Leaf, usable_pem};

use crate::now;
use crate::schedule::{Record, ends, issued};
use crate::store::{CHALLENGES_HOLD, Store};
use crate::wanted::WantedCertificate;

/// The life of records and of the account in the engine, unless they are written again. Accounts
/// need not live longer than certificates: a node puts back what the engine has lost.
const KEPT: Duration = Duration::from_secs(400 * 24 * 60 * 60);

const CHALLENGES: &str = "challenges";
const ACCOUNT: &str = "account";

/// The values that the nodes share.
#[derive(Debug)]
pub(crate) struct Nodes {
    values: SealedValues,
    /// The name of this node, for `sendoff status`.
    pub(crate) me: String,
    /// The challenges that were read last, and the time: they outlive a short outage.
    challenges: RefCell<Option<(Vec<Challenge>, Instant)>>,
}

/// A certificate in the engine.
struct SharedCertificate {
    pem: String,
    leaf: Leaf,
}

/// The place of the newest certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Newest {
    /// The certificate of the engine is the newest one.
    Shared,
    /// The certificate of this node is the newest one.
    Own,
    /// Both are the same, or there is none.
    Same,
}

impl Nodes {
    /// `None`: the node shares no certificates.
    pub(crate) fn new(config: &Config, acme: &Acme, secrets: &FleetSecrets) -> Option<Self> {
        let fleet = config.fleet.as_ref()?;
        // Certificates of a staging directory never replace real ones.
        let folder = acme.folder(&config.state);
        let directory = folder.file_name()?.to_str()?;
        let values =
            SealedValues::new(fleet, secrets, &format!("acme:{directory}"), "certificates")?;
        let me = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Some(Self { values, me, challenges: RefCell::default() })
    }

    /// Takes the lock; `None` if another node has it.
    pub(crate) async fn try_lock(&self) -> Result<Option<FleetLock>, NotShared> {
        self.values.try_lock().await
    }

    /// Prolongs the lock until it is lost.
    pub(crate) async fn keep(&self, lock: &FleetLock) -> NotShared {
        let Err(lost) = self.values.keep(lock).await;
        lost
    }

    pub(crate) async fn unlock(&self, lock: FleetLock) {
        self.values.unlock(lock).await;
    }

    /// The challenges that every node answers.
    pub(crate) async fn challenges(&self) -> Vec<Challenge> {
        match self.values.get(CHALLENGES).await {
            Ok(value) => {
                let challenges = value.and_then(|value| self.parsed(CHALLENGES, &value));
                let challenges: Vec<Challenge> = challenges.unwrap_or_default();
                self.challenges.replace(Some((challenges.clone(), Instant::now())));
                challenges
            }
            Err(_) => {
                let mut known = self.challenges.borrow_mut();
                known.take_if(|(_, read)| read.elapsed().as_secs() >= CHALLENGES_HOLD);
                known.as_ref().map(|(challenges, _)| challenges.clone()).unwrap_or_default()
            }
        }
    }

    /// Has every node answer these challenges, for a bounded time.
    pub(crate) async fn put_challenges(
        &self,
        lock: &FleetLock,
        challenges: &[Challenge],
    ) -> Result<(), NotShared> {
        let text = serde_json::to_vec(challenges).unwrap_or_default();
        let life = Duration::from_secs(CHALLENGES_HOLD);
        self.values.put(lock, CHALLENGES, &text, life).await
    }

    /// Shares the outcome of an attempt. A certificate comes before its record, which says that
    /// none is due.
    pub(crate) async fn share_outcome(
        &self,
        lock: &FleetLock,
        store: &Store,
        file: &str,
        record: &Record,
    ) -> Result<(), NotShared> {
        self.put_certificate(lock, store, file).await?;
        self.put_record(lock, file, record).await?;
        self.values.delete(lock, CHALLENGES).await
    }

    /// Takes the account of the nodes over or, with the lock, shares the account of this one. The
    /// caller has the lock of the folder.
    pub(crate) async fn exchange_account(
        &self,
        store: &Store,
        lock: Option<&FleetLock>,
    ) -> Result<(), NotShared> {
        let shared = match self.values.get(ACCOUNT).await? {
            Some(value) => self.parsed::<serde_json::Value>(ACCOUNT, &value),
            None => None,
        };
        let own = store.account::<serde_json::Value>();
        match (shared, own, lock) {
            (Some(shared), own, _) if own.as_ref() != Some(&shared) => {
                let replaced = own.map_or(Ok(()), |_| store.forget_account());
                let stored = replaced.and_then(|()| store.store_account(&shared));
                if let Err(error) = stored {
                    tracing::error!(%error, "the account of the nodes cannot be stored");
                }
                Ok(())
            }
            (None, Some(_), Some(lock)) => self.put_account(lock, store).await,
            _ => Ok(()),
        }
    }

    pub(crate) async fn put_account(
        &self,
        lock: &FleetLock,
        store: &Store,
    ) -> Result<(), NotShared> {
        let Some(account) = store.account::<serde_json::Value>() else { return Ok(()) };
        self.values.put(lock, ACCOUNT, account.to_string().as_bytes(), KEPT).await
    }

    pub(crate) async fn put_record(
        &self,
        lock: &FleetLock,
        file: &str,
        record: &Record,
    ) -> Result<(), NotShared> {
        let text = serde_json::to_vec(&record.of_all()).unwrap_or_default();
        self.values.put(lock, &attempts(file), &text, KEPT).await
    }

    /// Shares the certificate of this node, if it has one.
    async fn put_certificate(
        &self,
        lock: &FleetLock,
        store: &Store,
        file: &str,
    ) -> Result<(), NotShared> {
        let Some((credentials, leaf)) = store.certificate(file) else { return Ok(()) };
        // Chain and key are in one text. An expired certificate is worth nothing to other nodes.
        let left = Duration::from_secs(ends(&leaf).saturating_sub(now()));
        self.values.put(lock, &certificate(file), credentials.chain.as_bytes(), left).await
    }

    /// Takes a newer certificate of the nodes over, with the record of attempts, or shares a newer
    /// one of this node; the latter needs the lock, which is taken if the caller has none. The
    /// caller has the lock of the folder.
    pub(crate) async fn exchange(
        &self,
        store: &Store,
        wanted: &WantedCertificate,
        lock: Option<&FleetLock>,
    ) -> Result<(), NotShared> {
        let file = wanted.file();
        let (shared, newest) = self.newest(store, wanted).await?;
        if newest == Newest::Own {
            return match lock {
                Some(lock) => self.give(lock, store, &file).await,
                None => self.give_back(store, wanted).await,
            };
        }
        if let Some(SharedCertificate { pem, .. }) = shared
            && newest == Newest::Shared
        {
            let names = wanted.names.join(", ");
            match store.store_certificate(&file, &pem) {
                Ok(()) => tracing::info!(names, "the certificate of another node is used"),
                Err(error) => {
                    tracing::error!(names, %error, "a certificate of another node cannot be stored");
                }
            }
        }
        self.take_record(store, &file, newest).await
    }

    /// Takes the lock to share a certificate, unless another node has it: then it is shared later.
    async fn give_back(&self, store: &Store, wanted: &WantedCertificate) -> Result<(), NotShared> {
        let Some(lock) = self.try_lock().await? else { return Ok(()) };
        let given = match self.newest(store, wanted).await {
            Ok((_, Newest::Own)) => self.give(&lock, store, &wanted.file()).await,
            other => other.map(drop),
        };
        self.unlock(lock).await;
        given
    }

    async fn give(&self, lock: &FleetLock, store: &Store, file: &str) -> Result<(), NotShared> {
        self.put_certificate(lock, store, file).await?;
        self.put_record(lock, file, &store.record(file)).await
    }

    /// The certificate in the engine, and whether it or the one in the folder was issued later.
    async fn newest(
        &self,
        store: &Store,
        wanted: &WantedCertificate,
    ) -> Result<(Option<SharedCertificate>, Newest), NotShared> {
        let file = wanted.file();
        let is_valid =
            |leaf: &Leaf| ends(leaf) > now() && wanted.names.iter().all(|name| leaf.covers(name));
        let shared = self.certificate(&file).await?.filter(|shared| is_valid(&shared.leaf));
        let own = store.certificate(&file).map(|(_, leaf)| leaf).filter(is_valid);
        let newest =
            match (shared.as_ref().map(|shared| issued(&shared.leaf)), own.as_ref().map(issued)) {
                (shared, own) if shared > own => Newest::Shared,
                (shared, own) if shared < own => Newest::Own,
                _ => Newest::Same,
            };
        Ok((shared, newest))
    }

    /// The certificate in the engine, if its key fits.
    async fn certificate(&self, file: &str) -> Result<Option<SharedCertificate>, NotShared> {
        let name = certificate(file);
        let Some(value) = self.values.get(&name).await? else { return Ok(None) };
        let text = String::from_utf8(value).map_err(|_| "it is no text".to_owned());
        let usable = text.and_then(|pem| Ok((usable_pem(pem.clone())?.1, pem)));
        match usable {
            Ok((leaf, pem)) => Ok(Some(SharedCertificate { pem, leaf })),
            Err(why) => {
                self.values.note_broken(&name, &why);
                Ok(None)
            }
        }
    }

    async fn take_record(
        &self,
        store: &Store,
        file: &str,
        newest: Newest,
    ) -> Result<(), NotShared> {
        let name = attempts(file);
        let Some(value) = self.values.get(&name).await? else { return Ok(()) };
        let Some(shared) = self.parsed::<Record>(&name, &value) else { return Ok(()) };
        let own = store.record(file);
        let mut taken = shared.taken_by(&own, now());
        if newest == Newest::Shared {
            taken.served_by_another();
        }
        if taken != own
            && let Err(error) = store.store_record(file, &taken)
        {
            tracing::error!(%error, "the record of attempts cannot be stored");
        }
        Ok(())
    }

    fn parsed<T: serde::de::DeserializeOwned>(&self, name: &str, value: &[u8]) -> Option<T> {
        let parsed = serde_json::from_slice(value);
        parsed.inspect_err(|error| self.values.note_broken(name, &error.to_string())).ok()
    }
}

fn attempts(file: &str) -> String {
    format!("attempts:{file}")
}

fn certificate(file: &str) -> String {
    format!("certificate:{file}")
}
