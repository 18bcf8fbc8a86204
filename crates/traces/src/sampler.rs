//! The choice of the requests whose spans are recorded.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A share in parts per million: all.
const ALL: u32 = 1_000_000;

/// The rules of sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// The share of recorded requests, in parts per million.
    pub per_million: u32,
    /// The most requests that are recorded per second, over any long time.
    pub most_per_second: u32,
}

/// The decision about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Its spans are recorded.
    Recorded,
    /// They are not.
    Unrecorded,
    /// They are not, because too many are.
    Limited,
}

/// Chooses requests. All event loops share it.
#[derive(Debug, Default)]
pub struct Sampler {
    /// The time at which a further burst may begin, in nanoseconds since [`START`].
    full: AtomicU64,
}

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Sampler {
    /// Decides about a request. `believed`: the decision of a caller that is trusted. The draw does
    /// not depend on the trace's id, which the client may have chosen.
    pub fn decide(&self, rules: Sampling, believed: Option<bool>) -> Decision {
        let is_wanted = believed.unwrap_or_else(|| fastrand::u32(..ALL) < rules.per_million);
        if !is_wanted {
            return Decision::Unrecorded;
        }
        let now = u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if self.take(rules.most_per_second, now) { Decision::Recorded } else { Decision::Limited }
    }

    /// Takes a token of a bucket that holds the tokens of one second (the virtual scheduling
    /// algorithm of ITU-T I.371).
    fn take(&self, per_second: u32, now: u64) -> bool {
        const SECOND: u64 = 1_000_000_000;
        let interval = SECOND / u64::from(per_second.max(1));
        let next = |full: u64| {
            let full = full.max(now);
            (full - now <= SECOND - interval).then_some(full + interval)
        };
        self.full.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(per_million: u32) -> Sampling {
        Sampling { per_million, most_per_second: 1_000_000 }
    }

    #[test]
    fn the_share_or_a_believed_caller_decides() {
        let sampler = Sampler::default();
        for (share, believed, expected) in [
            (0, None, Decision::Unrecorded),
            (ALL, None, Decision::Recorded),
            (0, Some(true), Decision::Recorded),
            (ALL, Some(false), Decision::Unrecorded),
        ] {
            assert_eq!(sampler.decide(rules(share), believed), expected, "{share} {believed:?}");
        }
        fastrand::seed(7);
        let recorded = (0..10_000)
            .filter(|_| sampler.decide(rules(100_000), None) == Decision::Recorded)
            .count();
        assert!((900..1100).contains(&recorded), "{recorded} of 10000");
    }

    #[test]
    fn a_second_has_a_bounded_number() {
        let (sampler, ms) = (Sampler::default(), |ms: u64| ms * 1_000_000);
        let taken = |at, times: usize| (0..times).filter(|_| sampler.take(100, ms(at))).count();
        assert_eq!([taken(0, 1000), taken(10, 9), taken(500, 1000)], [100, 1, 49]);
        assert_eq!(taken(60_000, 1000), 100, "a long pause saves no more than a second's");
    }
}
