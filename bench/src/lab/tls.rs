//! TLS and HTTP/2, by h2load, which checks statuses; curl fetches one body for comparison.

use super::claims::{Bound, Claim, Ratio};
use super::experiment::Figure;
use super::results::{Point, Values};
use super::rounds::{Measurement, Setting};
use crate::cpu;
use crate::measure::Contestant;
use crate::peers::{Peer, Tls};
use crate::report::SENDOFF;
use crate::site::{Page, Workload};
use anyhow::{Context, Result, ensure};
use std::process::{Command, Output};

const HTTP1: &str = "HTTP/1.1 over TLS";
const HTTP2: &str = "HTTP/2 over TLS";

pub(crate) const TLS: Measurement = Measurement {
    name: "tls",
    about: "A small script and static files over TLS 1.3, by HTTP/1.1 and HTTP/2 (h2load)",
    workers: 4,
    servers: |sendoff| {
        let nginx = Box::new(Tls::Nginx) as Box<dyn Peer>;
        vec![nginx, Box::new(Tls::Sendoff(sendoff.clone()))]
    },
    points: |effort| {
        let shown = effort.choose(2, 4);
        let part = |part| {
            let pages = (0_u32..).zip(pages()).take(shown);
            pages.map(move |(x, page)| Point::new(part, f64::from(x), &*page.name))
        };
        part(HTTP1).chain(part(HTTP2)).collect()
    },
    furnish: |site, _| pages().iter().try_for_each(|page| site.add(page)),
    run,
    figures: || {
        let of = |title, part, y, value| Figure::bars(part, title, y, value);
        vec![
            of("HTTP/1.1 over TLS", HTTP1, "requests/s", "rate"),
            of("HTTP/1.1 over TLS: CPU time of the server", HTTP1, "µs per response", "server_us"),
            of("HTTP/2 over TLS", HTTP2, "requests/s", "rate"),
            of("HTTP/2 over TLS: CPU time of the server", HTTP2, "µs per response", "server_us"),
        ]
    },
    claims: &[Claim {
        says: "Suzumura et al., figure 7: zero copy brings nothing over TLS",
        part: HTTP1,
        value: "rate",
        // A script that prints a file of 60 KB.
        ratio: Ratio::Servers { x: 2.0, of: SENDOFF, to: "nginx+fpm" },
        paper: Some(1.0),
        holds: Bound::Within(0.95, 1.05),
    }],
};

fn pages() -> [Workload; 4] {
    [
        Workload::new("hello", Page::Hello),
        Workload::new("static-10k", Page::Static(10 * 1024)),
        Workload::new("echo-60k", Page::Echo(60 * 1024)),
        Workload::new("static-1m", Page::Static(1024 * 1024)),
    ]
}

fn run(setting: &Setting, contestant: &Contestant, point: &Point) -> Result<Values> {
    let pages = pages();
    let page = pages.iter().find(|page| page.name == *point.label).context("an unknown page")?;
    let url = format!("https://{}{}", contestant.running.addr, page.path());
    let body = checked(Command::new("curl").args(["--silent", "--insecure", "--fail", &url]))?;
    ensure!(body.stdout == page.body(), "{url}: the body is wrong");
    // 32 requests at a time, over 32 connections or over 4.
    let ways =
        if point.part == HTTP1 { &["--h1", "-c", "32"][..] } else { &["-c", "4", "-m", "8"] };
    // h2load knows whole seconds only.
    let seconds = setting.plan.time.as_secs().max(1).to_string();
    let roots = contestant.running.roots();
    let before = cpu::sample(&roots)?;
    let output = checked(Command::new("h2load").args(ways).args(["-D", &seconds, &url]))?;
    let used = cpu::sample(&roots)? - before;
    let (count, rate) = counts(&String::from_utf8_lossy(&output.stdout))?;
    let server_us = (used.front + used.worker).as_secs_f64() * 1e6 / count;
    Ok(Values::from([("rate".to_owned(), rate), ("server_us".to_owned(), server_us)]))
}

fn checked(command: &mut Command) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {} {said}", output.status);
    Ok(output)
}

/// Responses, and responses per second, of h2load's report.
fn counts(report: &str) -> Result<(f64, f64)> {
    let line = |start: &str| {
        let found = report.lines().find(|line| line.starts_with(start));
        found.with_context(|| format!("h2load printed no line {start:?}:\n{report}"))
    };
    let requests = line("requests: ")?;
    let number = |name: &str| -> Result<f64> {
        let part = requests.split([',', ':']).find_map(|part| part.trim().strip_suffix(name));
        Ok(part.with_context(|| format!("{name} is not in {requests:?}"))?.trim().parse()?)
    };
    let (succeeded, failed) = (number("succeeded")?, number("failed")? + number("errored")?);
    ensure!(succeeded > 0.0 && failed == 0.0, "{requests}");
    let rate = line("finished in ")?.split(", ").find_map(|part| part.strip_suffix(" req/s"));
    Ok((succeeded, rate.context("h2load printed no rate")?.parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_requests_fail_the_run() {
        let report = |failed: u32| {
            format!(
                "finished in 1.00s, 1234.50 req/s, 5.00MB/s\n\
                 requests: 1240 total, 1240 started, 1240 done, 1200 succeeded, {failed} failed, 0 errored, 0 timeout\n"
            )
        };
        assert_eq!(counts(&report(0)).expect("right"), (1200.0, 1234.5));
        assert!(counts(&report(40)).expect_err("failed").to_string().contains("40 failed"));
        assert!(counts("nothing").is_err());
    }
}
