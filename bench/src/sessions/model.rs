//! A web workload as a Markov chain of pages. The parameters are published ones; the pages and
//! everything else are our own, so no figure measured with them is a SPEC result.

use std::time::Duration;

/// A file that pages embed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Embedded {
    pub(crate) size: usize,
    /// Share of the requests that are conditional, and answered by 304.
    pub(crate) kept: f64,
}

/// The program behind a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A page that asks the back end this many times.
    Page { asks: usize },
    /// A picture of a check, sent by a script: the size of the first, and the step to the next.
    Picture { first: usize, step: usize },
}

/// A state of a session: the request for one page.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Bytes of text from a file at the end of the page.
    pub(crate) padding: usize,
    /// Indices of the files that the page embeds.
    pub(crate) embedded: &'static [u8],
    /// The next state and its probability; the rest ends the session.
    pub(crate) next: &'static [(usize, f64)],
}

/// The time after which a page is no longer good, or no longer tolerable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) good: Duration,
    pub(crate) tolerable: Duration,
}

/// One of the workloads.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) states: &'static [State],
    pub(crate) files: &'static [Embedded],
    pub(crate) limits: Limits,
    pub(crate) think: Think,
}

/// Time for which a user looks at a page: exponential, cut off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Think {
    pub(crate) mean: Duration,
    pub(crate) longest: Duration,
}

impl Think {
    pub(crate) fn sample(self, random: &mut fastrand::Rng) -> Duration {
        // 1 - u is in (0, 1], so the logarithm is finite.
        self.mean.mul_f64(-(1.0 - random.f64()).ln()).min(self.longest)
    }
}

impl Scenario {
    /// The state after `state`; `None` if the session ends.
    pub(crate) fn next(&self, state: usize, random: &mut fastrand::Rng) -> Option<usize> {
        let mut left = random.f64();
        self.states[state].next.iter().find_map(|&(next, probability)| {
            left -= probability;
            (left < 0.0).then_some(next)
        })
    }

    /// True if a user looks at the page of this state before the next request. The browser itself
    /// asks for both pictures of a check.
    pub(crate) fn is_looked_at(&self, state: usize) -> bool {
        let leads_to_picture =
            |&(next, _): &(usize, f64)| matches!(self.states[next].kind, Kind::Picture { .. });
        !self.states[state].next.iter().any(leads_to_picture)
    }
}

#[cfg(test)]
mod tests {
    use super::super::banking::{BANKING, SHARES};
    use super::*;

    const SESSIONS: usize = 100_000;

    #[test]
    fn the_chain_has_the_published_shares() {
        let mut random = fastrand::Rng::with_seed(30);
        let mut counts = vec![0_u32; BANKING.states.len()];
        let (mut looked_at, mut requests) = (0_u32, 0_u32);
        for _ in 0..SESSIONS {
            let mut state = Some(0);
            while let Some(at) = state {
                counts[at] += 1;
                requests += 1;
                state = BANKING.next(at, &mut random);
                looked_at += u32::from(state.is_some() && BANKING.is_looked_at(at));
            }
        }
        for ((state, published), &count) in BANKING.states.iter().zip(SHARES).zip(&counts) {
            let share = f64::from(count) / f64::from(requests) * 100.0;
            assert!((share - published).abs() < 0.5, "{}: {share}", state.name);
        }
        let per_session = f64::from(requests) / SESSIONS as f64;
        assert!((per_session - 4.65).abs() < 0.05, "{per_session} requests per session");
        let share = f64::from(looked_at) / f64::from(requests) * 100.0;
        assert!((share - 61.58).abs() < 0.5, "{share} % of the requests have think time");
    }

    #[test]
    fn think_time_is_exponential() {
        const SAMPLES: usize = 100_000;
        let think = Think { mean: Duration::from_secs(10), longest: Duration::from_secs(150) };
        let mut random = fastrand::Rng::with_seed(7);
        let mut times: Vec<f64> =
            (0..SAMPLES).map(|_| think.sample(&mut random).as_secs_f64()).collect();
        times.sort_by(f64::total_cmp);
        // Kolmogorov and Smirnov: 1.95 stands for a level of 0.1 %.
        let model = |time: f64| 1.0 - (-time / 10.0).exp();
        let farthest = (0_u32..).zip(&times).map(|(rank, &time)| {
            let rank = f64::from(rank);
            let below = (model(time) - rank / SAMPLES as f64).abs();
            below.max((model(time) - (rank + 1.0) / SAMPLES as f64).abs())
        });
        let farthest = farthest.fold(0.0, f64::max);
        assert!(farthest < 1.95 / (SAMPLES as f64).sqrt(), "{farthest}");
        assert!(times.iter().all(|&time| time <= 150.0));
    }
}
