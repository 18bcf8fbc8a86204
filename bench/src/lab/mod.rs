//! The lab: the papers' experiments and our own, side by side on real servers.
//!
//! `list` names them, `run` measures the points that have no result yet, `report` writes a page of
//! all results.

mod applications;
mod asking;
mod claims;
mod comparison;
mod costs;
mod digest;
mod experiment;
mod fixed_rate;
mod html;
mod markdown;
mod micro;
mod pages;
mod papers;
mod plot;
mod results;
mod rounds;
mod run;
mod sessions;
mod slow_clients;
mod start_up;
mod thesis;
mod tls;
mod upload;

pub(crate) use asking::{ask, hello_site};

use crate::demo;
use crate::sessions::backend;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use digest::Digest;
use experiment::{Effort, Experiment};
use results::Results;
use std::fs;
use std::path::{Path, PathBuf};

/// The commands of the lab, and the demonstration.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the experiments, and how many of their points are measured
    List(Folder),
    /// Measure the points of experiments that have no result yet
    Run(run::Options),
    /// Write an HTML page of all results, and a page of Markdown
    Report(ReportOptions),
    /// Show nginx + php-fpm and Sendoff side by side on a page that starts slow readers
    Demo(demo::Options),
    /// Answer the scripts of a web workload: `run` starts this
    #[command(hide = true)]
    BackEnd,
}

/// The place of the results.
#[derive(Args, Debug)]
pub(crate) struct Folder {
    /// The folder of the results; quick runs have a folder `quick` below it
    #[arg(long, value_name = "FOLDER", default_value = "target/lab")]
    results: PathBuf,
    /// Short runs and few points: they show that everything works, not how fast it is
    #[arg(long)]
    quick: bool,
}

impl Folder {
    fn effort(&self) -> Effort {
        if self.quick { Effort::Quick } else { Effort::Full }
    }

    fn path(&self) -> PathBuf {
        match self.effort() {
            Effort::Quick => self.results.join("quick"),
            Effort::Full => self.results.clone(),
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct ReportOptions {
    #[command(flatten)]
    folder: Folder,
    /// The page [default: report.html in the folder of the results]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Also write the tables as Markdown to this file
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// All experiments, in the order of the report.
fn experiments() -> Vec<Box<dyn Experiment>> {
    vec![
        Box::new(micro::MICRO),
        Box::new(sessions::BANKING),
        Box::new(sessions::ECOMMERCE),
        Box::new(sessions::SUPPORT),
        Box::new(slow_clients::SLOW_CLIENTS),
        Box::new(fixed_rate::FIXED_RATE),
        Box::new(pages::EVERYDAY),
        Box::new(costs::COSTS),
        Box::new(applications::APPLICATION_PAGES),
        Box::new(tls::TLS),
        Box::new(pages::PAGE_CACHE),
        Box::new(pages::WORKER_MODE),
        Box::new(upload::UPLOAD),
        Box::new(start_up::StartUp),
        Box::new(thesis::THESIS_C),
        Box::new(thesis::THESIS_PHP),
    ]
}

/// The experiments of these names; `all` stands for all.
fn chosen(names: &[String]) -> Result<Vec<Box<dyn Experiment>>> {
    let known = experiments();
    let is_known = |name: &&String| *name == "all" || known.iter().any(|e| e.name() == *name);
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        let all: Vec<_> = known.iter().map(|experiment| experiment.name()).collect();
        bail!("no experiment is named {unknown:?}; there are all, {}", all.join(", "));
    }
    let wanted = |name: &str| names.iter().any(|wanted| wanted == "all" || wanted == name);
    Ok(known.into_iter().filter(|experiment| wanted(experiment.name())).collect())
}

/// Carries a command out. Returns true if no measurement failed.
pub(crate) fn execute(command: &Command) -> Result<bool> {
    match command {
        Command::List(folder) => list(folder),
        Command::Run(options) => run::run(options),
        Command::Report(options) => report(options),
        Command::Demo(options) => demo::run(options),
        Command::BackEnd => backend::serve().map(|()| true),
    }
}

fn list(folder: &Folder) -> Result<bool> {
    for experiment in experiments() {
        let results = Results::read(&folder.path(), experiment.name())?;
        let points = experiment.points(folder.effort());
        let measured = points.iter().filter(|point| results.has(point)).count();
        let (name, about, all) = (experiment.name(), experiment.about(), points.len());
        println!("{name:<13} {measured:>3} of {all:>3} points  {about}");
    }
    Ok(true)
}

fn report(options: &ReportOptions) -> Result<bool> {
    let (folder, effort) = (options.folder.path(), options.folder.effort());
    let mut digests = Vec::new();
    for experiment in experiments() {
        let results = Results::read(&folder, experiment.name())?;
        digests.push(Digest::new(&*experiment, effort, results));
    }
    let shown = folder.display();
    let is_empty = !digests.iter().any(Digest::is_measured);
    ensure!(!is_empty, "{shown} holds no results; measure with `run` first");
    let path = options.out.clone().unwrap_or_else(|| folder.join("report.html"));
    write(&path, &html::page(&digests, effort)?)?;
    if let Some(path) = &options.markdown {
        write(path, &markdown::page(&digests, effort))?;
    }
    Ok(true)
}

fn write(path: &Path, page: &str) -> Result<()> {
    fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}
