//! Statements of papers as ratios, so that the results of a run confirm or contradict them.

use super::digest::spread;
use super::experiment::Value;
use super::results::Finished;
use crate::stats::Spread;

/// A statement of a paper about one measured value.
#[derive(Debug)]
pub(crate) struct Claim {
    /// The paper, the place in it, and the statement.
    pub(crate) says: &'static str,
    /// The part of the experiment, and the measured value.
    pub(crate) part: &'static str,
    pub(crate) value: &'static str,
    pub(crate) ratio: Ratio,
    /// The paper's own ratio, if it prints one.
    pub(crate) paper: Option<f64>,
    pub(crate) holds: Bound,
}

/// The ratio that a statement is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ratio {
    /// Of one server to another one at this point.
    Servers { x: f64, of: &'static str, to: &'static str },
    /// The same as a mean over all points.
    Everywhere { of: &'static str, to: &'static str },
    /// Of one point of a server to another point.
    Points { of: f64, to: f64, server: &'static str },
    /// Of the ratio of two servers at one point to their ratio at another one.
    Gains { x: f64, over: f64, of: &'static str, to: &'static str },
}

/// The ratios for which a statement holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    Above(f64),
    Below(f64),
    Within(f64, f64),
}

impl Bound {
    fn contains(self, ratio: f64) -> bool {
        match self {
            Self::Above(least) => ratio > least,
            Self::Below(most) => ratio < most,
            Self::Within(least, most) => (least..=most).contains(&ratio),
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Above(least) => write!(f, "above {least}"),
            Self::Below(most) => write!(f, "below {most}"),
            Self::Within(least, most) => write!(f, "{least} to {most}"),
        }
    }
}

/// The judgement of the results about a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Holds,
    DoesNotHold,
    /// Rounds contradict each other.
    Unclear,
    /// A figure is missing: its server failed, is not installed, or its point is not measured.
    Unknown,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Holds => "holds",
            Self::DoesNotHold => "does not hold",
            Self::Unclear => "unclear: rounds differ",
            Self::Unknown => "not measured",
        })
    }
}

/// A statement with the ratio of this run.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) says: &'static str,
    pub(crate) paper: Option<f64>,
    pub(crate) holds: Bound,
    pub(crate) measured: Option<Spread>,
    pub(crate) outcome: Outcome,
}

impl Claim {
    /// Compares the statement with these results.
    pub(crate) fn judge(&self, finished: &[Finished]) -> Verdict {
        let measured = self.measured(finished);
        let outcome = match measured {
            None => Outcome::Unknown,
            Some(ratio) => match (self.holds.contains(ratio.min), self.holds.contains(ratio.max)) {
                (true, true) => Outcome::Holds,
                (false, false) if !self.holds.contains(ratio.median) => Outcome::DoesNotHold,
                _ => Outcome::Unclear,
            },
        };
        let (says, paper, holds) = (self.says, self.paper, self.holds);
        Verdict { says, paper, holds, measured, outcome }
    }

    fn measured(&self, finished: &[Finished]) -> Option<Spread> {
        let points = || finished.iter().filter(|one| one.point.part == self.part);
        let at = |x: f64| points().find(|one| one.point.x == x);
        let servers = |point: &Finished, of: &str, to: &'static str| {
            let series = point.series.iter().find(|series| series.name == of)?;
            spread(Value::RatioTo(self.value, to), point, series)
        };
        match self.ratio {
            Ratio::Servers { x, of, to } => servers(at(x)?, of, to),
            Ratio::Everywhere { of, to } => {
                let all: Option<Vec<Spread>> =
                    points().map(|point| servers(point, of, to)).collect();
                mean(&all?)
            }
            Ratio::Points { of, to, server } => {
                let value = |x: f64| {
                    let point = at(x)?;
                    let series = point.series.iter().find(|series| series.name == server)?;
                    spread(Value::Of(self.value), point, series)
                };
                Some(ratio(value(of)?, value(to)?))
            }
            Ratio::Gains { x, over, of, to } => {
                Some(ratio(servers(at(x)?, of, to)?, servers(at(over)?, of, to)?))
            }
        }
    }
}

/// The ratio of figures that were not measured in the same rounds: every pair of them counts.
fn ratio(of: Spread, to: Spread) -> Spread {
    Spread { median: of.median / to.median, min: of.min / to.max, max: of.max / to.min }
}

fn mean(all: &[Spread]) -> Option<Spread> {
    let count = f64::from(u32::try_from(all.len()).ok().filter(|&count| count > 0)?);
    let of = |part: fn(&Spread) -> f64| all.iter().map(part).sum::<f64>() / count;
    Some(Spread { median: of(|s| s.median), min: of(|s| s.min), max: of(|s| s.max) })
}

#[cfg(test)]
mod tests {
    use super::super::results::{Point, Series, Values};
    use super::*;

    fn point(x: f64, rates: &[(&str, &[f64])]) -> Finished {
        let series = rates.iter().map(|&(name, rates)| Series {
            name: name.into(),
            rounds: rates.iter().map(|&r| Values::from([("rate".to_owned(), r)])).collect(),
            error: None,
        });
        Finished { point: Point::new("p", x, ""), series: series.collect() }
    }

    fn judge(ratio: Ratio, holds: Bound, finished: &[Finished]) -> (Option<f64>, Outcome) {
        let claim = Claim { says: "", part: "p", value: "rate", ratio, paper: None, holds };
        let verdict = claim.judge(finished);
        (verdict.measured.map(|spread| spread.median), verdict.outcome)
    }

    #[test]
    fn statements_are_judged_by_every_round() {
        let results = [
            point(1.0, &[("old", &[10.0, 20.0]), ("new", &[20.0, 40.0])]),
            point(2.0, &[("old", &[10.0, 10.0]), ("new", &[8.0, 12.0])]),
        ];
        let at = |x| Ratio::Servers { x, of: "new", to: "old" };
        assert_eq!(judge(at(1.0), Bound::Above(1.0), &results), (Some(2.0), Outcome::Holds));
        assert_eq!(judge(at(1.0), Bound::Below(1.0), &results), (Some(2.0), Outcome::DoesNotHold));
        assert_eq!(judge(at(2.0), Bound::Above(1.0), &results), (Some(1.0), Outcome::Unclear));
        // The outer rounds contradict each other, although the median agrees.
        let near = Bound::Within(0.9, 1.1);
        assert_eq!(judge(at(2.0), near, &results), (Some(1.0), Outcome::Unclear));
        assert_eq!(judge(at(3.0), Bound::Above(1.0), &results), (None, Outcome::Unknown));
    }

    #[test]
    fn ratios_over_points_and_their_means() {
        let results = [
            point(1.0, &[("old", &[10.0]), ("new", &[30.0])]),
            point(2.0, &[("old", &[20.0]), ("new", &[20.0])]),
        ];
        let above = Bound::Above(1.0);
        let mean = Ratio::Everywhere { of: "new", to: "old" };
        assert_eq!(judge(mean, above, &results).0, Some(2.0));
        let points = Ratio::Points { of: 2.0, to: 1.0, server: "old" };
        assert_eq!(judge(points, above, &results).0, Some(2.0));
        let gains = Ratio::Gains { x: 1.0, over: 2.0, of: "new", to: "old" };
        assert_eq!(judge(gains, above, &results).0, Some(3.0));
        // A server that failed has no mean.
        let mut failed = results.to_vec();
        failed[1].series[1].error = Some("it ended".into());
        assert_eq!(judge(mean, above, &failed), (None, Outcome::Unknown));
        assert_eq!(judge(mean, above, &[]), (None, Outcome::Unknown));
    }
}
