//! The Markdown report: facts about the machine, then one table for each server against the
//! reference, which is the first server.

use crate::measure::{Measured, Plan, Sample, Series};
use crate::site::Target;
use crate::stats::Spread;
use std::fmt::Write;
use std::fs;
use std::thread::available_parallelism;

/// The kernel, the processors, and TCP's pacing of output.
pub(crate) fn machine() -> String {
    let proc = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu_info = proc("/proc/cpuinfo");
    let model = cpu_info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown", |(_, model)| model);
    let cores = available_parallelism().map_or(0, usize::from);
    let kernel = proc("/proc/sys/kernel/osrelease");
    let congestion = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    let congestion = congestion.as_deref().map_or("unknown", str::trim);
    format!("Linux {}, {cores} cores ({model}), TCP {congestion}", kernel.trim())
}

/// Information to judge and reproduce the numbers.
pub(crate) fn header(versions: &[(String, String)], plan: Plan) -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_ascii_whitespace().next().unwrap_or("unknown");
    let command: Vec<String> = std::env::args().collect();
    let mut text = format!(
        "Machine: {}, load {load} at the start. The client shares them with the servers.\n",
        machine()
    );
    for (name, version) in versions {
        let _infallible = writeln!(text, "{name}: {version}");
    }
    let bodies = if plan.read_all {
        "reads every byte"
    } else {
        "compares 1 % of the bodies and discards the others in the kernel"
    };
    let _infallible = writeln!(
        text,
        "Method: {} rounds of {:?} for each server in turn, {} keep-alive connections, {} PHP workers; the client {bodies}.\n\
         Medians; ratios within a round, as median (smallest to largest). CPU is user and system time per response.\n\
         Command: `{}`",
        plan.rounds,
        plan.time,
        plan.connections,
        crate::peers::PHP_WORKERS,
        command.join(" ")
    );
    // Two spaces end a line in Markdown without ending the paragraph.
    text.lines().map(|line| format!("{line}  \n")).collect()
}

/// The table of one server (`index`) against the reference. Targets exist only for sendoff.
pub(crate) fn table(names: &[String], index: usize, measured: &[Measured]) -> String {
    let (reference, name) = (&names[0], &names[index]);
    let mut text = format!("## {name} against {reference}\n\n");
    let columns = [
        "workload".to_owned(),
        format!("{reference} req/s"),
        format!("{name} req/s"),
        "ratio".to_owned(),
        format!("CPU µs {reference} (front/worker)"),
        format!("CPU µs {name} (front/worker)"),
        "CPU ratio".to_owned(),
        "target".to_owned(),
    ];
    row(&mut text, &columns);
    row(&mut text, &columns.map(|_| "---".to_owned()));
    for one in measured {
        let (base, own) = (&one.series[0], &one.series[index]);
        let rate = own.ratio(base, |s| s.rate);
        // The inverse ratio, so that more is better in both columns.
        let cpu = base.ratio(own, Sample::server_us);
        let target = one.workload.target.filter(|_| name == SENDOFF);
        row(
            &mut text,
            &[
                one.workload.name.to_string(),
                requests(base),
                requests(own),
                times(rate),
                micros(base),
                micros(own),
                times(cpu),
                target.map_or_else(|| "-".into(), |t| verdict(t, base, own)),
            ],
        );
    }
    text
}

/// Absolute numbers of one server, for a measurement without comparison.
pub(crate) fn single(names: &[String], measured: &[Measured]) -> String {
    let mut text = format!("## {} alone\n\n", names[0]);
    let columns = ["workload", "req/s", "CPU µs (front/worker)"].map(String::from);
    row(&mut text, &columns);
    row(&mut text, &columns.map(|_| "---".to_owned()));
    for one in measured {
        let series = &one.series[0];
        let cells = [one.workload.name.to_string(), requests(series), micros(series)];
        row(&mut text, &cells);
    }
    text
}

/// The load generator's own CPU time. It lowers every server's requests/s, because they share the
/// machine.
pub(crate) fn client_table(names: &[String], measured: &[Measured]) -> String {
    let mut text = "## CPU µs of the client per response\n\n".to_owned();
    let title = |first: &str| -> Vec<String> {
        std::iter::once(first.to_owned()).chain(names.iter().cloned()).collect()
    };
    let columns = title("workload");
    row(&mut text, &columns);
    row(&mut text, &vec!["---".to_owned(); columns.len()]);
    for one in measured {
        let client = |series: &Series| number(series.spread(|s| s.client_us));
        let cells: Vec<String> = std::iter::once(one.workload.name.to_string())
            .chain(one.series.iter().map(client))
            .collect();
        row(&mut text, &cells);
    }
    text
}

/// Every failed run with its reason; empty if there is none.
pub(crate) fn failures(names: &[String], measured: &[Measured]) -> String {
    let mut text = String::new();
    for one in measured {
        for (name, series) in names.iter().zip(&one.series) {
            for why in &series.failures {
                let _infallible = writeln!(text, "- {}, {name}: {why}", one.workload.name);
            }
        }
    }
    if text.is_empty() {
        return text;
    }
    format!("## Failed runs\n\n{text}")
}

/// The name of the server for which the workload table has targets.
pub(crate) const SENDOFF: &str = "sendoff";

pub(crate) fn row(text: &mut String, cells: &[String]) {
    let _infallible = writeln!(text, "| {} |", cells.join(" | "));
}

fn requests(series: &Series) -> String {
    number(series.spread(|s| s.rate))
}

fn number(spread: Option<Spread>) -> String {
    spread.map_or_else(|| "failed".into(), |s| format!("{:.0}", s.median))
}

fn times(ratio: Option<Spread>) -> String {
    ratio.map_or_else(
        || "failed".into(),
        |r| format!("{:.2}× ({:.2}-{:.2})", r.median, r.min, r.max),
    )
}

fn micros(series: &Series) -> String {
    let median = |value: fn(&Sample) -> f64| series.spread(value).map(|s| s.median);
    let parts = (median(Sample::server_us), median(|s| s.front_us), median(|s| s.worker_us));
    match parts {
        (Some(sum), Some(front), Some(worker)) => format!("{sum:.0} ({front:.0}/{worker:.0})"),
        _ => "failed".into(),
    }
}

fn verdict(target: Target, base: &Series, own: &Series) -> String {
    let rate = own.ratio(base, |s| s.rate);
    let cpu = base.ratio(own, Sample::server_us);
    let met = |ratio: Option<Spread>, wanted| ratio.is_some_and(|r| r.median >= wanted);
    let word = |is_met| if is_met { "met" } else { "missed" };
    match target {
        Target::Both(times) => match (met(rate, times), met(cpu, times)) {
            (true, false) => format!("{times}× CPU missed"),
            (false, true) => format!("{times}× req/s missed"),
            (both, _) => format!("{times}× {}", word(both)),
        },
        Target::Cpu(times) => format!("{times}× CPU {}", word(met(cpu, times))),
        Target::Worker(times) => {
            let worker = base.ratio(own, |s| s.worker_us);
            let shown = worker.map_or_else(|| "failed".into(), |r| format!("{:.1}×", r.median));
            format!("{times}× worker {}: {shown}", word(met(worker, times)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::WORKLOADS;

    fn series(rate: f64, worker_us: f64) -> Series {
        let sample = Sample { rate, front_us: 10.0, worker_us, client_us: 7.0 };
        Series { samples: vec![Some(sample)], failures: vec![] }
    }

    fn names() -> Vec<String> {
        vec!["old".into(), SENDOFF.into()]
    }

    #[test]
    fn a_row_shows_ratios_and_whether_the_target_is_met() {
        let measured = [Measured {
            workload: &WORKLOADS[0],
            series: vec![series(1000.0, 90.0), series(2500.0, 70.0)],
        }];
        let text = table(&names(), 1, &measured);
        let expected = "| hello | 1000 | 2500 | 2.50× (2.50-2.50) | 100 (10/90) | 80 (10/70) | 1.25× (1.25-1.25) | 1.5× CPU missed |";
        assert_eq!(text.lines().last(), Some(expected));
        assert_eq!(failures(&names(), &measured), "");
    }

    #[test]
    fn failures_are_not_averaged_away() {
        let mut broken = series(9999.0, 1.0);
        broken.failures.push("status 502".into());
        let measured =
            [Measured { workload: &WORKLOADS[0], series: vec![series(1000.0, 90.0), broken] }];
        let text = table(&names(), 1, &measured);
        assert!(!text.contains("9999"), "{text}");
        assert!(
            text.ends_with("| failed | failed | 100 (10/90) | failed | failed | 1.5× missed |\n")
        );
        assert!(failures(&names(), &measured).contains("- hello, sendoff: status 502"));
    }
}
