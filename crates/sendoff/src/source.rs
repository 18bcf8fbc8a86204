//! The source of the configuration: a command line, or a file.

use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};

use sendoff_config::Config;
use sendoff_setting_values::{Problems, Sources};
use sendoff_settings::keys::Top;
use sendoff_settings::{Loaded, expand, load, resolve};

use crate::configure::{log_filter, sections};
use crate::failure::Failure;
use crate::machine::ThisMachine;
use crate::options::Serve;

/// The source of the configuration. Resolving it again may give a different configuration.
#[derive(Debug)]
pub(crate) enum Source {
    /// The options of `sendoff serve`.
    CommandLine(Box<Serve>),
    /// A file.
    File(PathBuf),
}

impl Source {
    /// The absolute path of the file; `None` for a command line.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        match self {
            Self::CommandLine(_) => None,
            Self::File(path) => Some(path.canonicalize().unwrap_or_else(|_| path.clone())),
        }
    }

    /// Resolves the configuration. Also returns warnings for the operator.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub(crate) fn resolve(&self) -> Result<(Config, Vec<String>), Failure> {
        let resolved = match self {
            Self::CommandLine(serve) => Resolved::from_options(serve)?,
            Self::File(path) => Resolved::from_file(path)?,
        };
        let warnings = resolved.problems.0.iter().map(|problem| problem.line(&resolved.sources));
        let warnings = warnings.collect();
        let mut config = resolved.config;
        config.log = log_filter(config.log);
        Ok((config, warnings))
    }
}

/// A configuration file or a command line, read and found usable.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// The sections, in which the names of applications are replaced by their rules.
    pub(crate) top: Top,
    /// The resolved configuration.
    pub(crate) config: Config,
    /// The files that were read.
    pub(crate) sources: Sources,
    /// Warnings.
    pub(crate) problems: Problems,
}

impl Resolved {
    /// Reads and resolves a file.
    ///
    /// # Errors
    /// The file cannot be used; the failure lists all errors.
    pub(crate) fn from_file(path: &Path) -> Result<Self, Failure> {
        let path = std::path::absolute(path).map_err(Failure::input(path.display()))?;
        let Loaded { mut top, mut sources, mut problems } = load(&path, &ThisMachine);
        expand(&mut top, &mut sources, &mut problems);
        match resolve(&top, &sources, &ThisMachine, &mut problems) {
            Some(config) => Ok(Self { top, config, sources, problems }),
            None => Err(Failure::Input(refusal(&path, &problems, &sources))),
        }
    }

    /// Resolves a command line.
    ///
    /// # Errors
    /// The command line cannot be used; the failure is the first error.
    pub(crate) fn from_options(serve: &Serve) -> Result<Self, Failure> {
        let (mut top, mut sources) = (sections(serve)?, Sources::default());
        let mut problems = Problems::default();
        expand(&mut top, &mut sources, &mut problems);
        match resolve(&top, &sources, &ThisMachine, &mut problems) {
            Some(config) => Ok(Self { top, config, sources, problems }),
            None => {
                let first = problems.0.first().map(|problem| problem.line(&sources));
                Err(Failure::Input(first.unwrap_or_default()))
            }
        }
    }
}

/// The text that refuses a configuration file, with all errors.
pub(crate) fn refusal(path: &Path, problems: &Problems, sources: &Sources) -> String {
    let errors = match problems.errors() {
        1 => "1 error".to_owned(),
        errors => format!("{errors} errors"),
    };
    let report = problems.report(sources, stderr().is_terminal());
    format!("{}: {errors}\n{}", path.display(), report.trim_end())
}
