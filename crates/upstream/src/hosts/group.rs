//! The hosts of an upstream as all event loops share them.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sendoff_config::Address;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::choice::{Change, Choice, HostId, HostState, Member, Rules, Verdict};
use crate::error::{Retry, UpstreamError, UpstreamErrorKind};

#[cfg(test)]
mod tests;

/// How long a request waits for names that have not been looked up yet.
const FIRST_LOOK_UP: Duration = Duration::from_secs(5);

/// Hosts that a request is sent to at most, one after the other.
const MAX_TRIES: usize = 8;

/// Makes what a driver needs for a host.
type Make<T> = Box<dyn Fn(&Address) -> Arc<T> + Send + Sync>;

/// The hosts of an upstream; `T` is what a driver needs for each.
pub struct Hosts<T> {
    /// The upstream's name; `None`: it is a single host, whose address says everything.
    name: Option<String>,
    make: Make<T>,
    choice: Mutex<Choice<Address, Arc<T>>>,
    /// Whether the hosts are known, and otherwise why not.
    known: watch::Sender<Known>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Known {
    NotYet,
    Yes,
    /// A sentence that has "it" for the upstream.
    No(String),
}

/// The hosts that a request was sent to.
#[derive(Debug, Default)]
pub struct Tried(Vec<HostId>);

/// A request's stay at a host. Until it is dropped, the host counts as busy with it.
pub struct Turn<T> {
    of: Arc<Hosts<T>>,
    id: HostId,
    host: Arc<T>,
}

impl<T> Hosts<T> {
    /// An upstream with this name, whose hosts are not known yet; `make` makes what a host needs.
    pub fn new(
        name: &str,
        rules: Rules,
        make: impl Fn(&Address) -> Arc<T> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::with_name(Some(name.to_owned()), rules, make)
    }

    fn with_name(
        name: Option<String>,
        rules: Rules,
        make: impl Fn(&Address) -> Arc<T> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            name,
            make: Box::new(make),
            choice: Mutex::new(Choice::new(rules)),
            known: watch::Sender::new(Known::NotYet),
        })
    }

    /// A single host, which is never given up.
    pub fn single(host: Arc<T>, address: Address) -> Arc<Self>
    where
        T: Send + Sync + 'static,
    {
        let rules = Rules { fails: u32::MAX, pause: Duration::ZERO, slow_start: Duration::ZERO };
        let hosts = Self::with_name(None, rules, move |_| Arc::clone(&host));
        hosts.set(&[Member { key: address, weight: 1, rank: 0 }]);
        hosts
    }

    /// These are the hosts from now on.
    pub(crate) fn set(&self, members: &[Member<Address>]) {
        self.choice().set(members, Instant::now(), &self.make);
        self.known.send_replace(match members {
            [] => Known::No("it has no host".to_owned()),
            _ => Known::Yes,
        });
    }

    /// No host is known, for a reason that has "it" for the upstream. Hosts that are known already stay.
    pub(super) fn set_unknown(&self, why: String) {
        self.known.send_if_modified(|known| {
            let is_news = *known != Known::Yes;
            if is_news {
                *known = Known::No(why);
            }
            is_news
        });
    }

    /// The host for a request's next attempt.
    ///
    /// # Errors
    /// No host is known, or the request has been sent to all of them.
    pub async fn choose(self: &Arc<Self>, tried: &mut Tried) -> Result<Turn<T>, UpstreamError> {
        if let Some(turn) = self.choose_known(tried) {
            return Ok(turn);
        }
        let mut known = self.known.subscribe();
        let wait = timeout(FIRST_LOOK_UP, known.wait_for(|known| *known != Known::NotYet));
        // The sender lives as long as this value.
        let _ = wait.await;
        self.choose_known(tried).ok_or_else(|| {
            let why = match &*self.known.borrow() {
                Known::NotYet => Cow::from("its names were not looked up in time"),
                Known::Yes => Cow::from("it has no further host"),
                Known::No(why) => Cow::from(why.clone()),
            };
            UpstreamError::new(UpstreamErrorKind::Unreachable, Retry::Safe, why)
        })
    }

    fn choose_known(self: &Arc<Self>, tried: &mut Tried) -> Option<Turn<T>> {
        let (id, host) = self.choice().choose(&tried.0, Instant::now())?;
        tried.0.push(id);
        Some(Turn { of: Arc::clone(self), id, host })
    }

    /// The upstream's name; nothing for a single host.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// The number of hosts.
    pub fn count(&self) -> usize {
        self.choice().all().count()
    }

    /// The hosts as they are now, each with what the driver has of it.
    pub fn states(&self) -> Vec<(HostState<Address>, Arc<T>)> {
        self.choice().states(Instant::now())
    }

    /// What the driver has of each host.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.choice().all().map(|(_, host)| Arc::clone(host)).collect()
    }

    pub(super) fn with_ids(&self) -> Vec<(HostId, Arc<T>)> {
        self.choice().all().map(|(id, host)| (id, Arc::clone(host))).collect()
    }

    /// A host can be reached.
    pub(super) fn can_be_reached(&self, id: HostId) {
        self.choice().can_be_reached(id, Instant::now());
    }

    /// Takes a verdict, and logs what it changes.
    pub(super) fn judge(&self, id: HostId, verdict: Verdict, why: &dyn fmt::Display) {
        let (change, key) = {
            let mut choice = self.choice();
            let now = Instant::now();
            let Some(change) = choice.judge(id, verdict, now) else { return };
            (change, choice.key(id).cloned())
        };
        let Some(host) = key else { return };
        match change {
            Change::WentDown => {
                tracing::warn!(upstream = self.name(), %host, "the host is down: {why}");
            }
            Change::CameBack => tracing::info!(upstream = self.name(), %host, "the host is back"),
        }
    }

    fn choice(&self) -> MutexGuard<'_, Choice<Address, Arc<T>>> {
        // A panic elsewhere cannot leave it half changed: nothing between lock and unlock panics.
        self.choice.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Hosts<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosts").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Tried {
    /// Whether the request may be sent to another host of this upstream after such a failure: nothing of it was read, or it may
    /// be repeated (RFC 9110 §9.2.2) and no byte of an answer has come, which the caller knows. A host that was silent for
    /// too long may still be at work, and the client has waited: another would hardly be quicker.
    pub fn may_go_on<T>(&self, why: &UpstreamError, is_idempotent: bool, hosts: &Hosts<T>) -> bool {
        let is_safe = match why.kind() {
            UpstreamErrorKind::Server
            | UpstreamErrorKind::Request(_)
            | UpstreamErrorKind::Silent
            // The request has waited for its whole time.
            | UpstreamErrorKind::WaitTimedOut => false,
            UpstreamErrorKind::Died => is_idempotent || why.retry() == Retry::Safe,
            UpstreamErrorKind::Overloaded
            | UpstreamErrorKind::QueueFull
            | UpstreamErrorKind::ConnectTimedOut
            | UpstreamErrorKind::Unreachable
            | UpstreamErrorKind::Broken => why.retry() == Retry::Safe,
        };
        is_safe && self.0.len() < hosts.count().min(MAX_TRIES)
    }
}

impl<T> Turn<T> {
    /// What the driver has of the host.
    pub fn host(&self) -> &Arc<T> {
        &self.host
    }

    /// The upstream's name; `None`: it is a single host.
    pub fn upstream(&self) -> Option<&str> {
        self.of.name.as_deref()
    }

    /// The host has begun to answer.
    pub fn answered(&self) {
        self.of.judge(self.id, Verdict::Good, &"");
    }

    /// The attempt has failed. What is only busy, or the fault of this server, says nothing about the host's health.
    pub fn failed(&self, why: &UpstreamError) {
        match why.kind() {
            UpstreamErrorKind::ConnectTimedOut
            | UpstreamErrorKind::Unreachable
            | UpstreamErrorKind::Died
            | UpstreamErrorKind::Broken
            | UpstreamErrorKind::Silent => self.of.judge(self.id, Verdict::Bad, why),
            UpstreamErrorKind::QueueFull
            | UpstreamErrorKind::WaitTimedOut
            | UpstreamErrorKind::Overloaded
            | UpstreamErrorKind::Request(_)
            | UpstreamErrorKind::Server => {}
        }
    }
}

impl<T> Drop for Turn<T> {
    fn drop(&mut self) {
        self.of.choice().end(self.id, Instant::now());
    }
}

impl<T> fmt::Debug for Turn<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("of", &self.of.name).field("id", &self.id).finish()
    }
}
