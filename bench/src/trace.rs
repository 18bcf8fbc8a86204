//! Profiles of each server: system calls per response (strace) and the hottest functions (perf).
//!
//! strace slows the traced process down considerably, so only the counts are meaningful.

use crate::cpu::{self, Process, Role};
use crate::load::{Client, Limit, Target};
use crate::measure::{Contestant, Plan};
use crate::peers::Running;
use crate::report::row;
use crate::site::Workload;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Number of traced responses.
const TRACED: u64 = 1000;
/// Maximum number of functions listed for each server.
const HOTTEST: usize = 25;

/// Shortest time of sampling: perf takes some tenths of a second to begin.
const SAMPLED: Duration = Duration::from_millis(1500);

/// System calls per response, by name.
type Calls = BTreeMap<String, f64>;

/// A Markdown table of the system calls of every contestant's front and workers for one workload.
pub(crate) fn system_calls(
    workload: &Workload,
    contestants: &[Contestant],
    plan: Plan,
    dir: &Path,
) -> Result<String> {
    let mut columns = vec!["system call".to_owned()];
    let mut counts: Vec<Calls> = Vec::new();
    for contestant in contestants {
        for (role, calls) in trace(workload, contestant, plan, dir)? {
            let part = match role {
                Role::Front => "front",
                Role::Worker => "workers",
            };
            columns.push(format!("{} {part}", contestant.name));
            counts.push(calls);
        }
    }
    let mut text =
        format!("## System calls per response, {} ({TRACED} responses)\n\n", workload.name);
    row(&mut text, &columns);
    row(&mut text, &vec!["---".to_owned(); columns.len()]);
    let noticeable = |(name, n): (_, &f64)| (*n >= 0.005).then_some(name);
    let all = counts.iter().flatten();
    let mut names: Vec<&String> = all.filter_map(noticeable).collect();
    names.sort();
    names.dedup();
    for name in names {
        let mut cells = vec![name.clone()];
        for calls in &counts {
            cells.push(calls.get(name).map_or_else(String::new, |n| format!("{n:.2}")));
        }
        row(&mut text, &cells);
    }
    let total = |calls: &Calls| format!("{:.2}", calls.values().sum::<f64>());
    let sums: Vec<String> =
        std::iter::once("total".to_owned()).chain(counts.iter().map(total)).collect();
    row(&mut text, &sums);
    Ok(text)
}

fn trace(
    workload: &Workload,
    contestant: &Contestant,
    plan: Plan,
    dir: &Path,
) -> Result<Vec<(Role, Calls)>> {
    let (path, body) = (workload.path(), workload.body());
    let target = Target { addr: contestant.running.addr, path: &path, body: &body };
    let mut client = warm_client(target, plan)?;
    let processes = cpu::tree(&contestant.running.roots())?;
    let mut tracers = Vec::new();
    for role in [Role::Front, Role::Worker] {
        let output = dir.join(format!("strace-{role:?}"));
        tracers.push((role, attach(&processes, role, &output)?, output));
    }
    let outcome = client.run(Limit::Responses(TRACED))?.flawless();
    let mut result = Vec::new();
    for (role, mut tracer, output) in tracers {
        interrupt(&mut tracer)?;
        let table = std::fs::read_to_string(output).context("strace left no table")?;
        result.push((role, parse_counts(&table)));
    }
    outcome?;
    Ok(result)
}

fn warm_client(target: Target<'_>, plan: Plan) -> Result<Client<'_>> {
    let mut client = Client::connect(target, plan.connections, plan.persistence, plan.read_all)?;
    client.run(Limit::Responses(TRACED))?.flawless()?;
    Ok(client)
}

/// Starts strace for all processes of one role and waits until it is attached to each.
fn attach(processes: &[Process], role: Role, output: &Path) -> Result<Child> {
    let pids = role_pids(processes, Some(role));
    let mut tracer = Command::new("strace")
        .args(["-f", "-c", "-o"])
        .arg(output)
        .args(["-p", &pids.join(" ")])
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run strace (package strace)")?;
    let stderr = tracer.stderr.take().context("no standard error")?;
    let mut attached = 0;
    for line in BufReader::new(stderr).lines() {
        attached += usize::from(line?.contains(" attached"));
        if attached == pids.len() {
            return Ok(tracer);
        }
    }
    tracer.wait()?;
    bail!("strace attached to {attached} of {} processes", pids.len())
}

fn role_pids(processes: &[Process], role: Option<Role>) -> Vec<String> {
    let wanted = |p: &&Process| role.is_none_or(|role| p.role == role);
    let pids = processes.iter().filter(wanted);
    pids.map(|p| p.pid.to_string()).collect()
}

/// Ends a tracer by SIGINT, which makes it write its results.
fn interrupt(tracer: &mut Child) -> Result<()> {
    let pid = i32::try_from(tracer.id()).ok().and_then(Pid::from_raw);
    kill_process(pid.context("no process number")?, Signal::INT)?;
    tracer.wait()?;
    Ok(())
}

/// Reads strace's table: % time, seconds, usecs/call, calls, errors (or nothing), syscall.
fn parse_counts(table: &str) -> Calls {
    let mut counts = Calls::new();
    for line in table.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (Some(calls), Some(name)) = (fields.get(3), fields.last()) else {
            continue;
        };
        if let Ok(calls) = calls.parse::<u32>()
            && *name != "total"
        {
            #[expect(clippy::cast_precision_loss, reason = "a small constant")]
            counts.insert((*name).to_owned(), f64::from(calls) / TRACED as f64);
        }
    }
    counts
}

/// The hottest functions of every contestant for one workload, sampled by the CPU clock.
pub(crate) fn profile(
    workload: &Workload,
    contestants: &[Contestant],
    plan: Plan,
    dir: &Path,
) -> Result<String> {
    let (path, body) = (workload.path(), workload.body());
    let mut text = String::new();
    for contestant in contestants {
        let target = Target { addr: contestant.running.addr, path: &path, body: &body };
        let Copying { share, gbps, functions } = copying(target, &contestant.running, plan, dir)?;
        let _infallible = writeln!(
            text,
            "## Hottest functions, {}, {}\n\nCopying took {share:.1} % of the server's CPU time at {gbps:.2} Gbit/s: \
             {:.2} % per Gbit/s.\n\n```\n{}\n```\n",
            workload.name,
            contestant.name,
            share / gbps,
            functions[..functions.len().min(HOTTEST)].join("\n")
        );
    }
    Ok(text)
}

/// The cost of copying.
pub(crate) struct Copying {
    /// Per cent of the server's CPU time.
    pub(crate) share: f64,
    /// Gigabits of bodies per second.
    pub(crate) gbps: f64,
    /// Lines of perf's report, the hottest function first.
    functions: Vec<String>,
}

/// Samples a server by the CPU clock while it answers.
pub(crate) fn copying(
    target: Target<'_>,
    running: &Running,
    plan: Plan,
    dir: &Path,
) -> Result<Copying> {
    let size = target.body.len() as u64;
    let mut client = warm_client(target, plan)?;
    let data = dir.join("perf.data");
    let pids = role_pids(&cpu::tree(&running.roots())?, None);
    let mut recorder = Command::new("perf")
        .args(["record", "--quiet", "--event", "cpu-clock", "--freq", "997", "--output"])
        .arg(&data)
        .args(["--pid", &pids.join(",")])
        .spawn()
        .context("cannot run perf (package linux-perf)")?;
    let outcome = client.run(Limit::Time(plan.time.max(SAMPLED)))?.flawless();
    interrupt(&mut recorder)?;
    let outcome = outcome?;
    let report = Command::new("perf")
        .args(["report", "--stdio", "--quiet", "--fields", "overhead,comm,dso,symbol", "--input"])
        .arg(&data)
        .stderr(Stdio::null())
        .output()?;
    ensure!(report.status.success(), "perf report: {}", report.status);
    let report = String::from_utf8_lossy(&report.stdout);
    let lines: Vec<&str> = report.lines().filter(|l| !l.trim().is_empty()).collect();
    ensure!(!lines.is_empty(), "perf took no samples");
    #[expect(clippy::cast_precision_loss, reason = "counts of bytes stay far below 2^52")]
    let bits = (outcome.responses * size * 8) as f64;
    Ok(Copying {
        share: copy_share(&lines),
        gbps: bits / outcome.elapsed.as_secs_f64() / 1e9,
        functions: lines.into_iter().map(str::to_owned).collect(),
    })
}

/// The share of the samples, in per cent, in functions that copy bytes.
fn copy_share(report: &[&str]) -> f64 {
    const COPYING: [&str; 6] =
        ["_copy_from_iter", "_copy_to_iter", "copy_user", "rep_movs", "memcpy", "memmove"];
    let share = |line: &&str| -> Option<f64> {
        let symbol = line.split_ascii_whitespace().last()?;
        let copies = COPYING.iter().any(|name| symbol.contains(name));
        copies.then(|| line.trim().split_once('%')?.0.parse().ok()).flatten()
    };
    report.iter().filter_map(share).fold(0.0, |sum, one| sum + one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_summed_up() {
        let report = [
            "    12.50%  sendoff  [kernel.kallsyms]  [k] _copy_from_iter",
            "     2.25%  sendoff-php  libc.so.6  [.] __memmove_avx_unaligned_erms",
            "    30.00%  sendoff  [kernel.kallsyms]  [k] finish_task_switch.isra.0",
        ];
        assert_eq!(copy_share(&report), 14.75);
    }

    #[test]
    fn strace_tables_are_read_with_and_without_errors() {
        let table = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.000060           1      2000       500 recvfrom
 40.00    0.000040           1      1500           writev
------ ----------- ----------- --------- --------- ----------------
100.00    0.000100           1      3500       500 total
";
        let counts = parse_counts(table);
        assert_eq!(counts.len(), 2);
        assert_eq!(counts.get("recvfrom"), Some(&2.0));
        assert_eq!(counts.get("writev"), Some(&1.5));
    }
}
