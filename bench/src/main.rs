//! Measures sendoff against widely used servers; see `--help`.

mod cpu;
mod demo;
mod figures;
mod http;
mod lab;
mod load;
mod measure;
mod open_loop;
mod peers;
mod processes;
mod report;
mod servers;
mod sessions;
mod site;
mod slow;
mod stats;
mod trace;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use measure::{Contestant, Measured, Plan};
use peers::{Apache, Kept, Lighttpd, Nginx, Peer, Proxied, Sendoff};
use peers::{delivery_modes, responder_modes};
use site::{Account, KEPT, PROXIED, Site, THESIS_C, THESIS_PHP, WORKLOADS, Workload};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Measures sendoff against nginx + php-fpm, byte-checked, paired round by round.
///
/// Starts every server itself, with 4 PHP workers each, on free ports of 127.0.0.1. Prints
/// Markdown. The exit code tells whether every response was right, not whether the targets were
/// met.
///
/// The commands are the lab: experiments of papers and our own, with results that are kept, and a
/// report.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    command: Option<lab::Command>,
    /// Seconds of each run (a fifth more before it warms the server up)
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Rounds; in each, every server runs once
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only workloads whose name contains this
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
    /// Compare the delivery modes with relay for generated bodies, instead of comparing servers
    #[arg(long, value_name = "APPLICATION")]
    thesis: Option<Thesis>,
    /// Compare nginx, HAProxy and Sendoff as HTTP proxies in front of an nginx that serves files,
    /// over kept connections; only the proxies are measured
    #[arg(long, conflicts_with = "thesis")]
    proxy: bool,
    /// Compare the page caches of nginx, Varnish and Sendoff on pages of PHP that they have; only
    /// the caches are measured
    #[arg(long, conflicts_with_all = ["thesis", "proxy"])]
    kept: bool,
    /// Run everything on this many CPUs
    #[arg(long, value_name = "N")]
    cpus: Option<usize>,
    /// Only these servers (nginx+fpm, sendoff, nginx+fpm-keepalive, nginx+fpm-debian,
    /// nginx+fpm-tuned, lighttpd+fpm, apache+mod_php; with --thesis base_uds, sharedmem, passfd,
    /// auto, fcgi_inet, stock_uds; with --proxy nginx, haproxy, sendoff; with --kept nginx, varnish,
    /// sendoff); the first selected one is the reference
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    peers: Vec<String>,
    /// Also write the report to this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write the medians that the README, docs/tuning.md and the example site publish to this file:
    /// bench/figures.json, for `make figures`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["thesis", "proxy", "kept", "strace", "profile"])]
    save: Option<PathBuf>,
    /// Keep-alive connections of the client
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// Read every byte, as browsers do, instead of discarding most bodies in the kernel
    #[arg(long)]
    read_all: bool,
    /// Count system calls per response instead of measuring time
    #[arg(long, conflicts_with = "profile")]
    strace: bool,
    /// List the hottest functions instead of measuring time
    #[arg(long)]
    profile: bool,
    /// The sendoff binary [default: next to this one]
    #[arg(long, value_name = "PATH")]
    sendoff: Option<PathBuf>,
    /// A further argument for `sendoff serve`, such as --sendoff-arg=--snapshot=copy
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    sendoff_arg: Vec<String>,
}

/// The application that generates the bodies for `--thesis`.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Thesis {
    /// A FastCGI program in C that links libfcgi
    C,
    /// PHP
    Php,
}

impl Options {
    fn plan(&self) -> Result<Plan> {
        ensure!(self.rounds > 0, "--rounds must be at least 1");
        ensure!(self.connections > 0, "--connections must be at least 1");
        let time = Duration::try_from_secs_f64(self.seconds)
            .ok()
            .filter(|time| !time.is_zero())
            .context("--seconds must be a positive number")?;
        Ok(Plan {
            rounds: self.rounds,
            time,
            connections: self.connections,
            persistence: load::Persistence::Kept,
            read_all: self.read_all,
        })
    }

    fn workloads(&self) -> Result<Vec<&'static Workload>> {
        let pattern = self.only.as_deref().unwrap_or("");
        let all = match self.thesis {
            None if self.proxy => PROXIED,
            None if self.kept => KEPT,
            None => WORKLOADS,
            Some(Thesis::C) => THESIS_C,
            Some(Thesis::Php) => THESIS_PHP,
        };
        let chosen: Vec<_> = all.iter().filter(|w| w.name.contains(pattern)).collect();
        if chosen.is_empty() {
            let names: Vec<_> = all.iter().map(|w| &*w.name).collect();
            bail!("no workload matches {pattern:?}; there are {}", names.join(", "));
        }
        Ok(chosen)
    }

    /// Every known server, in the order of the report; the first is the reference.
    fn peers(&self) -> Result<Vec<Box<dyn Peer>>> {
        let sendoff = Sendoff::at(self.sendoff.as_deref(), self.sendoff_arg.clone())?;
        let all: Vec<Box<dyn Peer>> = match self.thesis {
            None if self.proxy => vec![
                Box::new(Proxied::Nginx),
                Box::new(Proxied::HaProxy),
                Box::new(Proxied::Sendoff(sendoff)),
            ],
            None if self.kept => vec![
                Box::new(Kept::Nginx),
                Box::new(Kept::Varnish),
                Box::new(Kept::Sendoff(sendoff)),
            ],
            None => vec![
                Box::new(Nginx::Unlogged),
                Box::new(sendoff),
                Box::new(Nginx::KeepAlive),
                Box::new(Nginx::Debian),
                Box::new(Nginx::Tuned),
                Box::new(Lighttpd),
                Box::new(Apache),
            ],
            Some(Thesis::Php) => delivery_modes(&sendoff),
            Some(Thesis::C) => responder_modes(&sendoff),
        };
        let names: Vec<&str> = all.iter().map(|p| p.name()).collect();
        if let Some(unknown) = self.peers.iter().find(|p| !names.contains(&p.as_str())) {
            bail!("no server is named {unknown:?}; there are {}", names.join(", "));
        }
        let wanted = |name: &str| self.peers.is_empty() || self.peers.iter().any(|p| p == name);
        Ok(all.into_iter().filter(|p| wanted(p.name())).collect())
    }
}

/// Restricts this process, and the servers it starts, to `count` of its CPUs.
fn restrict_cpus(count: usize) -> Result<()> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    let mut fewer = rustix::thread::CpuSet::new();
    let numbers = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    numbers.take(count).for_each(|cpu| fewer.set(cpu));
    ensure!(
        count > 0 && fewer.count() as usize == count,
        "--cpus {count}: there are {}",
        allowed.count()
    );
    Ok(rustix::thread::sched_setaffinity(None, &fewer)?)
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match &options.command {
        Some(command) => lab::execute(command),
        None => run(&options),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("sendoff-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the benchmark. Returns true if no run failed.
fn run(options: &Options) -> Result<bool> {
    let plan = options.plan()?;
    let workloads = options.workloads()?;
    if let Some(count) = options.cpus {
        restrict_cpus(count)?;
    }
    let dir = site::temporary_folder("sendoff-bench.")?;
    let site = Site::create(dir.path(), Account::for_servers()?, &workloads)?;

    let mut versions = Vec::new();
    let peers = servers::installed(options.peers()?, &mut versions);
    let contestants = servers::start(&peers, &site, dir.path())?;
    let header = report::header(&versions, plan);
    ensure!(!contestants.is_empty(), "no server to measure\n{header}");

    let names: Vec<String> = contestants.iter().map(|c| c.name.clone()).collect();
    let mut measured = Vec::new();
    let (body, flawless) = if options.strace || options.profile {
        (trace_all(options, plan, &workloads, &contestants, dir.path())?, true)
    } else {
        measured = measure_all(plan, &workloads, &contestants);
        report_all(&names, &measured)
    };
    let report = format!("# Benchmark\n\n{header}\n{body}");
    print!("{report}");
    if let Some(path) = &options.out {
        fs::write(path, &report).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(path) = &options.save {
        figures::save(path, &names, &measured, plan, &versions)?;
    }
    Ok(flawless)
}

fn measure_all(
    plan: Plan,
    workloads: &[&'static Workload],
    contestants: &[Contestant],
) -> Vec<Measured> {
    let mut measured: Vec<Measured> = Vec::new();
    for workload in workloads {
        eprintln!("measuring {}", workload.name);
        measured.push(measure::measure(workload, contestants, plan));
    }
    measured
}

/// The tables, and true if no run failed.
fn report_all(names: &[String], measured: &[Measured]) -> (String, bool) {
    let mut sections: Vec<String> =
        (1..names.len()).map(|index| report::table(names, index, measured)).collect();
    if sections.is_empty() {
        sections.push(report::single(names, measured));
    }
    sections.push(report::client_table(names, measured));
    let failures = report::failures(names, measured);
    let flawless = failures.is_empty();
    if !flawless {
        sections.push(failures);
    }
    (sections.join("\n"), flawless)
}

fn trace_all(
    options: &Options,
    plan: Plan,
    workloads: &[&'static Workload],
    contestants: &[Contestant],
    dir: &Path,
) -> Result<String> {
    let mut sections = Vec::new();
    for workload in workloads {
        let section = if options.strace {
            trace::system_calls(workload, contestants, plan, dir)?
        } else {
            trace::profile(workload, contestants, plan, dir)?
        };
        sections.push(section);
    }
    Ok(sections.join("\n"))
}
