//! The results of an experiment as both pages show them: tables, statements of papers, failures and
//! what is missing.

use super::claims::Verdict;
use super::experiment::{Effort, Experiment, Figure, Value};
use super::results::{Conditions, Finished, Results, Series};
use crate::stats::Spread;

/// An experiment with its results.
pub(crate) struct Digest {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// The runs that measured the points.
    pub(crate) sessions: Vec<Conditions>,
    /// The width of the rates between rounds, in per cent, over all series.
    pub(crate) noise: Option<Spread>,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) tables: Vec<Table>,
    pub(crate) failures: Vec<String>,
    /// Points that have no result.
    pub(crate) missing: Vec<String>,
}

impl Digest {
    pub(crate) fn new(experiment: &dyn Experiment, effort: Effort, results: Results) -> Self {
        let points = experiment.points(effort);
        let missing = points.iter().filter(|point| !results.has(point));
        let missing = missing.map(|point| format!("{}, {}", point.part, point.label)).collect();
        let Results { sessions, finished, .. } = results;
        let names = names(&finished);
        let figures = experiment.figures();
        Self {
            name: experiment.name(),
            about: experiment.about(),
            sessions,
            noise: noise(&finished),
            verdicts: experiment.claims().iter().map(|claim| claim.judge(&finished)).collect(),
            tables: figures.into_iter().filter_map(|f| Table::new(f, &finished, &names)).collect(),
            failures: failures(&finished),
            missing,
        }
    }

    /// True if at least one point is measured.
    pub(crate) fn is_measured(&self) -> bool {
        !self.sessions.is_empty() && (!self.tables.is_empty() || !self.failures.is_empty())
    }
}

/// A figure in numbers.
pub(crate) struct Table {
    pub(crate) figure: Figure,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
}

/// A server, or a way to answer.
pub(crate) struct Column {
    pub(crate) name: String,
    /// Its place among all series of the experiment: it has the same colour in every figure.
    pub(crate) place: usize,
}

pub(crate) struct Row {
    pub(crate) x: f64,
    pub(crate) label: String,
    /// By column.
    pub(crate) cells: Vec<Cell>,
    /// By paper of the figure.
    pub(crate) papers: Vec<Option<f64>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cell {
    Measured(Spread),
    Failed,
    Missing,
}

impl Table {
    /// The table of a figure; `None` if none of its points is measured.
    fn new(figure: Figure, finished: &[Finished], names: &[String]) -> Option<Self> {
        let points = || finished.iter().filter(|one| one.point.part == figure.part);
        let mut columns = Vec::new();
        for (place, name) in names.iter().enumerate() {
            if points().any(|point| matches!(cell(figure.value, point, name), Cell::Measured(_))) {
                columns.push(Column { name: name.clone(), place });
            }
        }
        let mut rows: Vec<Row> = points()
            .map(|point| Row {
                x: point.point.x,
                label: point.point.label.clone(),
                cells: columns.iter().map(|c| cell(figure.value, point, &c.name)).collect(),
                papers: printed(&figure, point.point.x),
            })
            .collect();
        rows.sort_by(|a, b| a.x.total_cmp(&b.x));
        (!rows.is_empty()).then_some(Self { figure, columns, rows })
    }
}

/// The figures of the papers at this place.
fn printed(figure: &Figure, x: f64) -> Vec<Option<f64>> {
    let at = |points: &[(f64, f64)]| points.iter().find(|point| point.0 == x).map(|point| point.1);
    figure.papers.iter().map(|paper| at(paper.points)).collect()
}

fn cell(value: Value, point: &Finished, name: &str) -> Cell {
    match point.series.iter().find(|series| series.name == name) {
        None => Cell::Missing,
        Some(series) if series.error.is_some() => Cell::Failed,
        Some(series) => spread(value, point, series).map_or(Cell::Missing, Cell::Measured),
    }
}

/// A figure of one series at one point.
pub(crate) fn spread(value: Value, point: &Finished, series: &Series) -> Option<Spread> {
    if series.error.is_some() {
        return None;
    }
    match value {
        Value::Of(name) => Spread::of(series.rounds.iter().filter_map(|r| r.get(name).copied())),
        Value::RatioTo(name, reference) => {
            let reference = point.series.iter().find(|one| one.name == reference)?;
            if reference.error.is_some() || reference.name == series.name {
                return None;
            }
            let pairs = series.rounds.iter().zip(&reference.rounds);
            Spread::of(pairs.filter_map(|(own, other)| Some(own.get(name)? / other.get(name)?)))
        }
    }
}

/// The width of the rates of a series, in per cent of its median, over all series with several
/// rounds.
fn noise(finished: &[Finished]) -> Option<Spread> {
    let series = finished.iter().flat_map(|one| &one.series);
    let series = series.filter(|one| one.error.is_none() && one.rounds.len() > 1);
    Spread::of(series.filter_map(|one| {
        let rates = one.rounds.iter().filter_map(|round| round.get("rate").copied());
        let spread = Spread::of(rates)?;
        (spread.median > 0.0).then(|| (spread.max - spread.min) / spread.median * 100.0)
    }))
}

/// The names of all series, each once.
fn names(finished: &[Finished]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for series in finished.iter().flat_map(|one| &one.series) {
        if !names.contains(&series.name) {
            names.push(series.name.clone());
        }
    }
    names
}

fn failures(finished: &[Finished]) -> Vec<String> {
    let all = finished.iter().flat_map(|one| one.series.iter().map(move |series| (one, series)));
    let line = |(one, series): (&Finished, &Series)| {
        let error = series.error.as_ref()?;
        Some(format!("{}, {}, {}: {error}", one.point.part, one.point.label, series.name))
    };
    all.filter_map(line).collect()
}
