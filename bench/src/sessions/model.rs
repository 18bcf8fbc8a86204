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

pub(crate) const fn file(size: usize, kept: f64) -> Embedded {
    Embedded { size, kept }
}

/// The answer to the request of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A page of a script that asks the back end this many times.
    Page { asks: usize },
    /// A picture of the item, sent by a script: the size of the first, and the step to the next.
    Picture { first: usize, step: usize },
    /// The item's file of class 0, which the web server sends.
    Download,
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
    /// Classes of the item's files that the page embeds.
    pub(crate) pictures: &'static [usize],
    /// The next state and its probability; the rest ends the session.
    pub(crate) next: &'static [(usize, f64)],
}

/// A page that embeds no file of an item.
pub(crate) const fn page(
    name: &'static str,
    padding: usize,
    asks: usize,
    embedded: &'static [u8],
    next: &'static [(usize, f64)],
) -> State {
    State { name, kind: Kind::Page { asks }, padding, embedded, pictures: &[], next }
}

/// The things of which a user chooses one: checks, products, downloads. They are numbered through
/// all groups.
#[derive(Debug)]
pub(crate) struct Items {
    /// The state in which a user chooses.
    pub(crate) chosen_at: usize,
    /// Items of a group.
    pub(crate) each: usize,
    /// Sizes of the items' own files: by class, then by item of a group.
    pub(crate) files: &'static [&'static [usize]],
    /// Chooses one item of this many groups.
    pub(crate) choose: fn(&mut fastrand::Rng, usize) -> usize,
}

/// The time after which a page is no longer good, or no longer tolerable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) good: Duration,
    pub(crate) tolerable: Duration,
}

impl Limits {
    /// For a download of this many bytes: 99 % and 95 % of the line's speed.
    pub(crate) fn of_download(bytes: u64, speed: u32) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
        let fastest = bytes as f64 / f64::from(speed);
        let at = |share| Duration::from_secs_f64(fastest / share);
        Self { good: at(0.99), tolerable: at(0.95) }
    }
}

/// One of the workloads.
#[derive(Debug)]
pub(crate) struct Scenario {
    /// The beginning of each page, a script.
    pub(crate) head: &'static str,
    /// Text before the padding.
    pub(crate) foot: &'static str,
    pub(crate) states: &'static [State],
    pub(crate) files: &'static [Embedded],
    pub(crate) items: Items,
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

    /// The size of a file of an item.
    pub(crate) fn size(&self, class: usize, item: usize) -> usize {
        self.items.files[class][item % self.items.each]
    }
}

#[cfg(test)]
mod tests {
    use super::super::published::{BANKING, ECOMMERCE, Published, SUPPORT};
    use super::*;

    const SESSIONS: usize = 100_000;

    /// Walks through the chain of a scenario, and compares it with the published figures.
    fn walk(published: &Published, per_session: f64, thinking: f64) {
        let scenario = published.scenario;
        let mut random = fastrand::Rng::with_seed(30);
        let mut counts = vec![0_u32; scenario.states.len()];
        let (mut looked_at, mut requests) = (0_u32, 0_u32);
        for _ in 0..SESSIONS {
            let mut state = Some(0);
            while let Some(at) = state {
                counts[at] += 1;
                requests += 1;
                state = scenario.next(at, &mut random);
                looked_at += u32::from(state.is_some() && scenario.is_looked_at(at));
            }
        }
        for ((state, published), &count) in
            scenario.states.iter().zip(published.shares).zip(&counts)
        {
            let share = f64::from(count) / f64::from(requests) * 100.0;
            assert!((share - published).abs() < 0.5, "{}: {share}", state.name);
        }
        let each = f64::from(requests) / SESSIONS as f64;
        assert!((each / per_session - 1.0).abs() < 0.01, "{each} requests per session");
        let share = f64::from(looked_at) / f64::from(requests) * 100.0;
        assert!((share - thinking).abs() < 0.5, "{share} % of the requests have think time");
    }

    #[test]
    fn chains_have_the_published_shares() {
        walk(&BANKING, 4.65, 61.58);
        walk(&ECOMMERCE, 12.4, 91.94);
        // Published are 92.08 %, which the published chain cannot have: a user looks at every page
        // but the download, the last one of 14.8 requests.
        walk(&SUPPORT, 14.8, 93.24);
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
