//! Experiments that ask for pages in a closed loop: rounds in which each server answers in turn.

use super::claims::Claim;
use super::experiment::{Effort, Experiment, Figure, Stage, Workbench};
use super::results::{Conditions, Point, Series, Values};
use crate::load::{Persistence, Target};
use crate::measure::{self, Contestant, Plan, Sample};
use crate::peers::{Peer, Sendoff};
use crate::servers::{self, installed};
use crate::site::{Account, Site, Workload};
use crate::trace;
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;

/// An experiment that is described by its pages.
pub(crate) struct Comparison {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// PHP workers of every server.
    pub(crate) workers: usize,
    pub(crate) connections: usize,
    pub(crate) servers: fn(&Sendoff) -> Vec<Box<dyn Peer>>,
    pub(crate) rows: fn(Effort) -> Vec<Row>,
    pub(crate) figures: fn() -> Vec<Figure>,
    pub(crate) claims: &'static [Claim],
    pub(crate) copies: Copies,
}

/// The share of the CPU time in functions that copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copies {
    /// It is sampled by `perf` after the rounds.
    Sampled,
    NotSampled,
}

/// A point with the pages that it asks for.
pub(crate) struct Row {
    pub(crate) point: Point,
    pub(crate) persistence: Persistence,
    pub(crate) entries: Vec<Entry>,
}

/// One curve at one point: a page of one server, or the same page of each server.
pub(crate) struct Entry {
    /// The name of the curve; `None`: a curve for each server, under its name.
    pub(crate) curve: Option<(&'static str, &'static str)>,
    pub(crate) workload: Workload,
}

impl Entry {
    pub(crate) fn everywhere(workload: Workload) -> Self {
        Self { curve: None, workload }
    }

    pub(crate) fn on(server: &'static str, curve: &'static str, workload: Workload) -> Self {
        Self { curve: Some((server, curve)), workload }
    }
}

impl Experiment for Comparison {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn points(&self, effort: Effort) -> Vec<Point> {
        (self.rows)(effort).into_iter().map(|row| row.point).collect()
    }

    fn start(&self, bench: &Workbench, conditions: &mut Conditions) -> Result<Box<dyn Stage>> {
        let rows = (self.rows)(bench.effort);
        let workloads: Vec<&Workload> =
            rows.iter().flat_map(|row| &row.entries).map(|entry| &entry.workload).collect();
        let site = Site::create(&bench.dir, Account::for_servers()?, &workloads)?
            .with_workers(self.workers);
        let servers = (self.servers)(&bench.sendoff);
        let contestants = start_servers(servers, &site, bench, conditions)?;
        let plan = Plan { connections: self.connections, ..bench.plan };
        let dir = bench.dir.clone();
        Ok(Box::new(Running { rows, contestants, plan, copies: self.copies, dir }))
    }

    fn figures(&self) -> Vec<Figure> {
        (self.figures)()
    }

    fn claims(&self) -> &'static [Claim] {
        self.claims
    }
}

/// Starts the wanted servers. A server that is not installed is noted in `conditions`.
pub(crate) fn start_servers(
    servers: Vec<Box<dyn Peer>>,
    site: &Site,
    bench: &Workbench,
    conditions: &mut Conditions,
) -> Result<Vec<Contestant>> {
    let wanted = servers.into_iter().filter(|peer| bench.wants(peer.name()));
    let servers = installed(wanted, &mut conditions.versions);
    let contestants = servers::start(&servers, site, &bench.dir)?;
    ensure!(!contestants.is_empty(), "no server to measure: {:?}", conditions.versions);
    Ok(contestants)
}

struct Running {
    rows: Vec<Row>,
    contestants: Vec<Contestant>,
    plan: Plan,
    copies: Copies,
    dir: PathBuf,
}

/// A page that is asked for at one point.
struct Course<'a> {
    contestant: &'a Contestant,
    path: String,
    body: Vec<u8>,
    series: Series,
}

impl Course<'_> {
    fn target(&self) -> Target<'_> {
        Target { addr: self.contestant.running.addr, path: &self.path, body: &self.body }
    }
}

impl Stage for Running {
    fn measure(&mut self, point: &Point) -> Result<Vec<Series>> {
        let row = self.rows.iter().find(|row| row.point == *point).context("an unknown point")?;
        let plan = Plan { persistence: row.persistence, ..self.plan };
        let mut courses = self.courses(row);
        for round in 0..plan.rounds {
            let order: Box<dyn Iterator<Item = &mut Course<'_>>> = match round % 2 {
                0 => Box::new(courses.iter_mut()),
                // The second server profits from warm caches, so the order alternates.
                _ => Box::new(courses.iter_mut().rev()),
            };
            // Not repeated after a failure: a hanging server would cost a long wait each time.
            for course in order.filter(|course| course.series.error.is_none()) {
                let roots = course.contestant.running.roots();
                let sample = measure::one_run(course.target(), &roots, plan);
                let size = course.body.len();
                course.series.take(sample.map(|sample| values(&sample, size)));
            }
        }
        if self.copies == Copies::Sampled {
            for course in courses.iter_mut().filter(|course| course.series.error.is_none()) {
                sample_copies(course, plan, &self.dir)?;
            }
        }
        Ok(courses.into_iter().map(|course| course.series).collect())
    }
}

impl Running {
    fn courses(&self, row: &Row) -> Vec<Course<'_>> {
        let mut courses = Vec::new();
        for entry in &row.entries {
            for contestant in &self.contestants {
                let name = match entry.curve {
                    None => contestant.name.clone(),
                    Some((server, curve)) if server == contestant.name => curve.to_owned(),
                    Some(_) => continue,
                };
                let (path, body) = (entry.workload.path(), entry.workload.body());
                let series = Series { name, ..Series::default() };
                courses.push(Course { contestant, path, body, series });
            }
        }
        courses
    }
}

fn values(sample: &Sample, body: usize) -> Values {
    #[expect(clippy::cast_precision_loss, reason = "bodies stay far below 2^52 bytes")]
    let mbit = sample.rate * body as f64 * 8.0 / 1e6;
    [
        ("rate", sample.rate),
        ("mbit", mbit),
        ("server_us", sample.server_us()),
        ("front_us", sample.front_us),
        ("worker_us", sample.worker_us),
        ("client_us", sample.client_us),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Adds the share of copying to the first round.
fn sample_copies(course: &mut Course<'_>, plan: Plan, dir: &std::path::Path) -> Result<()> {
    let (target, running) = (course.target(), &course.contestant.running);
    // perf fails if a process ends while it attaches, and Apache's come and go.
    let attempt = || trace::copying(target, running, plan, dir);
    let copying = match attempt().or_else(|_| attempt()).or_else(|_| attempt()) {
        Ok(copying) => copying,
        Err(error) => {
            eprintln!("  no copy share of {}: {error:#}", course.series.name);
            return Ok(());
        }
    };
    let first = course.series.rounds.first_mut().context("no round")?;
    first.insert("copy_share".into(), copying.share);
    first.insert("copy_share_per_gbit".into(), copying.share / copying.gbps);
    Ok(())
}
