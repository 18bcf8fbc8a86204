//! Paired measurement: within a round every server runs the same workload for the same time, one
//! after the other, so that other load on the machine affects all of them in the same way. Only
//! ratios within a round are compared.

use crate::cpu;
use crate::load::{Client, Limit, Outcome, Persistence, Target};
use crate::peers::Running;
use crate::site::Workload;
use crate::stats::Spread;
use anyhow::Result;
use std::time::Duration;

/// A running server, with the title of its columns.
pub(crate) struct Contestant {
    pub(crate) name: String,
    pub(crate) running: Running,
}

/// The parameters of the measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    /// Length of each run.
    pub(crate) time: Duration,
    pub(crate) connections: usize,
    pub(crate) persistence: Persistence,
    pub(crate) read_all: bool,
}

/// One run of one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Responses per second.
    pub(crate) rate: f64,
    /// CPU time per response in µs, user and system together.
    pub(crate) front_us: f64,
    pub(crate) worker_us: f64,
    pub(crate) client_us: f64,
}

impl Sample {
    pub(crate) fn server_us(&self) -> f64 {
        self.front_us + self.worker_us
    }
}

/// All runs of one server for one workload.
#[derive(Debug, Default)]
pub(crate) struct Series {
    /// By round; `None` for a failed run.
    pub(crate) samples: Vec<Option<Sample>>,
    pub(crate) failures: Vec<String>,
}

impl Series {
    /// Median and spread of one value over the rounds; `None` if any round failed.
    pub(crate) fn spread(&self, value: impl Fn(&Sample) -> f64) -> Option<Spread> {
        if !self.failures.is_empty() {
            return None;
        }
        Spread::of(self.samples.iter().flatten().map(value))
    }

    /// Median and spread of the ratio of `value` in this series to `value` in `reference`, within
    /// each round.
    pub(crate) fn ratio(&self, reference: &Self, value: impl Fn(&Sample) -> f64) -> Option<Spread> {
        if !self.failures.is_empty() || !reference.failures.is_empty() {
            return None;
        }
        let pairs = self.samples.iter().zip(&reference.samples);
        Spread::of(
            pairs.filter_map(|(own, other)| Some(value(own.as_ref()?) / value(other.as_ref()?))),
        )
    }
}

/// A workload with one series for each contestant, in their order.
pub(crate) struct Measured {
    pub(crate) workload: &'static Workload,
    pub(crate) series: Vec<Series>,
}

/// Measures one workload on all contestants.
pub(crate) fn measure(
    workload: &'static Workload,
    contestants: &[Contestant],
    plan: Plan,
) -> Measured {
    let (path, body) = (workload.path(), workload.body());
    let mut series: Vec<Series> = contestants.iter().map(|_| Series::default()).collect();
    for round in 0..plan.rounds {
        let mut order: Vec<usize> = (0..contestants.len()).collect();
        // The second server profits from warm caches, so the order alternates.
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            if !series[index].failures.is_empty() {
                // Not repeated after a failure: a hanging server would cost a long wait each time.
                continue;
            }
            let contestant = &contestants[index];
            let target = Target { addr: contestant.running.addr, path: &path, body: &body };
            let connections = plan.connections.min(workload.connections());
            let plan = Plan { connections, ..plan };
            match one_run(target, &contestant.running.roots(), plan) {
                Ok(sample) => series[index].samples.push(Some(sample)),
                Err(error) => {
                    series[index].samples.push(None);
                    let messages = contestant.running.last_messages();
                    series[index].failures.push(format!("{error:#}; last messages:{messages}"));
                }
            }
        }
    }
    Measured { workload, series }
}

pub(crate) fn one_run(target: Target<'_>, roots: &[u32], plan: Plan) -> Result<Sample> {
    let mut client = Client::connect(target, plan.connections, plan.persistence, plan.read_all)?;
    // Long enough for every worker to have compiled the script and for TCP windows to have opened.
    client.run(Limit::Time(plan.time / 5))?.flawless()?;
    let before = cpu::sample(roots)?;
    let outcome = client.run(Limit::Time(plan.time))?.flawless()?;
    let used = cpu::sample(roots)? - before;
    Ok(per_response(&outcome, used))
}

fn per_response(outcome: &Outcome, used: cpu::CpuTime) -> Sample {
    #[expect(clippy::cast_precision_loss, reason = "counts of responses stay far below 2^52")]
    let responses = outcome.responses as f64;
    let micros = |time: Duration| time.as_secs_f64() * 1e6 / responses;
    Sample {
        rate: responses / outcome.elapsed.as_secs_f64(),
        front_us: micros(used.front),
        worker_us: micros(used.worker),
        client_us: micros(outcome.client_cpu),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rate: f64) -> Option<Sample> {
        Some(Sample { rate, front_us: 2.0, worker_us: 3.0, client_us: 1.0 })
    }

    #[test]
    fn ratios_pair_the_rounds() {
        let series =
            |rates: [f64; 3]| Series { samples: rates.map(sample).to_vec(), failures: vec![] };
        // The machine was twice as fast in the second round, which does not change the ratios.
        let (reference, own) = (series([100.0, 200.0, 100.0]), series([300.0, 600.0, 310.0]));
        let ratio = own.ratio(&reference, |s| s.rate).expect("no failures");
        assert_eq!((ratio.median, ratio.min, ratio.max), (3.0, 3.0, 3.1));
    }

    #[test]
    fn a_failed_round_fails_the_series() {
        let good = Series { samples: vec![sample(1.0)], failures: vec![] };
        let bad = Series { samples: vec![sample(1.0), None], failures: vec!["status 502".into()] };
        assert!(bad.spread(|s| s.rate).is_none());
        assert!(bad.ratio(&good, |s| s.rate).is_none());
        assert!(good.ratio(&bad, |s| s.rate).is_none());
        assert!(good.spread(Sample::server_us).is_some());
    }

    #[test]
    fn time_is_divided_among_the_responses() {
        let outcome = Outcome {
            responses: 1000,
            errors: 0,
            first_error: None,
            elapsed: Duration::from_millis(500),
            client_cpu: Duration::from_millis(5),
        };
        let used =
            cpu::CpuTime { front: Duration::from_millis(20), worker: Duration::from_millis(30) };
        let sample = per_response(&outcome, used);
        assert_eq!(sample.rate, 2000.0);
        assert_eq!((sample.front_us, sample.worker_us), (20.0, 30.0));
        assert_eq!((sample.client_us, sample.server_us()), (5.0, 50.0));
    }
}
