//! Slow clients: downloads that a script prints, read at the speed of a slow line, while the server
//! is asked for a small page.

use super::asking::{MIB, ask, hello_site};
use super::experiment::{Effort, Figure};
use super::results::{Point, Values};
use super::rounds::{Measurement, Setting};
use crate::cpu;
use crate::measure::Contestant;
use crate::processes::{held, memory_kb, temporary_bytes};
use crate::servers::common;
use crate::site::{Page, Workload, text};
use crate::slow::SlowClients;
use crate::stats::Spread;
use anyhow::{Context, Result, ensure};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

const PART: &str = "clients";
/// A page that takes longer counts as not answered.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for a server to notice that the clients of the last round have gone.
const RECOVERY: Duration = Duration::from_secs(30);

pub(crate) const SLOW_CLIENTS: Measurement = Measurement {
    name: "slow-clients",
    about: "1 to 1,000 clients read a download of 100 MB from a script at 100,000 bytes/s: workers held, memory, and the time of a small page meanwhile",
    workers: 4,
    servers: common,
    points: |effort| {
        let counts = effort.choose(&[1, 8, 40][..], &[1, 4, 16, 64, 250, 1000]);
        counts.iter().map(|&n| Point::new(PART, f64::from(n), format!("{n} clients"))).collect()
    },
    furnish: |site, effort| {
        hello_site(site)?;
        site.add(&download(effort))
    },
    run,
    figures,
    claims: &[],
};

fn size(effort: Effort) -> usize {
    effort.choose(10, 100) * MIB
}

fn download(effort: Effort) -> Workload {
    Workload::new("download", Page::Readfile(size(effort)))
}

fn figures() -> Vec<Figure> {
    let of = |title, y, value| Figure::bars(PART, title, y, value);
    vec![
        of("A small page meanwhile", "ms, median of the pages", "hello_ms"),
        of("Small pages answered within 5 s", "%", "answered"),
        of("Processes that wait for slow clients", "processes", "held"),
        of("Memory", "KB per client", "kb_per_client"),
        of("Temporary files", "MB", "disk_mb"),
    ]
}

fn run(setting: &Setting, contestant: &Contestant, point: &Point) -> Result<Values> {
    let (addr, roots) = (contestant.running.addr, contestant.running.roots());
    recovered(addr)?;
    let size = size(setting.effort);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
    let count = point.x as usize;
    let needed = (size * count) as u64;
    let free = free_bytes(setting)?;
    let spools =
        contestant.name != crate::report::SENDOFF && !contestant.name.starts_with("apache");
    ensure!(
        !spools || needed < free,
        "not measured: its temporary files may need {} MB, and {} MB are free",
        needed / MIB as u64,
        free / MIB as u64
    );
    let memory = memory_kb(&cpu::tree(&roots)?);
    let path = download(setting.effort).path();
    let mut clients = SlowClients::of(addr, path, text(size, 'a'));
    clients.set_count(count)?;
    let time = setting.plan.time.max(Duration::from_secs(1));
    let reader = thread::spawn(move || clients.read_for(time).map(|()| clients));
    let mut answers = Vec::new();
    let (started, mut asked) = (Instant::now(), 0_u32);
    while started.elapsed() < time || asked == 0 {
        asked += 1;
        let before = Instant::now();
        if ask(addr, "/hello.php", PATIENCE).is_ok_and(|body| body == b"hello") {
            answers.push(before.elapsed().as_secs_f64() * 1e3);
        }
        thread::sleep(Duration::from_millis(10));
    }
    let clients = reader.join().map_err(|_| anyhow::anyhow!("the clients failed"))??;
    let (mut values, processes) = (Values::new(), cpu::tree(&roots)?);
    let mut note = |name: &str, value: f64| values.insert(name.to_owned(), value);
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    {
        note("answered", answers.len() as f64 / f64::from(asked) * 100.0);
        note("kb_per_client", (memory_kb(&processes) - memory) as f64 / count as f64);
        note("disk_mb", temporary_bytes(&processes) as f64 / MIB as f64);
        if let Some(held) = held(&processes) {
            note("held", held as f64);
        }
    }
    if let Some(spread) = Spread::of(answers) {
        note("hello_ms", spread.median);
    }
    drop(clients);
    Ok(values)
}

/// Waits until a server whose clients have gone answers again.
fn recovered(addr: SocketAddr) -> Result<()> {
    let started = Instant::now();
    loop {
        match ask(addr, "/hello.php", PATIENCE) {
            Ok(body) => {
                ensure!(body == b"hello", "a wrong page");
                return Ok(());
            }
            Err(error) if started.elapsed() > RECOVERY => {
                return Err(error).context("no answer after the clients had gone");
            }
            Err(_) => {}
        }
    }
}

fn free_bytes(setting: &Setting) -> Result<u64> {
    let stat = rustix::fs::statvfs(&setting.dir)?;
    Ok(stat.f_bavail * stat.f_frsize)
}
