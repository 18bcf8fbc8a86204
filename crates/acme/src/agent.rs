//! The agent: obtains and renews all certificates that the configuration asks for.

use std::convert::Infallible;
use std::io;
use std::mem::replace;
use std::rc::Rc;
use std::time::{Duration, Instant};

use sendoff_config::{Acme, Config};
use sendoff_fleet::FleetLock;
use sendoff_tls::{FleetSecrets, Leaf, Obtained, Vault};
use tokio::time::{sleep, timeout};

use crate::answers::Answers;
use crate::client::Https;
use crate::conversation::{Conversation, known_account, replaced};
use crate::ledger::Ledger;
use crate::managed::ManagedCertificate;
use crate::nodes::Nodes;
use crate::now;
use crate::schedule::{Record, is_held_too_long, may_order_alone, renew_within};
use crate::server::{CertificateReport, Server};
use crate::store::{Store, Version};
use crate::trouble::{FailureKind, Trouble};
use crate::wanted::wanted;

/// Interval of the checks for due work and for challenges of other servers.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// Interval of the checks for certificates of other servers and nodes, in ticks.
pub(crate) const ADOPT: u32 = 10;

/// Time limit of one attempt. Records of DNS are published one after the other.
const ATTEMPT: Duration = Duration::from_secs(10 * 60);
const DNS_ATTEMPT: Duration = Duration::from_secs(30 * 60);

/// The pause before an unusable folder is tried again.
const FOLDER_PAUSE: Duration = Duration::from_secs(30);

/// The pause of a node that has failed by itself, in which other nodes can take the lock: they try
/// in each [`TICK`].
const OTHERS_TURN: Duration = Duration::from_secs(10);

/// The shortest and the longest interval at which the authority is asked for the time of the
/// renewal, in seconds. Within these limits the authority chooses the interval.
const ASK: [u64; 2] = [60, 24 * 60 * 60];

/// The interval, in seconds, after an authority did not answer this question.
const ASK_AGAIN: u64 = 60 * 60;

/// Time limit for the answer. Meanwhile the node takes no certificates of others.
const ASK_LIMIT: Duration = Duration::from_secs(5);

/// Obtains and renews certificates for a server.
pub struct Agent<S> {
    config: Config,
    acme: Acme,
    server: Rc<S>,
    /// The other nodes of the fleet; `None`: certificates are not shared.
    nodes: Option<Rc<Nodes>>,
    certificates: Vec<ManagedCertificate>,
    /// The time of the last exchange with other servers and nodes.
    exchanged: Option<Instant>,
    /// The state of the folder that the server has adopted.
    served: Option<Version>,
    reported: Vec<CertificateReport>,
    /// The last error of the folder or the server, so that it is logged once.
    said: Option<String>,
    /// The log says that another node has the lock for too long.
    is_lock_logged: bool,
    /// The time until which this node leaves the lock to others.
    yields_until: Option<Instant>,
}

/// The right to ask the authority.
enum Turn {
    /// The server is alone, or the nodes cannot agree for too long.
    Alone,
    /// No other node asks while this lock is ours.
    Held(FleetLock),
}

impl Turn {
    fn lock(&self) -> Option<&FleetLock> {
        match self {
            Self::Alone => None,
            Self::Held(lock) => Some(lock),
        }
    }
}

impl<S: Server> Agent<S> {
    /// `None` if the configuration asks for no certificate.
    #[must_use]
    pub fn new(config: Config, secrets: &FleetSecrets, server: S) -> Option<Self> {
        let acme = config.acme.clone()?;
        let nodes = Nodes::new(&config, &acme, secrets).map(Rc::new);
        if config.fleet.is_some() && nodes.is_none() {
            tracing::warn!("this node obtains certificates by itself: [fleet] has no secret_file");
        }
        let certificates = wanted(&config).into_iter().map(ManagedCertificate::new).collect();
        Some(Self {
            config,
            acme,
            server: Rc::new(server),
            nodes,
            certificates,
            exchanged: None,
            served: None,
            reported: Vec::new(),
            said: None,
            is_lock_logged: false,
            yields_until: None,
        })
    }

    /// Runs for ever. Failed steps are tried again. Needs a runtime for local tasks.
    pub async fn run(mut self) -> Infallible {
        let store = Rc::new(self.open().await);
        let (server, nodes) = (Rc::clone(&self.server), self.nodes.clone());
        let answers = Answers::new(server, Rc::clone(&store), nodes);
        tokio::select! {
            never = answers.follow() => never,
            never = self.work(&store, &answers) => never,
        }
    }

    async fn open(&mut self) -> Store {
        loop {
            match Store::open(&self.acme, &self.config.state) {
                Ok(store) => return store,
                Err(error) => {
                    let folder = self.acme.folder(&self.config.state);
                    self.say(format!(
                        "{}: {error}: no certificate is obtained; the owner of its parent must be able to write there",
                        folder.display()
                    ));
                    sleep(FOLDER_PAUSE).await;
                }
            }
        }
    }

    async fn work(&mut self, store: &Store, answers: &Answers<S>) -> Infallible {
        loop {
            let done = self.tick(store, answers).await;
            match done {
                Ok(()) => self.said = None,
                Err(why) => self.say(why),
            }
            sleep(TICK).await;
        }
    }

    fn say(&mut self, why: String) {
        if self.said.as_ref() != Some(&why) {
            tracing::error!("{why}");
            self.said = Some(why);
        }
    }

    async fn tick(&mut self, store: &Store, answers: &Answers<S>) -> Result<(), String> {
        let mut has_exchanged = false;
        for number in 0..self.certificates.len() {
            // An authority that hangs holds each of these steps up.
            if self.exchanged.is_none_or(|at| at.elapsed() >= TICK * ADOPT) {
                self.exchanged = Some(Instant::now());
                self.exchange(store).await?;
                self.adopt(store).await?;
                has_exchanged = true;
            }
            if self.served.is_none() {
                self.adopt(store).await?;
            }
            self.ask(store, number).await;
            self.attempt(store, answers, number).await?;
        }
        if has_exchanged { self.report(store) } else { Ok(()) }
    }

    /// Takes certificates of other nodes over, and gives them those that they lack. If the engine
    /// is away, the node goes on with the certificates that it has.
    async fn exchange(&self, store: &Store) -> Result<(), String> {
        let Some(nodes) = &self.nodes else { return Ok(()) };
        let lock = store.try_lock().map_err(|error| self.of_folder(&error))?;
        let Some(_lock) = lock else { return Ok(()) };
        // The log has a line about an engine that is away, or refuses to take what others lack.
        let _ = nodes.exchange_account(store, None).await;
        for kept in &self.certificates {
            let _ = nodes.exchange(store, &kept.wanted, None).await;
        }
        Ok(())
    }

    fn of_folder(&self, error: &io::Error) -> String {
        format!("the folder {}: {error}", self.config.state.display())
    }

    /// Passes the certificates in the folder to the server.
    async fn adopt(&mut self, store: &Store) -> Result<(), String> {
        let version = store.version();
        if self.served.as_ref() == Some(&version) {
            return Ok(());
        }
        let obtained = Obtained::read(&self.acme.certificates(&self.config.state));
        self.certificates.iter_mut().for_each(|kept| kept.take(&obtained));
        let served = self.server.serve(Vault::obtained(&self.config)).await;
        served.map_err(|error| format!("the front takes no certificates: {error}"))?;
        self.served = Some(version);
        Ok(())
    }

    fn https(&self) -> Result<Https, Trouble> {
        let https = Https::new(self.acme.roots.as_deref());
        https.map_err(|error| Trouble::here("the authority cannot be asked", error))
    }

    /// Asks the authority for the time of the renewal (RFC 9773).
    async fn ask(&mut self, store: &Store, number: usize) {
        let kept = &self.certificates[number];
        let Some((credentials, leaf)) = kept.have.as_ref().filter(|_| kept.ask_at <= now()) else {
            return;
        };
        let answer = async {
            let (id, https) = (replaced(credentials)?, self.https().ok()?);
            let account = known_account(store, &https).await.ok()??;
            let asked = account.renewal_info(&id).await;
            asked
                .inspect_err(|error| {
                    tracing::debug!(%error, "the authority suggests no time for renewal");
                })
                .ok()
        };
        let (renew_at, pause) = match timeout(ASK_LIMIT, answer).await {
            Ok(Some((info, wait))) => {
                let window = info.suggested_window;
                let window = [window.start, window.end].map(|time| time.unix_timestamp());
                let pause = wait.as_secs().clamp(ASK[0], ASK[1]);
                (renew_within(leaf, window, fastrand::f64()), pause)
            }
            Ok(None) | Err(_) => (kept.renew_at, ASK_AGAIN),
        };
        let kept = &mut self.certificates[number];
        (kept.renew_at, kept.ask_at) = (renew_at, now() + pause);
    }

    /// Obtains a certificate if it is due, and neither another server nor another node is at it.
    async fn attempt(
        &mut self,
        store: &Store,
        answers: &Answers<S>,
        number: usize,
    ) -> Result<(), String> {
        let kept = &mut self.certificates[number];
        if !kept.is_due(&store.record(&kept.wanted.file()), now()) {
            return Ok(());
        }
        if self.yields_until.is_some_and(|until| Instant::now() < until) {
            return Ok(());
        }
        let lock = store.try_lock().map_err(|error| self.of_folder(&error))?;
        let Some(lock) = lock else { return Ok(()) };
        let Some(turn) = self.turn(number).await else { return Ok(()) };
        let tried = self.attempt_in_turn(store, answers, number, &turn).await;
        if let (Turn::Held(lock), Some(nodes)) = (turn, &self.nodes) {
            nodes.unlock(lock).await;
        }
        drop(lock);
        if !tried? {
            return Ok(());
        }
        answers.refresh().await?;
        self.adopt(store).await?;
        self.report(store)
    }

    /// The right of this node to ask the authority; `None`: it has to wait for other nodes.
    async fn turn(&mut self, number: usize) -> Option<Turn> {
        let Some(nodes) = &self.nodes else { return Some(Turn::Alone) };
        let locked = nodes.try_lock().await;
        let kept = &mut self.certificates[number];
        let is_alone = match locked {
            Ok(Some(lock)) => {
                kept.locked();
                self.is_lock_logged = false;
                return Some(Turn::Held(lock));
            }
            Err(_) => kept.may_go_alone(Instant::now(), now()),
            Ok(None) => {
                let held = kept.held_for(Instant::now());
                if !is_held_too_long(held) {
                    return None;
                }
                if !replace(&mut self.is_lock_logged, true) {
                    tracing::error!(
                        "another node has had the lock in the fleet's engine for {held:?}"
                    );
                }
                may_order_alone(kept.leaf(), held, now())
            }
        };
        is_alone.then_some(Turn::Alone)
    }

    /// Takes over what other nodes have, and asks the authority if a certificate is still due.
    /// Returns true if it was asked.
    async fn attempt_in_turn(
        &mut self,
        store: &Store,
        answers: &Answers<S>,
        number: usize,
        turn: &Turn,
    ) -> Result<bool, String> {
        let nodes = self.nodes.clone();
        let mut held = nodes.as_deref().and_then(|nodes| Some((nodes, turn.lock()?)));
        if let Some((nodes, lock)) = held {
            let wanted = &self.certificates[number].wanted;
            let taken = async {
                nodes.exchange_account(store, Some(lock)).await?;
                nodes.exchange(store, wanted, Some(lock)).await
            };
            let taken = taken.await;
            let kept = &mut self.certificates[number];
            match taken {
                Ok(()) => kept.shared(),
                Err(_) if kept.may_go_alone(Instant::now(), now()) => held = None,
                Err(_) => return Ok(false),
            }
        }
        // Another server may have obtained it just now.
        self.adopt(store).await?;
        let name = self.certificates[number].wanted.file();
        let mut record = store.record(&name);
        if !self.certificates[number].is_due(&record, now()) {
            return Ok(false);
        }
        let names = self.certificates[number].wanted.names.join(", ");
        tracing::info!(names, directory = self.acme.directory, "a certificate is asked for");
        let ledger = Ledger { store, nodes: held };
        let obtained = self.obtain(&ledger, answers, number, &mut record).await;
        let stored = obtained.and_then(|pem| {
            let stored = store.store_certificate(&name, &pem);
            stored.map_err(|error| Trouble::here("the certificate cannot be stored", error))?;
            let (_, leaf) = store.certificate(&name).ok_or_else(late)?;
            Ok(leaf)
        });
        self.note(number, &stored, &mut record, held.is_some());
        let kept = store.store_record(&name, &record);
        let cleared = store.store_challenges(&[], now());
        if let Some((nodes, lock)) = held
            && let Err(error) = nodes.share_outcome(lock, store, &name, &record).await
        {
            tracing::warn!(names, "other nodes learn later how it ended: {error}");
        }
        if stored.is_ok() {
            tracing::info!(names, "a certificate was obtained");
        }
        kept.and(cleared).map_err(|error| self.of_folder(&error))?;
        Ok(true)
    }

    /// Asks the authority for a certificate, for as long as the lock of the nodes is ours.
    async fn obtain(
        &self,
        ledger: &Ledger<'_>,
        answers: &Answers<S>,
        number: usize,
        record: &mut Record,
    ) -> Result<String, Trouble> {
        let ManagedCertificate { wanted, have, .. } = &self.certificates[number];
        let conversation = Conversation { acme: &self.acme, ledger, answers, https: self.https()? };
        let obtained = conversation.obtain(wanted, have.as_ref(), record);
        let limit = if self.acme.dns.is_some() { DNS_ATTEMPT } else { ATTEMPT };
        tokio::select! {
            obtained = timeout(limit, obtained) => obtained.unwrap_or_else(|_| Err(late())),
            trouble = ledger.lost() => Err(trouble),
        }
    }

    /// Notes the outcome of an attempt in its record and, if it failed, in the log.
    /// `is_shared`: other nodes learn of it.
    fn note(
        &mut self,
        number: usize,
        stored: &Result<Leaf, Trouble>,
        record: &mut Record,
        is_shared: bool,
    ) {
        let kept = &mut self.certificates[number];
        let trouble = match stored {
            Ok(leaf) => {
                let by = self.nodes.as_ref().map(|nodes| nodes.me.clone());
                return record.succeeded(leaf, now(), by);
            }
            Err(trouble) => trouble,
        };
        record.failed(trouble, kept.wanted.methods.len(), now(), fastrand::f64());
        if self.nodes.is_some() && !is_shared {
            record.keep_to_node();
        }
        if is_shared && trouble.kind.is_of_node() {
            self.yields_until = Some(Instant::now() + OTHERS_TURN);
        }
        let names = kept.wanted.names.join(", ");
        let wait = Duration::from_secs(record.next_attempt(now()).saturating_sub(now()));
        tracing::error!(names, "no certificate: {}; the next attempt is in {wait:?}", trouble.says);
        kept.note_said(record, now());
    }

    /// Reports changes to the server.
    fn report(&mut self, store: &Store) -> Result<(), String> {
        let of = |kept: &mut ManagedCertificate| {
            let record = store.record(&kept.wanted.file());
            kept.warn(&record, now());
            CertificateReport {
                names: kept.wanted.names.clone(),
                ends: kept.ends(),
                asks: kept.renew_at.max(record.next_attempt(now())),
                error: record.error().map(str::to_owned),
                by: record.by,
            }
        };
        let reports: Vec<_> = self.certificates.iter_mut().map(of).collect();
        if reports != self.reported {
            let told = self.server.report(&reports);
            told.map_err(|error| format!("the supervisor takes no reports: {error}"))?;
            self.reported = reports;
        }
        Ok(())
    }
}

fn late() -> Trouble {
    let says = "the authority has not come to an end in time".to_owned();
    Trouble { kind: FailureKind::Unreachable, says, retry_after: None }
}
