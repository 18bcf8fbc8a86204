//! A wanted certificate and its state.

use std::time::{Duration, Instant};

use sendoff_tls::{Credentials, Leaf, Obtained};

use crate::schedule::{Record, ends, may_order_alone, renew_at};
use crate::wanted::WantedCertificate;

/// Interval at which the log repeats a warning about a certificate, in seconds.
const DAY: u64 = 24 * 60 * 60;

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
pub(crate) struct ManagedCertificate {
    pub(crate) wanted: WantedCertificate,
    /// The last warning in the log, and its time.
    said: Option<(Concern, u64)>,
    /// The certificate in use, if it covers all names.
    pub(crate) have: Option<(Credentials, Leaf)>,
    pub(crate) renew_at: u64,
    /// The time of the next question about the renewal.
    pub(crate) ask_at: u64,
    /// The time since which the engine is away or refuses changes, while the certificate is due.
    away: Option<Instant>,
    /// The time since which another node has the lock, while the certificate is due.
    held: Option<Instant>,
}

impl ManagedCertificate {
    pub(crate) fn new(wanted: WantedCertificate) -> Self {
        Self { wanted, said: None, have: None, renew_at: 0, ask_at: 0, away: None, held: None }
    }

    pub(crate) fn ends(&self) -> Option<u64> {
        self.have.as_ref().map(|(_, leaf)| ends(leaf))
    }

    /// True if another certificate is wanted now, and an attempt may be made.
    pub(crate) fn is_due(&mut self, record: &Record, now: u64) -> bool {
        if self.have.is_some() && self.renew_at > now {
            self.shared();
            return false;
        }
        record.next_attempt(now) <= now
    }

    /// The engine has taken changes.
    pub(crate) fn shared(&mut self) {
        (self.away, self.held) = (None, None);
    }

    /// The engine has given the lock.
    pub(crate) fn locked(&mut self) {
        self.held = None;
    }

    /// The engine is away or refuses changes. Returns true if the node may order by itself.
    pub(crate) fn may_go_alone(&mut self, at: Instant, now: u64) -> bool {
        let away = at - *self.away.get_or_insert(at);
        may_order_alone(self.leaf(), away, now)
    }

    /// Another node has the lock. Returns the time for which it has.
    pub(crate) fn held_for(&mut self, at: Instant) -> Duration {
        at - *self.held.get_or_insert(at)
    }

    pub(crate) fn leaf(&self) -> Option<&Leaf> {
        self.have.as_ref().map(|(_, leaf)| leaf)
    }

    /// Notes in `said` that the log has told of a failed attempt.
    pub(crate) fn note_said(&mut self, record: &Record, now: u64) {
        self.said = self.concern(record, now).map(|concern| (concern, now));
    }

    fn concern(&self, record: &Record, now: u64) -> Option<Concern> {
        Concern::of(self.ends(), self.renew_at, record.obstacle(now).is_some(), now)
    }

    /// Logs a warning for the operator when its reason begins, and daily while it lasts.
    pub(crate) fn warn(&mut self, record: &Record, now: u64) {
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
                let wait = Duration::from_secs(record.next_attempt(now).saturating_sub(now));
                tracing::error!(names, "{says}: {why}; the next attempt is in {wait:?}");
            }
            None => tracing::error!(names, "{says}; another one is asked for"),
        }
    }

    /// Takes over the certificate from the folder.
    pub(crate) fn take(&mut self, obtained: &Obtained) {
        let names = &self.wanted.names;
        let best = obtained.best(names);
        let best = best.filter(|(_, leaf)| names.iter().all(|name| leaf.covers(name)));
        if self.leaf() == best.map(|(_, leaf)| leaf) {
            return;
        }
        self.have = best.map(|(credentials, leaf)| (credentials.clone(), leaf.clone()));
        self.renew_at = best.map_or(0, |(_, leaf)| renew_at(leaf));
        self.ask_at = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_a_change_that_the_engine_takes() {
        let wanted = WantedCertificate { names: vec!["a.test".to_owned()], methods: Vec::new() };
        let mut kept = ManagedCertificate::new(wanted);
        let (begun, record) = (Instant::now(), Record::default());
        let minutes = |minutes: u64| begun + Duration::from_secs(60 * minutes);
        assert!(kept.is_due(&record, 100));
        assert!(!kept.may_go_alone(minutes(0), 100) && !kept.may_go_alone(minutes(9), 100));
        assert_eq!(kept.held_for(minutes(9)), Duration::ZERO);
        kept.locked();
        assert_eq!(kept.held_for(minutes(10)), Duration::ZERO);
        assert!(kept.may_go_alone(minutes(10), 100), "the lock alone is no change");
        kept.shared();
        assert!(!kept.may_go_alone(minutes(11), 100));
        assert_eq!(kept.held_for(minutes(12)), Duration::ZERO);
        assert_eq!(kept.held_for(minutes(72)), Duration::from_secs(60 * 60));
    }

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
