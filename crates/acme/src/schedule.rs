//! The times of attempts. Time and randomness are passed in as numbers, so that this module never
//! waits.
//!
//! ```text
//!            due              attempt
//!  resting ───────▶ waiting ─────────▶ stored ──▶ resting until `renew_at`
//!                      ▲                 │
//!                      └── not before ◀── failed
//! ```

use std::time::Duration;

use sendoff_tls::Leaf;
use serde::{Deserialize, Serialize};

use crate::trouble::{FailureKind, Trouble};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;

/// The most attempts per hour in which names are checked. Let's Encrypt allows five failures per
/// name and hour.
const VALIDATIONS_PER_HOUR: usize = 4;

/// The pause after the first failure of a kind, and the longest pause; it doubles with each
/// failure.
const UNREACHABLE: [u64; 2] = [MINUTE, HOUR];
const REFUSED: [u64; 2] = [5 * MINUTE, 12 * HOUR];
const LIMITED: [u64; 2] = [HOUR, 24 * HOUR];
const HERE: [u64; 2] = [10, 5 * MINUTE];

/// The pause before the names are proven by another method.
const OTHER_METHOD: u64 = 10;

/// The shortest time between two certificates, in seconds.
const SHORTEST_REST: u64 = 5;

/// The longest wait that an authority may demand: a limit for the authority's mistakes.
const LONGEST_WAIT: u64 = 7 * 24 * HOUR;

/// The largest difference between the clocks of two nodes. A record whose wait goes on for longer
/// than [`LONGEST_WAIT`] and this time was made by a wrong clock.
const CLOCKS_DIFFER: u64 = HOUR;

/// The time for which a node of a fleet without a valid certificate waits for the engine: until
/// then, the certificate of another node may come.
const WAIT_FOR_NODES: Duration = Duration::from_secs(10 * 60);

/// The time for which a node waits for a lock that another one holds: twice the longest attempt.
const WAIT_FOR_LOCK: Duration = Duration::from_secs(HOUR);

/// The record of the attempts for one certificate. Servers with the same folder share it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Record {
    /// The times of the checks of names within the last hour.
    validations: Vec<u64>,
    /// Attempts since the last success that the authority let fail.
    failures: u32,
    /// Attempts among `failures` in which names could not be proven.
    unproven: u32,
    /// The time before which no attempt is made.
    not_before: u64,
    /// The number of the next method.
    method: usize,
    /// The reason why the last attempt failed.
    error: Option<String>,
    /// An order that may continue after a crash.
    pub(crate) pending: Option<Pending>,
    /// The node of the fleet that has obtained the certificate; `None`: the server is alone.
    pub(crate) by: Option<String>,
    /// The failures of this node, which other nodes do not take over.
    own: OwnFailures,
}

/// Failures for which the authority is not to blame, since it answered last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct OwnFailures {
    count: u32,
    /// The time before which this node makes no attempt.
    not_before: u64,
    /// The reason why the last attempt failed.
    error: Option<String>,
}

/// An order that waits for its certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pending {
    /// Its URL.
    pub(crate) order: String,
    /// The key of the certificate, in PEM.
    pub(crate) key: String,
}

impl Record {
    /// The time of the next attempt. Times that a wrong clock has noted count for nothing.
    pub(crate) fn next_attempt(&self, now: u64) -> u64 {
        let waits = [self.not_before, self.own.not_before].map(|until| plausible(until, now));
        waits[0].max(waits[1]).max(self.limited_until(now))
    }

    /// The reason why the last attempt failed.
    pub(crate) fn error(&self) -> Option<&str> {
        self.own.error.as_deref().or(self.error.as_deref())
    }

    fn limited_until(&self, now: u64) -> u64 {
        let mut lately = self.validations.iter().rev().filter(|at| at.abs_diff(now) < HOUR);
        lately.nth(VALIDATIONS_PER_HOUR - 1).map_or(0, |first| first + HOUR)
    }

    /// The reason why no attempt is made at this time; `None` if an attempt may be made, or the
    /// last one succeeded a short while ago.
    pub(crate) fn obstacle(&self, now: u64) -> Option<String> {
        match self.error() {
            Some(error) if self.next_attempt(now) > now => {
                Some(format!("the last attempt failed: {error}"))
            }
            None if self.limited_until(now) > now => {
                Some(format!("its names were checked {VALIDATIONS_PER_HOUR} times within an hour"))
            }
            Some(_) | None => None,
        }
    }

    /// The number of the next attempt's method, below `methods`.
    pub(crate) fn method(&self, methods: usize) -> usize {
        self.method % methods.max(1)
    }

    /// Notes that names are about to be checked.
    pub(crate) fn validates(&mut self, now: u64) {
        self.validations.retain(|at| at.abs_diff(now) < HOUR);
        self.validations.push(now);
    }

    /// The part that concerns all nodes.
    pub(crate) fn of_all(&self) -> Self {
        Self { own: OwnFailures::default(), ..self.clone() }
    }

    /// The record of another node, with the failures of this node, and with the checks of names that
    /// it has noted as well: they count for both.
    pub(crate) fn taken_by(mut self, own: &Self, now: u64) -> Self {
        self.own = own.own.clone();
        self.validations.extend(&own.validations);
        self.validations.retain(|at| at.abs_diff(now) < HOUR);
        self.validations.sort_unstable();
        self.validations.dedup();
        if plausible(self.not_before, now) == 0 {
            self.not_before = plausible(own.not_before, now);
        }
        self
    }

    /// Another node has obtained the certificate, so the failures of this node are over.
    pub(crate) fn served_by_another(&mut self) {
        self.own = OwnFailures::default();
    }

    /// The last failure concerns this node alone: it has asked without the others.
    pub(crate) fn keep_to_node(&mut self) {
        if self.own.error.is_none() {
            self.own.not_before = self.not_before;
            self.own.error.clone_from(&self.error);
        }
    }

    /// Notes a failure, and computes the time of the next attempt. `methods`: the number of
    /// methods; `chance`: between 0 and 1.
    pub(crate) fn failed(&mut self, trouble: &Trouble, methods: usize, now: u64, chance: f64) {
        let is_own = trouble.kind.is_of_node();
        if !is_own {
            self.own = OwnFailures::default();
        }
        let count = if is_own { &mut self.own.count } else { &mut self.failures };
        *count = count.saturating_add(1);
        let count = *count;
        let [first, longest] = match trouble.kind {
            FailureKind::Unreachable => UNREACHABLE,
            FailureKind::Limited => LIMITED,
            FailureKind::Validation | FailureKind::Refused => REFUSED,
            FailureKind::Here => HERE,
        };
        let doubled = first.saturating_mul(1 << (count - 1).min(16)).min(longest);
        let mut wait = doubled + part(doubled, chance / 4.0);
        if trouble.kind == FailureKind::Validation {
            self.method = (self.method(methods) + 1) % methods.max(1);
            self.unproven = self.unproven.saturating_add(1);
            if usize::try_from(self.unproven).is_ok_and(|tried| tried < methods) {
                wait = OTHER_METHOD;
            }
        }
        let wait = wait.max(trouble.retry_after.unwrap_or(0)).min(LONGEST_WAIT);
        let (not_before, error) = if is_own {
            (&mut self.own.not_before, &mut self.own.error)
        } else {
            (&mut self.not_before, &mut self.error)
        };
        (*not_before, *error) = (now + wait, Some(trouble.says.clone()));
    }

    /// Notes a new certificate. The limit is one certificate per hour, even if an authority asks
    /// for renewals more often, and a pause of a quarter of the lifetime for certificates that live
    /// for a shorter time. `by`: the node of a fleet that has obtained it.
    pub(crate) fn succeeded(&mut self, leaf: &Leaf, now: u64, by: Option<String>) {
        let Self { validations, method, .. } = std::mem::take(self);
        *self = Self {
            validations,
            method,
            not_before: now + (lifetime(leaf) / 4).clamp(SHORTEST_REST, HOUR),
            by,
            ..Self::default()
        };
    }
}

/// The end of a wait; 0 if a wrong clock has noted it.
fn plausible(not_before: u64, now: u64) -> u64 {
    if not_before > now + LONGEST_WAIT + CLOCKS_DIFFER { 0 } else { not_before }
}

/// True if a node of a fleet orders a certificate although the engine has been `away`, or has
/// refused changes, for this time: a sixth of the lifetime is left, half of the time that is left
/// when renewals begin, or there is no valid certificate (`None`). Later, clients would soon be
/// refused; earlier, each node would order what one order gives to all, and authorities allow few
/// certificates for the same names per week (Let's Encrypt: five).
pub(crate) fn may_order_alone(leaf: Option<&Leaf>, away: Duration, now: u64) -> bool {
    match leaf {
        Some(leaf) if ends(leaf) > now => ends(leaf).saturating_sub(lifetime(leaf) / 6) <= now,
        _ => away >= WAIT_FOR_NODES,
    }
}

/// True if a lock that another node has `held` for this time is no longer one of an attempt.
pub(crate) fn is_held_too_long(held: Duration) -> bool {
    held >= WAIT_FOR_LOCK
}

/// True if a certificate was issued later than another one, or if there is none.
pub(crate) fn is_newer(leaf: &Leaf, than: Option<&Leaf>) -> bool {
    than.is_none_or(|than| issued(leaf) > issued(than))
}

/// The order of certificates.
pub(crate) fn issued(leaf: &Leaf) -> (i64, i64) {
    (leaf.begins, leaf.ends)
}

/// The end of a certificate's validity, in seconds since 1970.
pub(crate) fn ends(leaf: &Leaf) -> u64 {
    seconds(leaf.ends)
}

/// A share of a number of seconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "seconds of some years, and a share between 0 and 1"
)]
fn part(seconds: u64, share: f64) -> u64 {
    (seconds as f64 * share.clamp(0.0, 1.0)) as u64
}

fn seconds(time: i64) -> u64 {
    u64::try_from(time).unwrap_or(0)
}

fn lifetime(leaf: &Leaf) -> u64 {
    seconds(leaf.ends).saturating_sub(seconds(leaf.begins))
}

/// The renewal time of a certificate without a suggestion of the authority: when a third of its
/// lifetime is left.
pub(crate) fn renew_at(leaf: &Leaf) -> u64 {
    seconds(leaf.ends).saturating_sub(lifetime(leaf) / 3)
}

/// The renewal time of a certificate for which the authority suggests a window (RFC 9773 §4.2): a
/// random time within the window, but at the latest when a tenth of the lifetime is left. `chance`:
/// between 0 and 1.
pub(crate) fn renew_within(leaf: &Leaf, window: [i64; 2], chance: f64) -> u64 {
    let [start, end] = window.map(seconds);
    let suggested = start + part(end.saturating_sub(start), chance);
    suggested.min(seconds(leaf.ends).saturating_sub(lifetime(leaf) / 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000_000;

    fn trouble(kind: FailureKind) -> Trouble {
        Trouble { kind, says: "it failed".to_owned(), retry_after: None }
    }

    fn leaf(begins: u64, ends: u64) -> Leaf {
        let time = |seconds| i64::try_from(seconds).unwrap();
        Leaf { names: Vec::new(), begins: time(begins), ends: time(ends) }
    }

    #[test]
    fn checks_of_names_fail_at_most_four_times_per_hour() {
        for chance in [0.0, 0.5, 1.0] {
            for (kind, restarts) in [(FailureKind::Validation, false), (FailureKind::Here, true)] {
                let (mut record, mut now, mut attempts) = (Record::default(), NOW, Vec::new());
                while now < NOW + 4 * HOUR {
                    now = now.max(record.next_attempt(now));
                    record.validates(now);
                    attempts.push(now);
                    // A killed process notes no failure.
                    if !restarts {
                        record.failed(&trouble(kind), 2, now, chance);
                    }
                    now += 1;
                }
                for window in attempts.windows(5) {
                    assert!(window[4] - window[0] >= HOUR, "{window:?}");
                }
                assert!(attempts.len() >= 6, "{attempts:?}");
            }
        }
    }

    #[test]
    fn the_other_method_comes_soon_and_pauses_grow() {
        let mut record = Record::default();
        assert_eq!(record.next_attempt(NOW), 0);
        let mut waits = Vec::new();
        for _ in 0..12 {
            record.failed(&trouble(FailureKind::Validation), 2, NOW, 0.0);
            waits.push((record.method(2), record.next_attempt(NOW) - NOW));
        }
        assert_eq!(waits[..4], [(1, 10), (0, 600), (1, 1200), (0, 2400)]);
        assert_eq!(waits[11].1, 12 * HOUR);
        let mut later = Record::default();
        later.failed(&trouble(FailureKind::Unreachable), 2, NOW, 0.0);
        later.failed(&trouble(FailureKind::Validation), 2, NOW, 0.0);
        assert_eq!((later.method(2), later.next_attempt(NOW) - NOW), (1, 10));
        let mut only = Record::default();
        only.failed(&trouble(FailureKind::Validation), 1, NOW, 1.0);
        assert_eq!((only.method(1), only.next_attempt(NOW) - NOW), (0, 375));
        assert_eq!(only.error(), Some("it failed"));
    }

    #[test]
    fn an_attempt_that_waits_has_a_reason() {
        let mut record = Record::default();
        assert_eq!(record.obstacle(NOW), None);
        (0..4).for_each(|_| record.validates(NOW));
        assert!(record.obstacle(NOW).unwrap().contains("4 times"));
        assert_eq!(record.obstacle(NOW + HOUR), None);
        record.failed(&trouble(FailureKind::Refused), 1, NOW, 0.0);
        assert!(record.obstacle(NOW).unwrap().contains("it failed"));
        record.succeeded(&leaf(NOW, NOW + 90 * 24 * HOUR), NOW + HOUR, None);
        assert_eq!(record.obstacle(NOW + HOUR), None, "a rest after a success is none");
    }

    #[test]
    fn the_authority_says_how_long_to_wait() {
        let mut record = Record::default();
        let later = |wait| Trouble { retry_after: Some(wait), ..trouble(FailureKind::Limited) };
        record.failed(&later(36 * HOUR), 1, NOW, 0.0);
        assert_eq!(record.next_attempt(NOW), NOW + 36 * HOUR);
        record.failed(&later(u64::MAX), 1, NOW, 0.0);
        assert_eq!(record.next_attempt(NOW), NOW + LONGEST_WAIT);
        let mut soon = Record::default();
        soon.failed(&later(1), 1, NOW, 0.0);
        assert_eq!(soon.next_attempt(NOW), NOW + HOUR);
    }

    #[test]
    fn an_unreachable_authority_is_asked_again_within_the_hour() {
        let mut record = Record::default();
        for _ in 0..100 {
            record.failed(&trouble(FailureKind::Unreachable), 2, NOW, 1.0);
        }
        assert_eq!(record.next_attempt(NOW) - NOW, HOUR + HOUR / 4);
        assert_eq!(record.method(2), 0, "the method is not to blame");
    }

    #[test]
    fn a_success_ends_the_pauses() {
        let mut record = Record::default();
        record.failed(&trouble(FailureKind::Validation), 2, NOW, 0.0);
        record.pending = Some(Pending { order: String::new(), key: String::new() });
        record.succeeded(&leaf(NOW, NOW + 90 * 24 * HOUR), NOW, None);
        assert_eq!((record.error(), record.pending.clone()), (None, None));
        assert_eq!(record.next_attempt(NOW), NOW + HOUR, "renewals are an hour apart");
        assert_eq!(record.method(2), 1, "what has worked is used again");
        record.succeeded(&leaf(NOW + 10, NOW), NOW, None);
        assert_eq!(
            record.next_attempt(NOW),
            NOW + SHORTEST_REST,
            "an authority that lies is not asked for ever"
        );
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
    }

    #[test]
    fn checks_of_names_count_for_all_nodes() {
        let [mut own, mut shared] = [(); 2].map(|()| Record::default());
        own.validates(NOW - 2 * HOUR);
        own.validates(NOW - 30);
        own.validates(NOW - 20);
        shared.validates(NOW - 30);
        shared.validates(NOW + 5);
        let taken = shared.taken_by(&own, NOW);
        assert_eq!(taken.validations, [NOW - 30, NOW - 20, NOW + 5]);
    }

    #[test]
    fn failures_of_a_node_do_not_make_the_others_wait() {
        for kind in [FailureKind::Unreachable, FailureKind::Here] {
            let [mut own, other] = [(); 2].map(|()| Record::default());
            own.failed(&trouble(kind), 1, NOW, 0.0);
            own.failed(&trouble(kind), 1, NOW, 0.0);
            let text = serde_json::to_string(&own.of_all()).unwrap();
            let shared: Record = serde_json::from_str(&text).unwrap();
            let taken = shared.clone().taken_by(&other, NOW);
            assert_eq!((taken.next_attempt(NOW), taken.error()), (0, None), "{kind:?}");
            let mut kept = shared.taken_by(&own, NOW);
            assert!(kept.next_attempt(NOW) >= NOW + 20 && kept.error().is_some(), "{kind:?}");
            kept.served_by_another();
            assert_eq!((kept.next_attempt(NOW), kept.error()), (0, None), "{kind:?}");
        }
        for kind in [FailureKind::Limited, FailureKind::Refused, FailureKind::Validation] {
            let [mut own, other] = [(); 2].map(|()| Record::default());
            own.failed(&trouble(FailureKind::Here), 1, NOW, 0.0);
            own.failed(&trouble(kind), 1, NOW, 0.0);
            let taken = own.of_all().taken_by(&other, NOW);
            assert_eq!(taken, own, "{kind:?}");
            assert!(taken.next_attempt(NOW) >= NOW + 300, "{kind:?}");
            // A node that asks alone keeps its wait.
            own.keep_to_node();
            let kept = other.taken_by(&own, NOW);
            assert_eq!(kept.next_attempt(NOW), own.next_attempt(NOW), "{kind:?}");
        }
    }

    #[test]
    fn a_wrong_clock_does_not_stop_the_attempts() {
        let far = NOW + 1000 * HOUR;
        let [mut own, mut shared] = [(); 2].map(|()| Record::default());
        shared.failed(&trouble(FailureKind::Refused), 1, far, 0.0);
        let taken = shared.clone().taken_by(&own, NOW);
        assert_eq!(taken.next_attempt(NOW), 0);
        own.failed(&trouble(FailureKind::Refused), 1, NOW, 0.0);
        let taken = shared.clone().taken_by(&own, NOW);
        assert_eq!(taken.next_attempt(NOW), own.not_before, "the wait of this node counts");
        assert_eq!(shared.clone().taken_by(&taken, NOW + 10), taken);
        // This machine's clock was wrong.
        (0..4).for_each(|_| shared.validates(far));
        assert_eq!((shared.next_attempt(NOW), shared.obstacle(NOW)), (0, None));
        shared.not_before = NOW + LONGEST_WAIT + 60;
        assert_eq!(shared.next_attempt(NOW), shared.not_before, "clocks differ a little");
    }

    #[test]
    fn a_node_orders_alone_only_before_clients_would_be_refused() {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        assert!(!may_order_alone(None, minutes(9), NOW));
        assert!(may_order_alone(None, minutes(10), NOW));
        let leaf = leaf(NOW, NOW + 600);
        for (after, away, expected) in
            [(0, 99, false), (499, 99, false), (500, 0, true), (599, 0, true), (600, 9, false)]
        {
            let alone = may_order_alone(Some(&leaf), minutes(away), NOW + after);
            assert_eq!(alone, expected, "{after} {away}");
        }
    }

    #[test]
    fn a_lock_is_waited_for_longer_than_an_attempt_takes() {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        assert!(!is_held_too_long(minutes(59)) && is_held_too_long(minutes(60)));
    }

    #[test]
    fn the_certificate_of_an_old_order_is_not_newer() {
        let [old, new] = [0, 10].map(|later| leaf(NOW + later, NOW + 600 + later));
        assert!(is_newer(&new, Some(&old)) && is_newer(&old, None));
        assert!(!is_newer(&old, Some(&old)) && !is_newer(&old, Some(&new)));
    }

    #[test]
    fn certificates_are_renewed_in_time() {
        let (day, year) = (24 * HOUR, leaf(NOW, NOW + 90 * 24 * HOUR));
        assert_eq!(renew_at(&year), NOW + 60 * day);
        let window = |from: u64, to: u64| {
            [NOW + from * day, NOW + to * day].map(|time| i64::try_from(time).unwrap())
        };
        assert_eq!(renew_within(&year, window(50, 52), 0.5), NOW + 51 * day);
        assert_eq!(renew_within(&year, window(50, 50), 1.0), NOW + 50 * day);
        assert_eq!(renew_within(&year, window(200, 300), 0.5), NOW + 81 * day);
        assert_eq!(renew_within(&year, [-5, -3], 0.5), 0, "at once");
        assert_eq!(renew_at(&leaf(NOW + 5, NOW)), NOW, "a certificate without sense");
    }
}
