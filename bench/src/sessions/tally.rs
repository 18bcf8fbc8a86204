//! Counts of pages by quality of service.

use super::model::{Limits, Scenario};
use std::time::Duration;

/// A page type with fewer requests is judged only together with all others.
const ENOUGH: u64 = 100;

/// The end of a request for a page.
#[derive(Debug)]
pub(crate) enum Ending {
    /// All bytes were right.
    Right { time: Duration, bytes: u64 },
    /// All bytes of a download were right, or all bytes up to the end of the run.
    Downloaded { time: Duration, bytes: u64, limits: Limits },
    /// The server sent something else.
    Wrong(String),
    /// The connection broke, or the page did not end in time.
    Failed(String),
}

/// Pages of one type.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quality {
    pub(crate) good: u64,
    pub(crate) tolerable: u64,
    pub(crate) failed: u64,
    pub(crate) wrong: u64,
}

impl Quality {
    pub(crate) fn all(self) -> u64 {
        self.good + self.tolerable + self.failed + self.wrong
    }

    fn take(&mut self, time: Duration, limits: Limits) {
        match time {
            good if good <= limits.good => self.good += 1,
            tolerable if tolerable <= limits.tolerable => self.tolerable += 1,
            _ => self.failed += 1,
        }
    }

    /// 95 % good, 99 % tolerable or better, and nothing wrong.
    fn is_valid(self) -> bool {
        let all = self.all();
        self.wrong == 0
            && self.good * 100 >= all * 95
            && (self.good + self.tolerable) * 100 >= all * 99
    }
}

/// All pages of a run.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// By state.
    pages: Vec<Quality>,
    /// Times of right pages in ms.
    times: Vec<f64>,
    /// Bytes per second of right downloads.
    rates: Vec<f64>,
    pub(crate) bytes: u64,
    pub(crate) first_wrong: Option<String>,
    pub(crate) first_failed: Option<String>,
}

impl Tally {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self { pages: vec![Quality::default(); scenario.states.len()], ..Self::default() }
    }

    /// Adds a page or a download; `limits` are a page's.
    pub(crate) fn add(&mut self, state: usize, ending: Ending, limits: Limits) {
        let page = &mut self.pages[state];
        match ending {
            Ending::Right { time, bytes } => {
                self.bytes += bytes;
                self.times.push(time.as_secs_f64() * 1e3);
                page.take(time, limits);
            }
            Ending::Downloaded { time, bytes, limits } => {
                self.bytes += bytes;
                #[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
                self.rates.push(bytes as f64 / time.as_secs_f64());
                page.take(time, limits);
            }
            Ending::Wrong(why) => {
                page.wrong += 1;
                self.first_wrong.get_or_insert(why);
            }
            Ending::Failed(why) => {
                page.failed += 1;
                self.first_failed.get_or_insert(why);
            }
        }
    }

    pub(crate) fn sum(&self) -> Quality {
        self.pages.iter().fold(Quality::default(), |sum, page| Quality {
            good: sum.good + page.good,
            tolerable: sum.tolerable + page.tolerable,
            failed: sum.failed + page.failed,
            wrong: sum.wrong + page.wrong,
        })
    }

    /// True if each page type with enough requests, and all pages together, were answered well.
    pub(crate) fn is_valid(&self) -> bool {
        let mut judged = self.pages.iter().filter(|page| page.all() >= ENOUGH || page.wrong > 0);
        judged.all(|page| page.is_valid()) && self.sum().is_valid()
    }

    /// The time in ms that this share of the right pages took at most; `None` without any.
    pub(crate) fn percentile(&mut self, share: f64) -> Option<f64> {
        percentile(&mut self.times, share)
    }

    /// The bytes per second that this share of the right downloads had at most.
    pub(crate) fn rate_percentile(&mut self, share: f64) -> Option<f64> {
        percentile(&mut self.rates, share)
    }
}

fn percentile(values: &mut [f64], share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index into the list"
    )]
    let at = (values.len() as f64 * share) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_valid_by_its_worst_page() {
        let quality = |good, tolerable, failed, wrong| Quality { good, tolerable, failed, wrong };
        assert!(quality(950, 40, 10, 0).is_valid());
        assert!(!quality(949, 41, 10, 0).is_valid());
        assert!(!quality(950, 39, 11, 0).is_valid());
        assert!(!quality(1000, 0, 0, 1).is_valid());
        let valid =
            |pages: &[Quality]| Tally { pages: pages.to_vec(), ..Tally::default() }.is_valid();
        assert!(valid(&[quality(10_000, 0, 0, 0), quality(50, 0, 49, 0)]), "too few to judge");
        assert!(!valid(&[quality(10_000, 0, 0, 0), quality(50, 0, 50, 0)]));
        assert!(!valid(&[quality(50, 0, 49, 0)]), "judged together");
        assert!(!valid(&[quality(10_000, 0, 0, 0), quality(0, 0, 0, 1)]));
    }
}
