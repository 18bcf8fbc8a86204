//! The choice of the host that gets a request, by the health and the load of each host. No sockets
//! and no clock: the caller passes the time.
//!
//! The choice falls on the host with the fewest requests for its weight; equally loaded hosts take
//! turns in proportion to their weights. A request that a cookie or consistent hashing binds to a
//! host goes to that host if it may be chosen (`wish.rs`). Hosts of a higher rank than the lowest rank with a host
//! that is up get no requests (RFC 2782 calls the rank a priority). The states of a host:
//!
//! ```text
//!             `fails` failures in a row                 the pause is over
//!   Up ───────────────────────────────────▶ Down ───────────────────────▶ OnTrial
//!   ▲                                        ▲ ▲                           │ │ │
//!   │                                        │ └─ no verdict ──────────────┘ │ │
//!   │                                        └─ fails: the pause doubles ────┘ │
//!   └─ answers: its share grows for `slow_start` ──────────────────────────────┘
//! ```
//! A host on trial gets one request of the upstream, and the other hosts get the rest. While no
//! host is up, requests go to hosts that are down: an attempt costs less than a refusal.
//!
//! After `fails` failed checks in a row a host of any state is Unfit, whatever it answers to requests.
//! Only a successful check ends this state: the host is Up, and its share grows.

use std::cmp::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::wish::{HostTag, HostWish};

#[cfg(test)]
mod bound_tests;
#[cfg(test)]
mod tests;

/// The longest pause until a host that is down is tried again.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The share of a host that has just come back.
const FIRST_SHARE: f64 = 0.1;

/// The rules by which a host goes down and comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthRules {
    /// Consecutive failures after which a host is down.
    pub(crate) fails: u32,
    /// The time until a host that is down gets another request; it doubles with each failure, up to
    /// a minute.
    pub(crate) pause: Duration,
    /// The time in which the share of a host that has come back grows to its whole weight; zero: at
    /// once.
    pub(crate) slow_start: Duration,
}

/// The result of a request as evidence of the host's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HealthEvidence {
    /// It has answered.
    Good,
    /// The host could not be reached, closed the connection without an answer, broke the protocol,
    /// or was silent for too long.
    Bad,
}

/// The id of a host, which is never used for another host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostId(u64);

/// A host as the configuration and the name service describe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<K> {
    /// The key that identifies the host.
    pub key: K,
    /// Its share of the requests among hosts of its rank, at least 1.
    pub weight: u32,
    /// Hosts of the lowest rank that is up get the requests.
    pub rank: u16,
}

/// The hosts of an upstream. `K` identifies a host, `V` is the data that its requests need.
#[derive(Debug)]
pub(super) struct Choice<K, V> {
    rules: HealthRules,
    hosts: Vec<Host<K, V>>,
    last_id: u64,
    /// True once a host has had a request.
    is_used: bool,
}

#[derive(Debug)]
struct Host<K, V> {
    id: HostId,
    member: Member<K>,
    tag: HostTag,
    value: V,
    in_flight: usize,
    /// Failures since the last answer.
    failures: u32,
    /// Failed checks since the last successful one.
    failed_checks: u32,
    health: Health,
    /// The reason why it is not up, as a sentence about "it"; empty while it is up.
    why: String,
    /// The balance of the turns: grows by the host's share each time the host is among equals, and
    /// shrinks by the shares of all of them when the host is chosen. So the balance stays bounded,
    /// even if the host was the least busy for many requests.
    credit: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    /// The time at which it came back; `None`: it was never down.
    Up(Option<Instant>),
    Down {
        until: Instant,
        pause: Duration,
    },
    OnTrial {
        pause: Duration,
    },
    /// Its checks fail.
    Unfit,
}

/// The host for a request.
#[derive(Debug)]
pub(super) struct Chosen<V> {
    pub(super) id: HostId,
    pub(super) value: V,
    pub(super) tag: HostTag,
    pub(super) by: ChosenBy,
}

/// The reason for the choice of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChosenBy {
    /// The request's cookie names the host.
    Cookie,
    /// Consistent hashing gives the host to requests like this one.
    Hash,
    /// It was the least busy one.
    Load,
}

/// The state of a host, for `sendoff status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostState<K> {
    /// Its key, weight and rank.
    pub member: Member<K>,
    /// Requests in flight.
    pub in_flight: usize,
    /// Failures since its last answer.
    pub failures: u32,
    /// The time until it is tried again; `None`: it is up.
    pub down_for: Option<Duration>,
    /// It is not tried before a check succeeds, unless no other host is up.
    pub awaits_check: bool,
    /// The reason why it is not up.
    pub why: String,
}

impl<K: Eq + Clone, V: Clone> Choice<K, V> {
    pub(super) fn new(rules: HealthRules) -> Self {
        Self { rules, hosts: Vec::new(), last_id: 0, is_used: false }
    }

    /// Replaces the list of hosts. Hosts that stay keep their state. If a host is named twice, the
    /// weights add up and the lower rank counts.
    pub(super) fn set(
        &mut self,
        members: &[Member<K>],
        now: Instant,
        value: impl Fn(&K) -> V,
        tag: impl Fn(&K) -> HostTag,
    ) {
        let mut before = std::mem::take(&mut self.hosts);
        for member in members {
            let same = self.hosts.iter_mut().find(|host| host.member.key == member.key);
            if let Some(Host { member: known, .. }) = same {
                known.weight = known.weight.saturating_add(member.weight);
                known.rank = known.rank.min(member.rank);
                continue;
            }
            let known = before.iter().position(|host| host.member.key == member.key);
            let host = match known.map(|at| before.swap_remove(at)) {
                Some(host) => Host { member: member.clone(), ..host },
                None => {
                    self.last_id += 1;
                    Host {
                        id: HostId(self.last_id),
                        tag: tag(&member.key),
                        value: value(&member.key),
                        member: member.clone(),
                        in_flight: 0,
                        failures: 0,
                        failed_checks: 0,
                        why: String::new(),
                        // If other hosts already work, a new host begins with a small share.
                        health: Health::Up(self.is_used.then_some(now)),
                        credit: 0.0,
                    }
                }
            };
            self.hosts.push(host);
        }
    }

    /// Chooses the host for the next request and counts the request until [`Self::end`]. Skips the
    /// hosts in `tried`. `None`: there is no other host.
    pub(super) fn choose(
        &mut self,
        tried: &[HostId],
        wish: &HostWish,
        now: Instant,
    ) -> Option<Chosen<V>> {
        let (at, by) = match self.hosts.as_slice() {
            // Most upstreams have one host, so there is nothing to compare.
            [only] if !tried.contains(&only.id) => (0, ChosenBy::Load),
            _ => match self.wished(tried, wish, now) {
                Some(wished) => wished,
                None => (self.least_busy(tried, now)?, ChosenBy::Load),
            },
        };
        self.is_used = true;
        let host = &mut self.hosts[at];
        host.in_flight += 1;
        if let Health::Down { pause, .. } = host.health {
            host.health = Health::OnTrial { pause };
        }
        Some(Chosen { id: host.id, value: host.value.clone(), tag: host.tag, by })
    }

    /// The index of the host that a request wishes for: the host of its cookie, whatever its rank,
    /// or the host with the largest claim on its key. `None`: it has no wish that can be met.
    fn wished(&self, tried: &[HostId], wish: &HostWish, now: Instant) -> Option<(usize, ChosenBy)> {
        let candidates = || {
            let hosts = self.hosts.iter().enumerate();
            hosts.filter(|(_, host)| host.may_be_chosen(now) && !tried.contains(&host.id))
        };
        let is_bound = |host: &Host<K, V>| wish.bound == Some(host.tag);
        if let Some((at, _)) = candidates().find(|(_, host)| is_bound(host)) {
            return Some((at, ChosenBy::Cookie));
        }
        let key = wish.key?;
        let rank = candidates().map(|(_, host)| host.member.rank).min()?;
        let claim = |host: &Host<K, V>| host.tag.claim(key, host.share(self.rules.slow_start, now));
        let claims = candidates()
            .filter(|(_, host)| host.member.rank == rank)
            .map(|(at, host)| (at, claim(host)));
        claims.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| (at, ChosenBy::Hash))
    }

    /// The index of the host that has the fewest requests for its weight.
    fn least_busy(&mut self, tried: &[HostId], now: Instant) -> Option<usize> {
        let slow_start = self.rules.slow_start;
        let candidates = || self.hosts.iter().enumerate().filter(|(_, h)| !tried.contains(&h.id));
        let up: Vec<_> = candidates()
            .filter(|(_, host)| host.may_be_chosen(now))
            .map(|(at, host)| (host.member.rank, host.load(slow_start, now), at))
            .collect();
        let least = up.iter().map(|(rank, load, _)| (*rank, *load)).min_by(by_load);
        let equals: Vec<usize> = up
            .iter()
            .filter(|(rank, load, _)| least.is_some_and(|of| by_load(&(*rank, *load), &of).is_eq()))
            .map(|(.., at)| *at)
            .collect();
        match equals.as_slice() {
            // All are down: the host that is due first.
            [] => candidates().min_by_key(|(_, host)| host.hope()).map(|(at, _)| at),
            [at] => Some(*at),
            _ => self.in_turn(&equals, now),
        }
    }

    /// The host among these equals whose turn it is.
    fn in_turn(&mut self, equals: &[usize], now: Instant) -> Option<usize> {
        let slow_start = self.rules.slow_start;
        let mut sum = 0.0;
        for at in equals {
            let share = self.hosts[*at].share(slow_start, now);
            self.hosts[*at].credit += share;
            sum += share;
        }
        let credit = |at: &usize| self.hosts[*at].credit;
        // Among hosts with the same credit, the first.
        let best = *equals.iter().rev().max_by(|a, b| credit(a).total_cmp(&credit(b)))?;
        self.hosts[best].credit -= sum;
        Some(best)
    }

    /// Judges a host by a request that may still be running. Returns the host's change between up
    /// and down, if any.
    pub(super) fn judge(
        &mut self,
        id: HostId,
        verdict: HealthEvidence,
        now: Instant,
    ) -> Option<HealthChange> {
        let rules = self.rules;
        let host = self.hosts.iter_mut().find(|host| host.id == id)?;
        match (verdict, host.health) {
            (HealthEvidence::Good, Health::Up(_)) => {
                host.failures = 0;
                None
            }
            // Requests may succeed although the check fails, for example at a host that is to be
            // taken out of service.
            (HealthEvidence::Good, Health::Unfit) => {
                host.failures = 0;
                None
            }
            (HealthEvidence::Good, health) => {
                host.failures = 0;
                host.why.clear();
                // Without a trial, the answer belongs to an older request: the host was never away.
                let is_new = matches!(health, Health::OnTrial { .. });
                host.health = Health::Up(is_new.then_some(now));
                // The host does not catch up on requests that it missed.
                host.credit = 0.0;
                Some(HealthChange::CameBack)
            }
            (HealthEvidence::Bad, Health::Up(_)) => {
                host.failures += 1;
                let is_down = host.failures >= rules.fails;
                is_down.then(|| {
                    host.health = Health::Down { until: now + rules.pause, pause: rules.pause };
                    HealthChange::WentDown
                })
            }
            (HealthEvidence::Bad, Health::OnTrial { pause }) => {
                host.failures += 1;
                let pause = (pause * 2).min(MAX_PAUSE.max(rules.pause));
                host.health = Health::Down { until: now + pause, pause };
                None
            }
            // The request was sent before the host went down.
            (HealthEvidence::Bad, Health::Down { .. } | Health::Unfit) => {
                host.failures += 1;
                None
            }
        }
    }

    /// Applies the result of a check. Returns the host's change between up and down, if any.
    pub(super) fn check(&mut self, id: HostId, passed: bool, now: Instant) -> Option<HealthChange> {
        let fails = self.rules.fails;
        let host = self.hosts.iter_mut().find(|host| host.id == id)?;
        host.failed_checks = if passed { 0 } else { host.failed_checks.saturating_add(1) };
        match (passed, &mut host.health) {
            (true, Health::Up(_) | Health::OnTrial { .. }) => None,
            (true, Health::Down { until, .. }) => {
                *until = now;
                None
            }
            (true, Health::Unfit) => {
                (host.failures, host.credit) = (0, 0.0);
                host.why.clear();
                host.health = Health::Up(Some(now));
                Some(HealthChange::CameBack)
            }
            (false, health) => {
                let was_up = matches!(health, Health::Up(_));
                if host.failed_checks < fails {
                    return None;
                }
                *health = Health::Unfit;
                was_up.then_some(HealthChange::WentDown)
            }
        }
    }

    /// Notes why a host is not up. Has no effect on a host that is up.
    pub(super) fn note_reason(&mut self, id: HostId, why: String) {
        let host = self.hosts.iter_mut().find(|host| host.id == id);
        if let Some(host) = host.filter(|host| !matches!(host.health, Health::Up(_))) {
            host.why = why;
        }
    }

    /// Notes that a host can be reached. If it is down, it gets a trial request at once: only an
    /// answer to a request brings it back.
    pub(super) fn note_reachable(&mut self, id: HostId, now: Instant) {
        let Some(host) = self.hosts.iter_mut().find(|host| host.id == id) else { return };
        if let Health::Down { until, .. } = &mut host.health {
            *until = now;
        }
    }

    /// Ends a request to a host. If the trial ends without a verdict, another request may be the
    /// trial.
    pub(super) fn end(&mut self, id: HostId, now: Instant) {
        let Some(host) = self.hosts.iter_mut().find(|host| host.id == id) else { return };
        host.in_flight -= 1;
        if let Health::OnTrial { pause } = host.health {
            host.health = Health::Down { until: now, pause };
        }
    }

    /// The states of all hosts, in the order of the list.
    pub(super) fn states(&self, now: Instant) -> Vec<(HostState<K>, V)> {
        let state = |host: &Host<K, V>| HostState {
            member: host.member.clone(),
            in_flight: host.in_flight,
            failures: host.failures,
            down_for: match host.health {
                Health::Up(_) => None,
                Health::Down { until, .. } => Some(until.saturating_duration_since(now)),
                Health::OnTrial { .. } | Health::Unfit => Some(Duration::ZERO),
            },
            awaits_check: host.health == Health::Unfit,
            why: host.why.clone(),
        };
        self.hosts.iter().map(|host| (state(host), host.value.clone())).collect()
    }

    /// The key of the host with this id.
    pub(super) fn key(&self, id: HostId) -> Option<&K> {
        self.hosts.iter().find(|host| host.id == id).map(|host| &host.member.key)
    }

    /// All hosts with their ids.
    pub(super) fn all(&self) -> impl Iterator<Item = (HostId, &V)> {
        self.hosts.iter().map(|host| (host.id, &host.value))
    }
}

/// A host's change between up and down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HealthChange {
    WentDown,
    CameBack,
}

impl<K, V> Host<K, V> {
    fn may_be_chosen(&self, now: Instant) -> bool {
        match self.health {
            Health::Up(_) => true,
            Health::Down { until, .. } => now >= until,
            Health::OnTrial { .. } | Health::Unfit => false,
        }
    }

    /// The order of hosts while none is up: a host on trial is most likely the first to be up, then
    /// come hosts that are down by the ends of their pauses, then unfit ones.
    fn hope(&self) -> (bool, Option<Instant>) {
        match self.health {
            Health::Down { until, .. } => (false, Some(until)),
            Health::Up(_) | Health::OnTrial { .. } => (false, None),
            Health::Unfit => (true, None),
        }
    }

    /// Its weight, reduced while the host comes back.
    fn share(&self, slow_start: Duration, now: Instant) -> f64 {
        let weight = f64::from(self.member.weight.max(1));
        match self.health {
            Health::Up(Some(since)) if !slow_start.is_zero() => {
                let part = now.duration_since(since).as_secs_f64() / slow_start.as_secs_f64();
                weight * part.clamp(FIRST_SHARE, 1.0)
            }
            Health::Up(_) | Health::Down { .. } | Health::OnTrial { .. } | Health::Unfit => weight,
        }
    }

    /// Requests in flight, divided by its share.
    fn load(&self, slow_start: Duration, now: Instant) -> f64 {
        // A number of requests that an f64 cannot represent does not fit into memory.
        #[expect(clippy::cast_precision_loss, reason = "see above")]
        let in_flight = self.in_flight as f64;
        in_flight / self.share(slow_start, now)
    }
}

/// By rank, then by load.
fn by_load(a: &(u16, f64), b: &(u16, f64)) -> Ordering {
    a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
}
