//! `run`: measures what is left of the chosen experiments.

use super::experiment::{Experiment, Workbench};
use super::results::{Conditions, Finished, Point, Results, Series};
use super::{Folder, chosen};
use crate::load::Persistence;
use crate::measure::Plan;
use crate::peers::Sendoff;
use crate::report;
use crate::site::temporary_folder;
use anyhow::{Context, Result};
use clap::Args;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const QUICK_TIME: Duration = Duration::from_millis(300);
const FULL_TIME: Duration = Duration::from_secs(3);
const QUICK_ROUNDS: usize = 1;
const FULL_ROUNDS: usize = 5;

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Names from `list`, or `all`
    #[arg(required = true, value_name = "EXPERIMENT")]
    experiments: Vec<String>,
    #[command(flatten)]
    folder: Folder,
    /// Seconds of each run [default: 3, or 120 for sessions of users; 0.3 and 1.5 with --quick]
    #[arg(long)]
    seconds: Option<f64>,
    /// Rounds; in each, every server runs once [default: 5, or 1 with --quick]
    #[arg(long)]
    rounds: Option<usize>,
    /// Only these servers
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    peers: Vec<String>,
    /// Forget the results of these experiments and measure every point again
    #[arg(long)]
    again: bool,
    /// The sendoff binary [default: next to this one]
    #[arg(long, value_name = "PATH")]
    sendoff: Option<PathBuf>,
}

impl Options {
    /// The time of `--seconds`.
    fn time(&self) -> Result<Option<Duration>> {
        let valid = |seconds| {
            let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
            time.context("--seconds must be a positive number")
        };
        self.seconds.map(valid).transpose()
    }

    fn plan(&self) -> Result<Plan> {
        let effort = self.folder.effort();
        let time = self.time()?.unwrap_or(effort.choose(QUICK_TIME, FULL_TIME));
        let rounds = self.rounds.unwrap_or(effort.choose(QUICK_ROUNDS, FULL_ROUNDS));
        anyhow::ensure!(rounds > 0, "--rounds must be at least 1");
        let persistence = Persistence::Kept;
        Ok(Plan { rounds, time, connections: 1, persistence, read_all: false })
    }

    fn sendoff(&self) -> Result<Sendoff> {
        Sendoff::at(self.sendoff.as_deref(), Vec::new())
    }
}

/// Measures the experiments. An experiment that cannot be measured does not stop the next one.
/// Returns true if nothing failed.
pub(super) fn run(options: &Options) -> Result<bool> {
    let mut flawless = true;
    for experiment in chosen(&options.experiments)? {
        match run_one(&*experiment, options) {
            Ok(right) => flawless &= right,
            Err(error) => {
                eprintln!("{} ended: {error:#}", experiment.name());
                flawless = false;
            }
        }
    }
    Ok(flawless)
}

fn run_one(experiment: &dyn Experiment, options: &Options) -> Result<bool> {
    let effort = options.folder.effort();
    let mut results = Results::read(&options.folder.path(), experiment.name())?;
    if options.again {
        results.forget()?;
    }
    let all = experiment.points(effort);
    let left: Vec<&Point> = all.iter().filter(|point| !results.has(point)).collect();
    let (name, done) = (experiment.name(), all.len() - left.len());
    if left.is_empty() {
        println!("{name}: all {done} points are measured (--again measures them again)");
        return Ok(true);
    }
    let dir = temporary_folder("sendoff-lab.")?;
    let plan = options.plan()?;
    let bench = Workbench {
        effort,
        plan,
        time: options.time()?,
        sendoff: options.sendoff()?,
        only: options.peers.clone(),
        dir: dir.path().to_owned(),
    };
    let mut conditions = conditions(plan)?;
    let mut stage = experiment.start(&bench, &mut conditions)?;
    results.add_session(conditions)?;
    let mut flawless = true;
    let mut progress = Progress::new(name, done, left.len());
    for point in left {
        let series = stage.measure(point)?;
        progress.advance(point);
        for failed in series.iter().filter(|one| one.error.is_some()) {
            eprintln!("  {} failed: {}", failed.name, failed.error.as_deref().unwrap_or_default());
        }
        flawless &= series.iter().all(|one: &Series| one.error.is_none());
        results.add(Finished { point: point.clone(), series })?;
    }
    Ok(flawless)
}

fn conditions(plan: Plan) -> Result<Conditions> {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_ascii_whitespace().next().and_then(|one| one.parse().ok());
    let date = Command::new("date").args(["-u", "+%F %H:%M UTC"]).output()?.stdout;
    Ok(Conditions {
        date: String::from_utf8_lossy(&date).trim().to_owned(),
        machine: report::machine(),
        load: load.unwrap_or_default(),
        versions: Vec::new(),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        rounds: plan.rounds,
        seconds: plan.time.as_secs_f64(),
    })
}

/// Lines that say how far an experiment is, and how much time it needs.
struct Progress<'a> {
    name: &'a str,
    before: usize,
    left: usize,
    measured: usize,
    started: Instant,
}

impl<'a> Progress<'a> {
    fn new(name: &'a str, before: usize, left: usize) -> Self {
        println!("{name}: {left} points to measure, {before} are there");
        Self { name, before, left, measured: 0, started: Instant::now() }
    }

    fn advance(&mut self, point: &Point) {
        self.measured += 1;
        let still = u32::try_from(self.left - self.measured).unwrap_or(u32::MAX);
        let each = self.started.elapsed() / u32::try_from(self.measured).unwrap_or(1);
        let seconds = (each * still).as_secs();
        let (done, all) = (self.before + self.measured, self.before + self.left);
        let (name, part, label) = (self.name, &point.part, &point.label);
        println!("{name}: {done} of {all}, {part}, {label}; {} left", time(seconds));
    }
}

fn time(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_readable() {
        assert_eq!([time(7), time(65), time(3700)], ["7 s", "1 min 5 s", "1 h 1 min"]);
    }
}
