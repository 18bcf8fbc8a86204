//! The hosts of an upstream, shared by all event loops.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sendoff_config::{Address, Balance};
use sendoff_message::request::Request;
use sendoff_message::response::Field;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::choice::{
    Choice, Chosen, ChosenBy, HealthChange, HealthEvidence, HealthRules, HostId, HostState, Member,
};
use super::wish::{HostCookie, HostTag, HostWish, Placement};
use crate::error::{Retry, UpstreamError, UpstreamErrorKind};

#[cfg(test)]
mod tests;

/// The longest time that a request waits for names to be resolved for the first time.
const FIRST_LOOK_UP: Duration = Duration::from_secs(5);

/// The most hosts that one request is sent to, one after the other.
const MAX_TRIES: usize = 8;

/// Makes a driver's data for a host.
type Make<T> = Box<dyn Fn(&Address) -> Arc<T> + Send + Sync>;

/// The hosts of an upstream; `T` is the driver's data for each host.
pub struct Hosts<T> {
    /// The upstream's name; `None`: it is a single host, named by its address.
    name: Option<String>,
    placement: Placement,
    make: Make<T>,
    choice: Mutex<Choice<Address, Arc<T>>>,
    /// Success of the first look-up, or the reason for its failure.
    known: watch::Sender<Resolution>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Resolution {
    NotYet,
    Yes,
    /// The reason, a sentence that calls the upstream "it".
    No(String),
}

/// The hosts that a request was sent to, and the host that it should go to.
#[derive(Debug, Default)]
pub struct Tried {
    wish: HostWish,
    hosts: Vec<HostId>,
}

/// An attempt of a request at a host. The host counts as busy with the request until this is
/// dropped.
pub struct AttemptGuard<T> {
    of: Arc<Hosts<T>>,
    id: HostId,
    host: Arc<T>,
    tag: HostTag,
    by: ChosenBy,
    wish: HostWish,
}

impl<T> Hosts<T> {
    /// An upstream with this name, whose hosts are not known yet; `make` makes the driver's data
    /// for a host.
    pub fn new(
        name: &str,
        rules: HealthRules,
        placement: Placement,
        make: impl Fn(&Address) -> Arc<T> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::with_name(Some(name.to_owned()), rules, placement, make)
    }

    fn with_name(
        name: Option<String>,
        rules: HealthRules,
        placement: Placement,
        make: impl Fn(&Address) -> Arc<T> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            name,
            placement,
            make: Box::new(make),
            choice: Mutex::new(Choice::new(rules)),
            known: watch::Sender::new(Resolution::NotYet),
        })
    }

    /// A single host, which never goes down.
    pub fn single(host: Arc<T>, address: Address) -> Arc<Self>
    where
        T: Send + Sync + 'static,
    {
        let rules =
            HealthRules { fails: u32::MAX, pause: Duration::ZERO, slow_start: Duration::ZERO };
        let hosts = Self::with_name(None, rules, Placement::FREE, move |_| Arc::clone(&host));
        hosts.set(&[Member { key: address, weight: 1, rank: 0 }]);
        hosts
    }

    /// Replaces the list of hosts.
    pub(crate) fn set(&self, members: &[Member<Address>]) {
        let tag = |address: &Address| HostTag::of(self.name(), address);
        self.choice().set(members, Instant::now(), &self.make, tag);
        self.known.send_replace(match members {
            [] => Resolution::No("it has no host".to_owned()),
            _ => Resolution::Yes,
        });
    }

    /// Notes why no host is known, in a sentence that calls the upstream "it". Has no effect if
    /// hosts are known already.
    pub(super) fn set_unknown(&self, why: String) {
        self.known.send_if_modified(|known| {
            let is_news = *known != Resolution::Yes;
            if is_news {
                *known = Resolution::No(why);
            }
            is_news
        });
    }

    /// Chooses the host for a request's next attempt.
    ///
    /// # Errors
    /// No host is known, or the request has been sent to all of them.
    pub async fn choose(
        self: &Arc<Self>,
        tried: &mut Tried,
    ) -> Result<AttemptGuard<T>, UpstreamError> {
        if let Some(attempt) = self.choose_known(tried) {
            return Ok(attempt);
        }
        let mut known = self.known.subscribe();
        let wait = timeout(FIRST_LOOK_UP, known.wait_for(|known| *known != Resolution::NotYet));
        // The sender lives as long as `self`.
        let _ = wait.await;
        self.choose_known(tried).ok_or_else(|| {
            let why = match &*self.known.borrow() {
                Resolution::NotYet => Cow::from("its names were not looked up in time"),
                Resolution::Yes => Cow::from("it has no further host"),
                Resolution::No(why) => Cow::from(why.clone()),
            };
            UpstreamError::new(UpstreamErrorKind::Unreachable, Retry::Safe, why)
        })
    }

    fn choose_known(self: &Arc<Self>, tried: &mut Tried) -> Option<AttemptGuard<T>> {
        let chosen = self.choice().choose(&tried.hosts, &tried.wish, Instant::now())?;
        let (of, Chosen { id, value: host, tag, by }) = (Arc::clone(self), chosen);
        tried.hosts.push(id);
        Some(AttemptGuard { of, id, host, tag, by, wish: tried.wish })
    }

    /// The upstream's name; empty for a single host.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// The name of the cookie that the server sets to bind clients to hosts, if there is one.
    pub fn cookie_name(&self) -> Option<&str> {
        self.placement.cookie_name()
    }

    /// The request as the application knows it: its cookie names no host; `None`: as it is.
    pub fn own(&self, request: &Request) -> Option<Request> {
        let cookie = self.placement.tagged_cookie()?;
        if !cookie.is_tagged(&request.headers) {
            return None;
        }
        let mut own = request.clone();
        cookie.remove_tags(&mut own.headers);
        Some(own)
    }

    /// The number of hosts.
    pub fn count(&self) -> usize {
        self.choice().all().count()
    }

    /// The current states of the hosts, each with the driver's data.
    pub fn states(&self) -> Vec<(HostState<Address>, Arc<T>)> {
        self.choice().states(Instant::now())
    }

    /// The driver's data for each host.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.choice().all().map(|(_, host)| Arc::clone(host)).collect()
    }

    pub(super) fn with_ids(&self) -> Vec<(HostId, Arc<T>)> {
        self.choice().all().map(|(id, host)| (id, Arc::clone(host))).collect()
    }

    /// Notes that a host can be reached.
    pub(super) fn note_reachable(&self, id: HostId) {
        self.choice().note_reachable(id, Instant::now());
    }

    /// Applies a verdict, and logs a change of the host's health.
    pub(super) fn judge(&self, id: HostId, verdict: HealthEvidence, why: &dyn fmt::Display) {
        let change = {
            let mut choice = self.choice();
            let change = choice.judge(id, verdict, Instant::now());
            if verdict == HealthEvidence::Bad {
                choice.note_reason(id, why.to_string());
            }
            change
        };
        self.log(change, id, why);
    }

    /// Applies the result of a check, and logs a change of the host's health.
    pub(super) fn check(&self, id: HostId, result: Result<(), UpstreamError>) {
        let change = {
            let mut choice = self.choice();
            let change = choice.check(id, result.is_ok(), Instant::now());
            if let Err(why) = &result {
                choice.note_reason(id, why.to_string());
            }
            change
        };
        let why = result.err().map(|why| why.to_string()).unwrap_or_default();
        self.log(change, id, &why);
    }

    fn log(&self, change: Option<HealthChange>, id: HostId, why: &dyn fmt::Display) {
        let Some(change) = change else { return };
        let Some(host) = self.choice().key(id).cloned() else { return };
        match change {
            HealthChange::WentDown => {
                tracing::warn!(upstream = self.name(), %host, "the host is down: {why}");
            }
            HealthChange::CameBack => {
                tracing::info!(upstream = self.name(), %host, "the host is back");
            }
        }
    }

    fn choice(&self) -> MutexGuard<'_, Choice<Address, Arc<T>>> {
        // A panic elsewhere cannot leave the choice inconsistent: no code between lock and unlock
        // panics.
        self.choice.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Hosts<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosts").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Tried {
    /// A request that was not sent to any of these hosts.
    pub fn none<T>(request: &Request, hosts: &Hosts<T>) -> Self {
        Self { wish: hosts.placement.wish(request), hosts: Vec::new() }
    }

    /// True if the request may be sent to another host of this upstream after such a failure. The
    /// first host must have read no byte of the request, or the request must be idempotent (RFC
    /// 9110 §9.2.2); the caller makes sure that no byte of an answer has arrived. After a silent
    /// host no other is tried: the first may still be at work, and another would hardly be quicker.
    pub fn may_try_another<T>(
        &self,
        why: &UpstreamError,
        is_idempotent: bool,
        hosts: &Hosts<T>,
    ) -> bool {
        let is_safe = match why.kind() {
            UpstreamErrorKind::Server
            | UpstreamErrorKind::Request(_)
            | UpstreamErrorKind::Silent
            // The request has waited for its full time.
            | UpstreamErrorKind::WaitTimedOut => false,
            UpstreamErrorKind::Died => is_idempotent || why.retry() == Retry::Safe,
            UpstreamErrorKind::Overloaded
            | UpstreamErrorKind::QueueFull
            | UpstreamErrorKind::ConnectTimedOut
            | UpstreamErrorKind::Unreachable
            | UpstreamErrorKind::Broken => why.retry() == Retry::Safe,
        };
        is_safe && self.hosts.len() < hosts.count().min(MAX_TRIES)
    }
}

impl<T> AttemptGuard<T> {
    /// The driver's data for the host.
    pub fn host(&self) -> &Arc<T> {
        &self.host
    }

    /// The upstream's name; `None`: it is a single host.
    pub fn upstream(&self) -> Option<&str> {
        self.of.name.as_deref()
    }

    /// The cookie that binds the client to the host; `None`: the client has it already, or is not
    /// bound.
    pub fn new_cookie(&self) -> Option<HostCookie<'_>> {
        self.of.placement.cookie(&self.wish, self.tag)
    }

    /// Names the host in the application's cookie that binds clients, if a response sets it.
    pub fn tag_cookie(&self, fields: &mut [Field]) {
        if let Some(cookie) = self.of.placement.tagged_cookie() {
            cookie.tag(self.tag, fields);
        }
    }

    /// True if a response to the request must pass by, because it may set a cookie that binds the
    /// client.
    pub fn binds(&self) -> bool {
        self.new_cookie().is_some() || self.of.placement.tagged_cookie().is_some()
    }

    /// The reason for the choice of this host; `None`: its load.
    pub fn chosen_by(&self) -> Option<String> {
        match (self.by, self.of.placement.balance()) {
            (ChosenBy::Cookie, _) => Some("the client's cookie".to_owned()),
            (ChosenBy::Hash, Balance::Hash(part)) => Some(format!("a hash of the {part}")),
            (ChosenBy::Hash, Balance::Least) | (ChosenBy::Load, _) => None,
        }
    }

    /// Notes that the host has begun to answer.
    pub fn answered(&self) {
        self.of.judge(self.id, HealthEvidence::Good, &"");
    }

    /// Notes that the attempt has failed. An overloaded host, or an error of this server, does not
    /// affect the host's health.
    pub fn failed(&self, why: &UpstreamError) {
        match why.kind() {
            UpstreamErrorKind::ConnectTimedOut
            | UpstreamErrorKind::Unreachable
            | UpstreamErrorKind::Died
            | UpstreamErrorKind::Broken
            | UpstreamErrorKind::Silent => self.of.judge(self.id, HealthEvidence::Bad, why),
            UpstreamErrorKind::QueueFull
            | UpstreamErrorKind::WaitTimedOut
            | UpstreamErrorKind::Overloaded
            | UpstreamErrorKind::Request(_)
            | UpstreamErrorKind::Server => {}
        }
    }
}

impl<T> Drop for AttemptGuard<T> {
    fn drop(&mut self) {
        self.of.choice().end(self.id, Instant::now());
    }
}

impl<T> fmt::Debug for AttemptGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptGuard").field("of", &self.of.name).field("id", &self.id).finish()
    }
}
