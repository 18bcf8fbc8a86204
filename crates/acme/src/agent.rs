//! The agent: obtains and renews all certificates that the configuration asks for.

use std::convert::Infallible;
use std::time::Duration;

use sendoff_config::{Acme, Config};
use sendoff_tls::{Challenge, Credentials, Leaf, Obtained, Vault};
use tokio::time::{sleep, timeout};

use crate::client::Https;
use crate::conversation::{Conversation, replaced};
use crate::now;
use crate::schedule::{Record, renew_at, renew_within};
use crate::server::{CertificateReport, Server};
use crate::store::{Store, Version};
use crate::trouble::{FailureKind, Trouble};
use crate::wanted::{WantedCertificate, wanted};

/// Interval of the checks for due work and for challenges of other servers.
const TICK: Duration = Duration::from_secs(1);

/// Interval of the checks for certificates of other servers, in ticks.
const ADOPT: u32 = 10;

/// Time limit of one attempt. Records of DNS are published one after the other.
const ATTEMPT: Duration = Duration::from_secs(10 * 60);
const DNS_ATTEMPT: Duration = Duration::from_secs(30 * 60);

/// Interval at which the log repeats a warning about a certificate, in seconds.
const DAY: u64 = 24 * 60 * 60;

/// The pause before an unusable folder is tried again.
const FOLDER_PAUSE: Duration = Duration::from_secs(30);

/// The shortest and the longest interval at which the authority is asked for the time of the
/// renewal, in seconds. Within these limits the authority chooses the interval.
const ASK: [u64; 2] = [60, 24 * 60 * 60];

/// The interval, in seconds, after an authority did not answer this question.
const ASK_AGAIN: u64 = 60 * 60;

/// Obtains and renews certificates for a server.
pub struct Agent<S> {
    config: Config,
    acme: Acme,
    server: S,
    certificates: Vec<ManagedCertificate>,
    /// The challenges that the server answers; `None` if unknown.
    answered: Option<Vec<Challenge>>,
    /// The state of the folder that the server has adopted.
    served: Option<Version>,
    reported: Vec<CertificateReport>,
    /// The last error of the folder or the server, so that it is logged once.
    said: Option<String>,
}

/// A state of a certificate that the operator has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Concern {
    /// The certificate has expired.
    Expired,
    /// There is no certificate, and the next attempt must wait.
    Missing,
    /// The renewal is due, and the next attempt must wait.
    Late,
}

impl Concern {
    fn of(ends: Option<u64>, renew_at: u64, waits: bool, now: u64) -> Option<Self> {
        match ends {
            Some(ends) if ends <= now => Some(Self::Expired),
            Some(_) => (waits && renew_at <= now).then_some(Self::Late),
            None => waits.then_some(Self::Missing),
        }
    }
}

/// A wanted certificate and its state.
struct ManagedCertificate {
    wanted: WantedCertificate,
    /// The last warning in the log, and its time.
    said: Option<(Concern, u64)>,
    /// The certificate in use, if it covers all names.
    have: Option<(Credentials, Leaf)>,
    renew_at: u64,
    /// The time of the next question about the renewal.
    ask_at: u64,
}

impl ManagedCertificate {
    fn new(wanted: WantedCertificate) -> Self {
        Self { wanted, said: None, have: None, renew_at: 0, ask_at: 0 }
    }

    fn ends(&self) -> Option<u64> {
        self.have.as_ref().map(|(_, leaf)| u64::try_from(leaf.ends).unwrap_or(0))
    }

    fn concern(&self, record: &Record, now: u64) -> Option<Concern> {
        Concern::of(self.ends(), self.renew_at, record.obstacle(now).is_some(), now)
    }

    /// Logs a warning for the operator when its reason begins, and daily while it lasts.
    fn warn(&mut self, record: &Record, now: u64) {
        let concern = self.concern(record, now);
        let is_said = |(said, at): &(Concern, u64)| Some(*said) == concern && *at + DAY > now;
        if self.said.as_ref().is_some_and(is_said) {
            return;
        }
        self.said = concern.map(|concern| (concern, now));
        let Some(concern) = concern else { return };
        let names = self.wanted.names.join(", ");
        let ends = self.ends().unwrap_or(0);
        let says = match concern {
            Concern::Expired => {
                format!("the certificate expired {:?} ago", Duration::from_secs(now - ends))
            }
            Concern::Missing => "there is no certificate".to_owned(),
            Concern::Late => {
                let left = Duration::from_secs(ends.saturating_sub(now));
                format!("the certificate is to be renewed and expires in {left:?}")
            }
        };
        match record.obstacle(now) {
            Some(why) => {
                let wait = Duration::from_secs(record.next_attempt().saturating_sub(now));
                tracing::error!(names, "{says}: {why}; the next attempt is in {wait:?}");
            }
            None => tracing::error!(names, "{says}; another one is asked for"),
        }
    }

    /// Takes over the certificate from the folder.
    fn take(&mut self, obtained: &Obtained) {
        let names = &self.wanted.names;
        let best = obtained.best(names);
        let best = best.filter(|(_, leaf)| names.iter().all(|name| leaf.covers(name)));
        if self.have.as_ref().map(|(_, leaf)| leaf) == best.map(|(_, leaf)| leaf) {
            return;
        }
        self.have = best.map(|(credentials, leaf)| (credentials.clone(), leaf.clone()));
        self.renew_at = best.map_or(0, |(_, leaf)| renew_at(leaf));
        self.ask_at = 0;
    }
}

impl<S: Server> Agent<S> {
    /// `None` if the configuration asks for no certificate.
    #[must_use]
    pub fn new(config: Config, server: S) -> Option<Self> {
        let acme = config.acme.clone()?;
        let certificates = wanted(&config).into_iter().map(ManagedCertificate::new).collect();
        Some(Self {
            config,
            acme,
            server,
            certificates,
            answered: None,
            served: None,
            reported: Vec::new(),
            said: None,
        })
    }

    /// Runs for ever. Failed steps are tried again.
    pub async fn run(mut self) -> Infallible {
        let store = loop {
            match Store::open(&self.acme, &self.config.state) {
                Ok(store) => break store,
                Err(error) => {
                    let folder = self.acme.folder(&self.config.state);
                    self.say(format!(
                        "{}: {error}: no certificate is obtained; the owner of its parent must be able to write there",
                        folder.display()
                    ));
                    sleep(FOLDER_PAUSE).await;
                }
            }
        };
        for tick in 0.. {
            let done = self.tick(&store, tick).await;
            match done {
                Ok(()) => self.said = None,
                Err(why) => self.say(why),
            }
            sleep(TICK).await;
        }
        std::future::pending().await
    }

    fn say(&mut self, why: String) {
        if self.said.as_ref() != Some(&why) {
            tracing::error!("{why}");
            self.said = Some(why);
        }
    }

    async fn tick(&mut self, store: &Store, tick: u32) -> Result<(), String> {
        let is_tenth = tick.is_multiple_of(ADOPT);
        // A restarted front does not know the challenges.
        self.answered.take_if(|answered| is_tenth && !answered.is_empty());
        self.share_challenges(store).await?;
        if is_tenth || self.served.is_none() {
            self.adopt(store).await?;
        }
        for number in 0..self.certificates.len() {
            self.ask(store, number).await;
            self.attempt(store, number).await?;
        }
        if is_tenth { self.report(store) } else { Ok(()) }
    }

    /// Passes the challenges of all servers that share the folder to the server.
    async fn share_challenges(&mut self, store: &Store) -> Result<(), String> {
        let challenges = store.challenges(now());
        if self.answered.as_ref() != Some(&challenges) {
            let answered = self.server.answer(&challenges).await;
            answered.map_err(|error| format!("the front takes no challenges: {error}"))?;
            self.answered = Some(challenges);
        }
        Ok(())
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

    fn conversation<'a>(&'a self, store: &'a Store) -> Result<Conversation<'a, S>, Trouble> {
        let https = Https::new(self.acme.roots.as_deref())
            .map_err(|error| Trouble::here("the authority cannot be asked", error))?;
        Ok(Conversation { acme: &self.acme, store, server: &self.server, https })
    }

    /// Asks the authority for the time of the renewal (RFC 9773).
    async fn ask(&mut self, store: &Store, number: usize) {
        let kept = &self.certificates[number];
        let Some((credentials, leaf)) = kept.have.as_ref().filter(|_| kept.ask_at <= now()) else {
            return;
        };
        let (mut renew_at, mut pause) = (kept.renew_at, ASK_AGAIN);
        if let (Some(id), Ok(conversation)) = (replaced(credentials), self.conversation(store))
            && let Ok(Some(account)) = conversation.known_account().await
        {
            match account.renewal_info(&id).await {
                Ok((info, wait)) => {
                    let window = info.suggested_window;
                    let window = [window.start, window.end].map(|time| time.unix_timestamp());
                    renew_at = renew_within(leaf, window, fastrand::f64());
                    pause = wait.as_secs().clamp(ASK[0], ASK[1]);
                }
                Err(error) => tracing::debug!(%error, "the authority suggests no time for renewal"),
            }
        }
        let kept = &mut self.certificates[number];
        (kept.renew_at, kept.ask_at) = (renew_at, now() + pause);
    }

    /// Obtains a certificate if it is due and no other server holds the lock.
    async fn attempt(&mut self, store: &Store, number: usize) -> Result<(), String> {
        let is_due = |kept: &ManagedCertificate| kept.have.is_none() || kept.renew_at <= now();
        let name = self.certificates[number].wanted.file();
        if !is_due(&self.certificates[number]) || store.record(&name).next_attempt() > now() {
            return Ok(());
        }
        let state = self.config.state.display().to_string();
        let folder = |error| format!("the folder {state}: {error}");
        let Some(lock) = store.try_lock().map_err(folder)? else { return Ok(()) };
        // Another server may have obtained it just now.
        self.adopt(store).await?;
        let mut record = store.record(&name);
        if !is_due(&self.certificates[number]) || record.next_attempt() > now() {
            return Ok(());
        }
        let ManagedCertificate { wanted, have, .. } = &self.certificates[number];
        let names = wanted.names.join(", ");
        let before = have.as_ref().map(|(credentials, _)| credentials);
        tracing::info!(names, directory = self.acme.directory, "a certificate is asked for");
        let obtained = match self.conversation(store) {
            Ok(conversation) => {
                let obtained = conversation.obtain(wanted, before, &mut record);
                let limit = if self.acme.dns.is_some() { DNS_ATTEMPT } else { ATTEMPT };
                timeout(limit, obtained).await.unwrap_or_else(|_| Err(late()))
            }
            Err(trouble) => Err(trouble),
        };
        let stored = obtained.and_then(|pem| {
            let stored = store.store_certificate(&name, &pem);
            stored.map_err(|error| Trouble::here("the certificate cannot be stored", error))?;
            let (_, leaf) = store.certificate(&name).ok_or_else(late)?;
            Ok(leaf)
        });
        match &stored {
            Ok(leaf) => record.succeeded(leaf, now()),
            Err(trouble) => {
                record.failed(trouble, wanted.methods.len(), now(), fastrand::f64());
            }
        }
        let kept = store.store_record(&name, &record);
        let cleared = store.store_challenges(&[], now());
        drop(lock);
        if let Err(Trouble { says, .. }) = &stored {
            let wait = Duration::from_secs(record.next_attempt().saturating_sub(now()));
            tracing::error!(names, "no certificate: {says}; the next attempt is in {wait:?}");
            let kept = &mut self.certificates[number];
            kept.said = kept.concern(&record, now()).map(|concern| (concern, now()));
        }
        self.answered = None;
        kept.and(cleared).map_err(folder)?;
        self.share_challenges(store).await?;
        self.adopt(store).await?;
        if stored.is_ok() {
            tracing::info!(names, "a certificate was obtained");
        }
        self.report(store)
    }

    /// Reports changes to the server.
    fn report(&mut self, store: &Store) -> Result<(), String> {
        let of = |kept: &mut ManagedCertificate| {
            let record = store.record(&kept.wanted.file());
            kept.warn(&record, now());
            CertificateReport {
                names: kept.wanted.names.clone(),
                ends: kept.ends(),
                asks: kept.renew_at.max(record.next_attempt()),
                error: record.error,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_concerns_an_operator_depends_on_time() {
        for (ends, renew_at, waits, expected) in [
            (None, 0, false, None),
            (None, 0, true, Some(Concern::Missing)),
            (Some(100), 50, false, Some(Concern::Expired)),
            (Some(99), 50, true, Some(Concern::Expired)),
            (Some(101), 50, false, None),
            (Some(101), 50, true, Some(Concern::Late)),
            (Some(300), 200, true, None),
        ] {
            let concern = Concern::of(ends, renew_at, waits, 100);
            assert_eq!(concern, expected, "{ends:?} {renew_at} {waits}");
        }
    }
}
