//! An experiment: its points, how one is measured, and the figures that the report draws of them.

use super::claims::Claim;
use super::papers::Paper;
use super::results::{Conditions, Point, Series};
use crate::measure::Plan;
use crate::peers::Sendoff;
use anyhow::Result;
use std::path::PathBuf;
use std::time::Duration;

/// The time that a run may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Some seconds for an experiment: shows that everything works, not how fast it is.
    Quick,
    /// All points, long enough for figures to be published.
    Full,
}

impl Effort {
    /// A warning for readers of results: a sentence to add, or nothing.
    pub(crate) fn warning(self) -> &'static str {
        self.choose(
            " These are short runs: they show that everything works, not how fast it is.",
            "",
        )
    }

    /// The longer or the shorter of two lists.
    pub(crate) fn choose<T>(self, quick: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

/// Everything that experiments share.
pub(crate) struct Workbench {
    pub(crate) effort: Effort,
    pub(crate) plan: Plan,
    /// The length of each run, if the user wants another one than the experiment.
    pub(crate) time: Option<Duration>,
    pub(crate) sendoff: Sendoff,
    /// Servers to measure; empty for all.
    pub(crate) only: Vec<String>,
    /// An empty folder of the experiment, removed at its end.
    pub(crate) dir: PathBuf,
}

impl Workbench {
    pub(crate) fn wants(&self, server: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == server)
    }
}

/// One experiment of the lab.
pub(crate) trait Experiment {
    /// The name on the command line and of the file of results.
    fn name(&self) -> &'static str;
    /// One line for `list` and the report.
    fn about(&self) -> &'static str;
    fn points(&self, effort: Effort) -> Vec<Point>;
    /// Starts the servers; their versions go into `conditions`.
    fn start(&self, bench: &Workbench, conditions: &mut Conditions) -> Result<Box<dyn Stage>>;
    fn figures(&self) -> Vec<Figure>;
    /// Statements of papers that the results confirm or contradict.
    fn claims(&self) -> &'static [Claim] {
        &[]
    }
}

/// The running servers of an experiment.
pub(crate) trait Stage {
    /// Measures one point on all servers. A server that fails is a [`Series`] with an error; an
    /// error of this function ends the experiment.
    fn measure(&mut self, point: &Point) -> Result<Vec<Series>>;
}

/// One diagram of the report, with its table.
pub(crate) struct Figure {
    pub(crate) title: &'static str,
    /// The part of the experiment whose points it shows.
    pub(crate) part: &'static str,
    pub(crate) shape: Shape,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) value: Value,
    /// Figures of a paper to show beside ours.
    pub(crate) papers: &'static [Paper],
}

impl Figure {
    /// Bars of a measured value.
    pub(crate) fn bars(
        part: &'static str,
        title: &'static str,
        y: &'static str,
        value: &'static str,
    ) -> Self {
        let (shape, value) = (Shape::Bars, Value::Of(value));
        Self { title, part, shape, x: "", y, value, papers: &[] }
    }
}

/// The look of a diagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Lines over a number.
    Lines,
    /// Bars, grouped by the labels of the points.
    Bars,
}

/// The figure that a diagram shows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    /// One of the measured [`Values`](super::results::Values).
    Of(&'static str),
    /// The ratio to the same figure of this server, within each round.
    RatioTo(&'static str, &'static str),
}
