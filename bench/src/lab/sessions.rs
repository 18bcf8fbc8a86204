//! Sessions of users (parameters of SPECweb2005, our own pages and load generator), in the clear:
//! pages by quality of service over the number of sessions, and the most sessions that a server
//! answers well.

use super::claims::{Bound, Claim, Ratio};
use super::comparison::start_servers;
use super::experiment::{Effort, Experiment, Figure, Shape, Stage, Workbench};
use super::papers::{BANKING_PEAKS, ECOMMERCE_PEAKS, Paper, SUPPORT_PEAKS};
use super::results::{Conditions, Point, Series, Values};
use crate::cpu;
use crate::measure::Contestant;
use crate::peers::{self, start_back_end};
use crate::report::SENDOFF;
use crate::servers::common_and_tuned;
use crate::sessions::contents::{Contents, Printing};
use crate::sessions::{self, Load, SPEED, Scenario, run};
use crate::site::{Account, Site};
use anyhow::{Result, anyhow, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const PIECES: &str = "pages printed in pieces";
const ONCE: &str = "pages collected, then printed once";
const PEAK: &str = "peak";
const SESSIONS: &[u32] = &[250, 500, 1000, 2000, 4000, 8000];
const PEAKS: &[(f64, &str)] = &[(0.0, "in pieces"), (1.0, "collected")];
/// PHP workers: a script waits for the back end, so there are more of them than cores.
const WORKERS: usize = 16;
/// The search for the peak ends when it is known to within this share.
const PRECISION: f64 = 0.05;
/// Pages that the first session of a user has behind it, at most: several sessions' worth.
const BEHIND: usize = 50;
/// Time in which pages count.
const QUICK_TIME: Duration = Duration::from_millis(1500);
const FULL_TIME: Duration = Duration::from_secs(120);
/// The sessions begin in a third of this time, before it.
const RAMP: u32 = 3;
/// Descriptors of a session (two connections), and of everything else.
const DESCRIPTORS: (usize, usize) = (2, 200);

/// An experiment with the users of one workload.
pub(crate) struct Users {
    name: &'static str,
    about: &'static str,
    scenario: &'static Scenario,
    /// Groups of items of a short run, and of a whole one.
    groups: (usize, usize),
    /// True if pages of the site lead to downloads.
    downloads: bool,
    papers: &'static [Paper],
    claims: &'static [Claim],
}

pub(crate) const BANKING: Users = Users {
    name: "banking",
    about: "Sessions of a bank's customers with think time and lines of 100,000 bytes/s, every byte checked (web2005, not a SPEC result)",
    scenario: &sessions::BANKING,
    groups: (1, 1),
    downloads: false,
    papers: BANKING_PEAKS,
    claims: &[Claim {
        says: "Suzumura et al., figures 8 to 12: zero copy serves few more sessions of Banking in the clear",
        paper: Some(1.05),
        holds: Bound::Within(0.95, 1.15),
        ..MORE_SESSIONS
    }],
};

pub(crate) const SUPPORT: Users = Users {
    name: "support",
    about: "Sessions of visitors of a support site, which end with downloads of 0.1 to 38 MB, every byte checked; 640 downloads, 2.7 GB (web2005, not a SPEC result)",
    scenario: &sessions::SUPPORT,
    // The parameters have a group of 68 MB for four sessions, more than fits into memory and on
    // small disks.
    groups: (1, 40),
    downloads: true,
    papers: SUPPORT_PEAKS,
    claims: &[Claim {
        says: "Suzumura et al., figures 19 to 23: zero copy serves more sessions of Support",
        paper: Some(1.44),
        ..MORE_SESSIONS
    }],
};

pub(crate) const ECOMMERCE: Users = Users {
    name: "ecommerce",
    about: "Sessions of a shop's customers, all pages in the clear, every byte checked; 4,000 products with pictures, 226 MB (web2005, not a SPEC result)",
    scenario: &sessions::ECOMMERCE,
    // The parameters have five groups of 0.6 MB for each session.
    groups: (2, 400),
    downloads: false,
    papers: ECOMMERCE_PEAKS,
    claims: &[Claim {
        says: "Suzumura et al., figures 13 to 17: zero copy serves more sessions of Ecommerce",
        paper: Some(1.22),
        ..MORE_SESSIONS
    }],
};

/// More sessions than nginx + php-fpm has, of collected pages, as the papers' pages are. A smaller
/// gain than the precision of the search does not count.
const MORE_SESSIONS: Claim = Claim {
    says: "",
    part: PEAK,
    value: "peak",
    ratio: Ratio::Servers { x: 1.0, of: SENDOFF, to: "nginx+fpm" },
    paper: None,
    holds: Bound::Above(1.0 + PRECISION),
};

impl Experiment for Users {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn points(&self, effort: Effort) -> Vec<Point> {
        let run = |part, &n: &u32| Point::new(part, f64::from(n), format!("{n} sessions"));
        let (pieces, once, peaks) =
            effort.choose((&[20, 100][..], &[20][..], &PEAKS[..1]), (SESSIONS, SESSIONS, PEAKS));
        let pieces = pieces.iter().map(|n| run(PIECES, n));
        let once = once.iter().map(|n| run(ONCE, n));
        let peaks = peaks.iter().map(|&(x, label)| Point::new(PEAK, x, label));
        pieces.chain(once).chain(peaks).collect()
    }

    fn start(&self, bench: &Workbench, conditions: &mut Conditions) -> Result<Box<dyn Stage>> {
        let site = Site::create(&bench.dir, Account::for_servers()?, &[])?.with_workers(WORKERS);
        let back_end = start_back_end(&bench.dir)?;
        let groups = bench.effort.choose(self.groups.0, self.groups.1);
        let mut contents = Contents::new(self.scenario, groups);
        contents.write(&site, back_end.addr)?;
        let servers = common_and_tuned(&bench.sendoff);
        let effort = bench.effort;
        let time = bench.time.unwrap_or(effort.choose(QUICK_TIME, FULL_TIME));
        (conditions.rounds, conditions.seconds) = (1, time.as_secs_f64());
        let contestants = start_servers(servers, &site, bench, conditions)?;
        let most = allow_descriptors()?;
        Ok(Box::new(Running {
            contents: Arc::new(contents),
            contestants,
            effort,
            time,
            most,
            _back_end: back_end,
        }))
    }

    fn figures(&self) -> Vec<Figure> {
        let of = |title, part, y, value| Figure {
            shape: Shape::Lines,
            x: "sessions",
            ..Figure::bars(part, title, y, value)
        };
        let mut figures = vec![
            Figure {
                papers: self.papers,
                ..Figure::bars(PEAK, "Most sessions with good service", "sessions", "peak")
            },
            of("Good pages", PIECES, "%", "good"),
            of("Good or tolerable pages", PIECES, "%", "tolerable"),
            of("Pages", PIECES, "pages/s", "rate"),
            of("Response time, median", PIECES, "ms", "median_ms"),
            of("Response time, 99th percentile", PIECES, "ms", "p99_ms"),
            of("CPU time of the server", PIECES, "µs per page", "server_us"),
            of("CPU time of the load generator", PIECES, "% of a core", "client_cpu"),
            of("Collected pages: good", ONCE, "%", "good"),
            of("Collected pages: response time, 99th percentile", ONCE, "ms", "p99_ms"),
            of("Collected pages: CPU time of the server", ONCE, "µs per page", "server_us"),
        ];
        if self.downloads {
            let title = "Rate of the slowest hundredth of the downloads";
            figures.push(of(title, PIECES, "bytes/s", "slow_download"));
        }
        figures
    }

    fn claims(&self) -> &'static [Claim] {
        self.claims
    }
}

/// Raises the limit of descriptors as far as it goes; returns the most sessions that it allows.
fn allow_descriptors() -> Result<usize> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    let (each, others) = DESCRIPTORS;
    let most = maximum.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    Ok(most.saturating_sub(others) / each)
}

struct Running {
    contents: Arc<Contents>,
    contestants: Vec<Contestant>,
    effort: Effort,
    /// Time in which pages count.
    time: Duration,
    /// The most sessions that this process has descriptors for.
    most: usize,
    /// Answers while this exists.
    _back_end: peers::Running,
}

impl Stage for Running {
    fn measure(&mut self, point: &Point) -> Result<Vec<Series>> {
        let mut all = Vec::new();
        for contestant in &self.contestants {
            let mut series = Series { name: contestant.name.clone(), ..Series::default() };
            series.take(match &*point.part {
                PIECES => self.at(contestant, Printing::Pieces, sessions(point.x)),
                ONCE => self.at(contestant, Printing::Once, sessions(point.x)),
                _ if point.x == 0.0 => self.peak(contestant, Printing::Pieces),
                _ => self.peak(contestant, Printing::Once),
            });
            all.push(series);
        }
        Ok(all)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number")]
fn sessions(x: f64) -> usize {
    x as usize
}

impl Running {
    /// One run with this many sessions. A wrong page is an error.
    fn at(&self, contestant: &Contestant, printing: Printing, sessions: usize) -> Result<Values> {
        let most = self.most;
        anyhow::ensure!(
            sessions <= most,
            "{sessions} sessions need more descriptors than the limit: it allows {most} (ulimit -Hn)"
        );
        let load = Load {
            contents: Arc::clone(&self.contents),
            addr: contestant.running.addr,
            printing,
            sessions,
            behind: BEHIND,
            ramp: self.time / RAMP,
            time: self.time,
            // A short run has no time to think.
            thinking: self.effort.choose(0.1, 1.0),
            speed: SPEED,
            limits: self.contents.scenario.limits,
        };
        let (roots, ramp, time) = (contestant.running.roots(), load.ramp, load.time);
        let own = cpu::this_thread();
        // Pages count from the end of the ramp on, so the servers' time counts from there, too.
        let (tally, before) = thread::scope(|scope| {
            let sampled = scope.spawn(|| {
                thread::sleep(ramp);
                cpu::sample(&roots)
            });
            (run(load), sampled.join())
        });
        let mut tally = tally?;
        let before = before.map_err(|_| anyhow!("the CPU time was not sampled"))??;
        let used = cpu::sample(&roots)? - before;
        let own = cpu::this_thread().saturating_sub(own);
        if let Some(why) = tally.first_wrong.take() {
            bail!("wrong pages, the first: {why}");
        }
        let sum = tally.sum();
        #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
        let (all, good, tolerable) =
            (sum.all() as f64, sum.good as f64, (sum.good + sum.tolerable) as f64);
        anyhow::ensure!(
            all > 0.0,
            "no page began after the ramp: every user still waited for an earlier one"
        );
        let mut values = Values::new();
        let mut note = |name: &str, value: f64| values.insert(name.to_owned(), value);
        note("good", good / all * 100.0);
        note("tolerable", tolerable / all * 100.0);
        note("rate", all / time.as_secs_f64());
        note("valid", f64::from(u8::from(tally.is_valid())));
        note("server_us", (used.front + used.worker).as_secs_f64() * 1e6 / all);
        note("client_cpu", own.as_secs_f64() / (ramp + time).as_secs_f64() * 100.0);
        for (name, share) in [("median_ms", 0.5), ("p99_ms", 0.99)] {
            if let Some(time) = tally.percentile(share) {
                note(name, time);
            }
        }
        if let Some(rate) = tally.rate_percentile(0.01) {
            note("slow_download", rate);
        }
        Ok(values)
    }

    /// Doubles the sessions until a run is not valid, then halves the step.
    fn peak(&self, contestant: &Contestant, printing: Printing) -> Result<Values> {
        let is_valid = |sessions: usize| -> Result<bool> {
            eprintln!("  {}: {sessions} sessions", contestant.name);
            let values = self.at(contestant, printing, sessions)?;
            Ok(values.get("valid") == Some(&1.0))
        };
        let (mut valid, mut tried) = (0, self.effort.choose(50, 500));
        let most = self.effort.choose(100, self.most);
        while valid < tried && is_valid(tried)? {
            (valid, tried) = (tried, (tried * 2).min(most));
        }
        if valid == most {
            return Ok(Values::from([("peak".to_owned(), count(most))]));
        }
        let mut invalid = tried;
        while count(invalid - valid) > (count(invalid) * PRECISION).max(1.0) {
            let middle = usize::midpoint(valid, invalid);
            if is_valid(middle)? {
                valid = middle;
            } else {
                invalid = middle;
            }
        }
        anyhow::ensure!(valid > 0, "no number of sessions was answered well");
        Ok(Values::from([("peak".to_owned(), count(valid))]))
    }
}

fn count(sessions: usize) -> f64 {
    u32::try_from(sessions).map_or(f64::MAX, f64::from)
}
