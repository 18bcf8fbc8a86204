//! Errors and warnings about a configuration, and their presentation.

use std::fmt;
use std::sync::Arc;

use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, Severity,
    SourceCode,
};

use crate::place::{Place, Sources};

/// Lines of the file that are shown above and below the marked line.
const CONTEXT_LINES: usize = 1;
/// Columns of a report.
const WIDTH: usize = 120;

/// An error in a configuration, or a warning about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// True for a warning: the configuration can be used.
    pub is_warning: bool,
    /// The place of the mistake.
    pub place: Place,
    /// The message: one sentence without a full stop.
    pub says: String,
    /// The text beneath the place.
    pub label: Option<String>,
    /// A related place, and the text beneath it.
    pub other: Option<(Place, String)>,
    /// Advice for the operator.
    pub help: Option<String>,
}

impl Problem {
    /// Sets the text beneath the place.
    pub fn label(&mut self, text: impl Into<String>) -> &mut Self {
        self.label = Some(text.into());
        self
    }

    /// Sets the advice.
    pub fn help(&mut self, text: impl Into<String>) -> &mut Self {
        self.help = Some(text.into());
        self
    }

    /// Adds a related place.
    pub fn other(&mut self, place: Place, text: impl Into<String>) -> &mut Self {
        self.other = Some((place, text.into()));
        self
    }
}

/// All errors and warnings about a configuration.
#[derive(Debug, Default)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// Adds an error.
    pub fn error(&mut self, place: Place, says: impl Into<String>) -> &mut Problem {
        self.add(false, place, says.into())
    }

    /// Adds a warning.
    pub fn warning(&mut self, place: Place, says: impl Into<String>) -> &mut Problem {
        self.add(true, place, says.into())
    }

    fn add(&mut self, is_warning: bool, place: Place, says: String) -> &mut Problem {
        let problem = Problem { is_warning, place, says, label: None, other: None, help: None };
        self.0.push(problem);
        let last = self.0.len() - 1;
        &mut self.0[last]
    }

    /// The number of errors.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.0.iter().filter(|problem| !problem.is_warning).count()
    }

    /// Sorts errors before warnings, and each in the order of the files.
    pub fn sort(&mut self) {
        self.0.sort_by_key(|problem| {
            let (file, start) = match problem.place {
                Place::File { file, start, .. } => (file, start),
                Place::Default | Place::Option(_) => (0, 0),
            };
            (problem.is_warning, file, start)
        });
        self.0.dedup();
    }

    /// All problems with the lines that they are about, for a terminal with or without colours.
    #[must_use]
    pub fn report(&self, sources: &Sources, colours: bool) -> String {
        let mut text = String::new();
        for problem in &self.0 {
            if !text.is_empty() {
                text.push('\n');
            }
            text += &problem.report(sources, colours);
        }
        text
    }
}

impl Problem {
    /// The problem in one line, without the line of the file: `sendoff.toml:3: unknown key
    /// "lisen"`.
    #[must_use]
    pub fn line(&self, sources: &Sources) -> String {
        match self.place {
            Place::Default => self.says.clone(),
            place => format!("{}: {}", sources.show(place), self.says),
        }
    }

    /// The problem with the line that it is about, if it is in a file.
    fn report(&self, sources: &Sources, colours: bool) -> String {
        let theme =
            if colours { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
        let handler = GraphicalReportHandler::new_themed(theme)
            .with_context_lines(CONTEXT_LINES)
            .with_width(WIDTH);
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = handler.render_report(&mut text, &MietteProblem::new(self, sources));
        // Rulers and wrapped lines end with spaces.
        text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }
}

/// A problem as miette wants it.
#[derive(Debug)]
struct MietteProblem<'a> {
    problem: &'a Problem,
    source: Option<NamedSource<Arc<str>>>,
    labels: Vec<LabeledSpan>,
    help: Option<String>,
}

impl<'a> MietteProblem<'a> {
    fn new(problem: &'a Problem, sources: &Sources) -> Self {
        let mut shown = Self { problem, source: None, labels: Vec::new(), help: None };
        shown.help.clone_from(&problem.help);
        let Place::File { file, .. } = problem.place else { return shown };
        let Some(source) = sources.get(file) else { return shown };
        if span(problem.place) == Some((0, 0)) {
            return shown;
        }
        let path = source.path.display().to_string();
        shown.source = Some(NamedSource::new(path, Arc::clone(&source.text)));
        let label = problem.label.clone().or(Some("here".to_owned()));
        shown.labels.extend(span(problem.place).map(|(at, len)| LabeledSpan::new(label, at, len)));
        if let Some((place, text)) = &problem.other {
            match place {
                Place::File { file: other, .. } if *other == file => {
                    let label = |(at, len)| LabeledSpan::new(Some(text.clone()), at, len);
                    shown.labels.extend(span(*place).map(label));
                }
                place => {
                    let help = format!("{text} at {}", sources.show(*place));
                    shown.help = Some(match &shown.help {
                        Some(more) => format!("{help}; {more}"),
                        None => help,
                    });
                }
            }
        }
        shown
    }
}

fn span(place: Place) -> Option<(usize, usize)> {
    match place {
        Place::File { start, end, .. } => {
            Some((start as usize, end.saturating_sub(start) as usize))
        }
        Place::Default | Place::Option(_) => None,
    }
}

impl fmt::Display for MietteProblem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Place::Option(option) = self.problem.place {
            write!(f, "{option}: ")?;
        }
        f.write_str(&self.problem.says)
    }
}

impl std::error::Error for MietteProblem<'_> {}

impl Diagnostic for MietteProblem<'_> {
    fn severity(&self) -> Option<Severity> {
        Some(if self.problem.is_warning { Severity::Warning } else { Severity::Error })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.source.as_ref().map(|source| source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.labels.iter().cloned()))
    }
}
