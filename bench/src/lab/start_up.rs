//! Start-up: the time from the command to the first page, and the memory of an idle server.

use super::asking::{ask, hello_site};
use super::experiment::{Effort, Experiment, Figure, Stage, Workbench};
use super::results::{Conditions, Point, Series, Values};
use crate::cpu;
use crate::peers::Peer;
use crate::processes::memory_kb;
use crate::servers::{common, installed};
use crate::site::{Account, Site};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const PART: &str = "start";
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct StartUp;

impl Experiment for StartUp {
    fn name(&self) -> &'static str {
        "start-up"
    }

    fn about(&self) -> &'static str {
        "Time from the command to the first page of PHP, with four workers; memory of all processes then"
    }

    fn points(&self, _: Effort) -> Vec<Point> {
        vec![Point::new(PART, 0.0, "first page")]
    }

    fn start(&self, bench: &Workbench, conditions: &mut Conditions) -> Result<Box<dyn Stage>> {
        let site = Site::create(&bench.dir, Account::for_servers()?, &[])?;
        hello_site(&site)?;
        let wanted = common(&bench.sendoff).into_iter().filter(|peer| bench.wants(peer.name()));
        let peers = installed(wanted, &mut conditions.versions);
        let (dir, rounds) = (bench.dir.clone(), bench.plan.rounds);
        Ok(Box::new(Starts { site, peers, dir, rounds, started: 0 }))
    }

    fn figures(&self) -> Vec<Figure> {
        let of = |title, y, value| Figure::bars(PART, title, y, value);
        vec![
            of("Time to the first page", "ms", "first_page_ms"),
            of("Memory when idle", "MB", "memory_mb"),
        ]
    }
}

struct Starts {
    site: Site,
    peers: Vec<Box<dyn Peer>>,
    dir: PathBuf,
    rounds: usize,
    /// Servers started so far: each has a folder of its own.
    started: usize,
}

impl Stage for Starts {
    fn measure(&mut self, _: &Point) -> Result<Vec<Series>> {
        let mut all: Vec<Series> = Vec::new();
        for peer in &self.peers {
            all.push(Series { name: peer.name().to_owned(), ..Series::default() });
        }
        for _ in 0..self.rounds {
            for (peer, series) in self.peers.iter().zip(&mut all) {
                self.started += 1;
                let dir = self.dir.join(format!("start-{}", self.started));
                fs::create_dir(&dir)?;
                if series.error.is_none() {
                    series.take(first_page(&**peer, &self.site, &dir));
                }
            }
        }
        Ok(all)
    }
}

fn first_page(peer: &dyn Peer, site: &Site, dir: &std::path::Path) -> Result<Values> {
    let started = Instant::now();
    let running = peer.start(site, dir)?;
    let body = ask(running.addr, "/hello.php", PATIENCE).context("the first page")?;
    ensure!(body == b"hello", "the first page is wrong");
    let elapsed = started.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 KB")]
    let memory = memory_kb(&cpu::tree(&running.roots())?) as f64 / 1024.0;
    Ok(Values::from([
        ("first_page_ms".to_owned(), elapsed * 1e3),
        ("memory_mb".to_owned(), memory),
    ]))
}
