//! Values in the engine that only the nodes can read, and the lock whose owner changes them.
//!
//! Any process may keep one; it connects when it needs the engine. While the engine is away, it is
//! asked again after a pause, and every question in between fails at once.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use redis::{Cmd, FromRedisValue};
use rustls::crypto::SecureRandom;
use rustls::crypto::aws_lc_rs::default_provider;
use sendoff_config::Fleet;
use sendoff_report::seldom::Seldom;
use sendoff_tls::{FleetSecrets, Seal};
use tokio::time::sleep;

use crate::engine::{Client, Connection, Stored, Trouble};
use crate::lock::{FleetLock, LIFE, Taken};

/// The largest sealed value that is read, in bytes.
const MAX_VALUE: usize = 1 << 20;

/// Pause between two prolongations of a lock.
const PROLONG: Duration = Duration::from_secs(10);

/// Pause after a prolongation that has failed.
const AGAIN: Duration = Duration::from_secs(1);

/// The shortest and the longest pause before an engine that is away is asked again.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// The reason why a value cannot be shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotShared {
    /// The engine does not serve: a sentence about it.
    Away(String),
    /// The lock belongs to another node.
    Lost,
}

impl fmt::Display for NotShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Away(why) => write!(f, "the fleet's engine is away: {why}"),
            Self::Lost => f.write_str("another node has the lock in the fleet's engine"),
        }
    }
}

/// Values of one kind in the engine.
pub struct SealedValues {
    client: Client,
    seal: Seal,
    /// The beginning of the names of their keys.
    prefix: String,
    title: &'static str,
    random: &'static dyn SecureRandom,
    connection: RefCell<Option<Rc<Connection>>>,
    outage: RefCell<Option<Outage>>,
    logged: Seldom,
    broken: Seldom,
    /// The log says that the engine is away.
    is_logged: Cell<bool>,
    /// The log says that the engine refuses changes. Answers to other questions do not end this.
    is_refusal_logged: Cell<bool>,
}

/// The engine is away.
struct Outage {
    why: String,
    pause: Duration,
    /// The time of the next question.
    again: Instant,
}

impl fmt::Debug for SealedValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedValues").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl SealedValues {
    /// The values whose names begin with the fleet's name and `kind`. `title`: their name in the
    /// log. `None`: the nodes have no secret.
    #[must_use]
    pub fn new(
        fleet: &Fleet,
        secrets: &FleetSecrets,
        kind: &str,
        title: &'static str,
    ) -> Option<Self> {
        let seal = Seal::new(secrets.seal_key.as_ref()?);
        Some(Self {
            client: Client::new(fleet.engine.clone(), secrets.engine_password.as_ref()),
            seal,
            prefix: format!("{}:{kind}:", fleet.name),
            title,
            random: default_provider().secure_random,
            connection: RefCell::default(),
            outage: RefCell::default(),
            logged: Seldom::new(),
            broken: Seldom::new(),
            is_logged: Cell::default(),
            is_refusal_logged: Cell::default(),
        })
    }

    /// The value with this name; `None`: there is none, or none that a node has sealed.
    ///
    /// # Errors
    /// The engine is away.
    pub async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, NotShared> {
        let key = self.key(name);
        let stored = self.with(async |engine| engine.stored(&key, MAX_VALUE).await).await?;
        let value = match stored {
            Stored::Nothing => return Ok(None),
            Stored::Bytes(sealed) => self.seal.open(&key, &sealed),
            Stored::Other => None,
        };
        if value.is_none() {
            self.note_broken(name, "no node with this secret_file has sealed it");
        }
        Ok(value)
    }

    /// There is something in the engine that no node has written: an error in the log.
    pub fn note_broken(&self, name: &str, why: &str) {
        if self.broken.is_due() {
            let key = self.key(name);
            tracing::error!(key, "the fleet's engine has what no node has written: {why}");
        }
    }

    /// Takes the lock; `None` if another node has it.
    ///
    /// # Errors
    /// The engine is away.
    pub async fn try_lock(&self) -> Result<Option<FleetLock>, NotShared> {
        let lock = FleetLock::new(self.key("lock"), self.token().map_err(NotShared::Away)?);
        match Taken::of(self.ask(&lock.take()).await?) {
            Taken::Held => Ok(None),
            Taken::Free => Ok(Some(lock)),
            Taken::Foreign => {
                self.note_broken("lock", "it does not end as a lock does");
                Ok(Some(lock))
            }
        }
    }

    /// Prolongs the life of a lock again and again.
    ///
    /// # Errors
    /// The lock has been lost, or may have been, because the engine is away for too long.
    pub async fn keep(&self, lock: &FleetLock) -> Result<Infallible, NotShared> {
        let (mut known, mut pause) = (lock.asked, PROLONG);
        loop {
            sleep(pause).await;
            let asked = Instant::now();
            match self.owned(&lock.prolong()).await {
                Ok(()) => (known, pause) = (asked, PROLONG),
                Err(NotShared::Away(_)) if known.elapsed() + AGAIN < LIFE => pause = AGAIN,
                Err(lost) => return Err(lost),
            }
        }
    }

    /// Gives a lock back. If the engine is away, the lock ends by itself.
    pub async fn unlock(&self, lock: FleetLock) {
        if let Err(NotShared::Away(why)) = self.owned(&lock.give_back()).await {
            tracing::debug!("a lock is not given back: {why}");
        }
    }

    /// Sets a value, which the engine forgets after `life`.
    ///
    /// # Errors
    /// The engine is away, or another node has the lock.
    pub async fn put(
        &self,
        lock: &FleetLock,
        name: &str,
        value: &[u8],
        life: Duration,
    ) -> Result<(), NotShared> {
        let key = self.key(name);
        let sealed = self.seal.seal(&key, value);
        let sealed = sealed.ok_or_else(|| NotShared::Away("nothing can be sealed".to_owned()))?;
        self.owned(&lock.put(&key, &sealed, life)).await
    }

    /// Removes a value.
    ///
    /// # Errors
    /// The engine is away, or another node has the lock.
    pub async fn delete(&self, lock: &FleetLock, name: &str) -> Result<(), NotShared> {
        self.owned(&lock.delete(&self.key(name))).await
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn token(&self) -> Result<String, String> {
        let mut token = [0; 16];
        let drawn = self.random.fill(&mut token);
        drawn.map_err(|_| "this system has no random numbers".to_owned())?;
        Ok(format!("{:032x}", u128::from_be_bytes(token)))
    }

    /// Has the engine carry out a script that answers 1 if the lock is ours.
    async fn owned(&self, script: &Cmd) -> Result<(), NotShared> {
        match self.ask::<i64>(script).await? {
            1 => Ok(()),
            _ => Err(NotShared::Lost),
        }
    }

    /// The engine's answer to a script that may change something.
    async fn ask<T: FromRedisValue>(&self, script: &Cmd) -> Result<T, NotShared> {
        match self.with(async |engine| engine.ask_for(script).await).await? {
            Ok(answer) => {
                if self.is_refusal_logged.take() {
                    tracing::info!("{} are shared with other nodes again", self.title);
                }
                Ok(answer)
            }
            Err(said) => {
                let why = format!("it refuses a command: {said}");
                if !self.is_refusal_logged.get() && self.logged.is_due() {
                    self.is_refusal_logged.set(true);
                    tracing::warn!(
                        "{} are not shared with other nodes by the fleet's engine: {why}",
                        self.title
                    );
                }
                Err(NotShared::Away(why))
            }
        }
    }

    /// The engine's answer to a question.
    async fn with<T>(
        &self,
        question: impl AsyncFnOnce(&Connection) -> Result<T, Trouble>,
    ) -> Result<T, NotShared> {
        if let Some(Outage { again, why, .. }) = &*self.outage.borrow()
            && Instant::now() < *again
        {
            return Err(NotShared::Away(why.clone()));
        }
        let answer = async { question(&*self.connected().await?).await };
        match answer.await {
            Ok(answer) => {
                self.serves();
                Ok(answer)
            }
            Err(Trouble(why)) => {
                self.connection.take();
                self.away(&why);
                Err(NotShared::Away(why))
            }
        }
    }

    async fn connected(&self) -> Result<Rc<Connection>, Trouble> {
        let known = self.connection.borrow().clone();
        if let Some(known) = known {
            return Ok(known);
        }
        let connection = Rc::new(self.client.connect().await?);
        self.connection.replace(Some(Rc::clone(&connection)));
        Ok(connection)
    }

    fn serves(&self) {
        if self.outage.take().is_some() && self.is_logged.take() {
            tracing::info!("{} are shared with other nodes again", self.title);
        }
    }

    fn away(&self, why: &str) {
        let mut outage = self.outage.borrow_mut();
        let now = Instant::now();
        let before = outage.as_ref().map_or(PAUSES[0] / 2, |outage| outage.pause);
        let pause = (before * 2).min(PAUSES[1]);
        *outage = Some(Outage { why: why.to_owned(), pause, again: now + pause });
        if !self.is_logged.get() && self.logged.is_due() {
            self.is_logged.set(true);
            tracing::warn!(
                "{} are not shared with other nodes, the fleet's engine is away: {why}",
                self.title
            );
        }
    }
}
