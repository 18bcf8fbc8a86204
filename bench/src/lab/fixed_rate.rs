//! Pages at a fixed rate: response times of users who do not wait for each other.

use super::experiment::{Figure, Shape};
use super::results::{Point, Values};
use super::rounds::{Measurement, Setting};
use crate::cpu;
use crate::load::Target;
use crate::measure::Contestant;
use crate::open_loop::{self, Schedule};
use crate::servers::common_and_tuned;
use crate::site::{Page, Workload};
use anyhow::{Result, ensure};

const HELLO: &str = "hello";
const FILE: &str = "a file of 60 KB";
/// More than a server has PHP workers, so that requests wait in the server.
const CONNECTIONS: usize = 64;

pub(crate) const FIXED_RATE: Measurement = Measurement {
    name: "fixed-rate",
    about: "Scripts that print hello or a file of 60 KB at 250 to 8,000 requests/s (open loop): response times from the time at which a request was due",
    workers: 8,
    servers: common_and_tuned,
    points: |effort| {
        let rates = effort.choose(&[500, 2000][..], &[250, 500, 1000, 2000, 4000, 8000]);
        let part = |part| {
            rates.iter().map(move |&n| Point::new(part, f64::from(n), format!("{n} requests/s")))
        };
        part(HELLO).chain(part(FILE)).collect()
    },
    furnish: |site, _| [HELLO, FILE].iter().try_for_each(|part| site.add(&page(part))),
    run,
    figures,
    claims: &[],
};

fn page(part: &str) -> Workload {
    match part {
        HELLO => Workload::new("hello", Page::Hello),
        _ => Workload::new("echo-60k", Page::Echo(60 * 1024)),
    }
}

fn figures() -> Vec<Figure> {
    let of = |part, title, y, value| Figure {
        shape: Shape::Lines,
        x: "requests/s that are due",
        ..Figure::bars(part, title, y, value)
    };
    vec![
        of(HELLO, "Hello: response time, median", "ms", "median_ms"),
        of(HELLO, "Hello: response time, 99th percentile", "ms", "p99_ms"),
        of(HELLO, "Hello: response time, 99.9th percentile", "ms", "p999_ms"),
        of(HELLO, "Hello: responses", "responses/s", "rate"),
        of(HELLO, "Hello: CPU time of the server", "µs per response", "server_us"),
        of(HELLO, "Hello: CPU time of the load generator", "% of a core", "client_cpu"),
        of(FILE, "60 KB: response time, median", "ms", "median_ms"),
        of(FILE, "60 KB: response time, 99th percentile", "ms", "p99_ms"),
        of(FILE, "60 KB: response time, 99.9th percentile", "ms", "p999_ms"),
        of(FILE, "60 KB: responses", "responses/s", "rate"),
        of(FILE, "60 KB: CPU time of the server", "µs per response", "server_us"),
        of(FILE, "60 KB: CPU time of the load generator", "% of a core", "client_cpu"),
    ]
}

fn run(setting: &Setting, contestant: &Contestant, point: &Point) -> Result<Values> {
    let page = page(&point.part);
    let (path, body) = (page.path(), page.body());
    let target = Target { addr: contestant.running.addr, path: &path, body: &body };
    let schedule = Schedule { rate: point.x, time: setting.plan.time, connections: CONNECTIONS };
    // Scripts are compiled, and processes started, before the clock starts.
    open_loop::run(target, Schedule { time: schedule.time / 5, ..schedule })?;
    let roots = contestant.running.roots();
    let before = cpu::sample(&roots)?;
    let times = open_loop::run(target, schedule)?;
    let used = cpu::sample(&roots)? - before;
    ensure!(times.answered > 0, "no request was answered");
    let (answered, elapsed) = (f64::from(times.answered), times.elapsed.as_secs_f64());
    let values = [
        ("rate", answered / elapsed.max(schedule.time.as_secs_f64())),
        ("median_ms", times.percentile(0.5)),
        ("p99_ms", times.percentile(0.99)),
        ("p999_ms", times.percentile(0.999)),
        ("server_us", (used.front + used.worker).as_secs_f64() * 1e6 / answered),
        ("client_cpu", times.client_cpu.as_secs_f64() / elapsed * 100.0),
    ];
    Ok(values.map(|(name, value)| (name.to_owned(), value)).into())
}
