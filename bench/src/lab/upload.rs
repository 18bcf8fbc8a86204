//! Uploads: request bodies that a script reads.

use super::asking::{at_once, exchange};
use super::experiment::Figure;
use super::results::{Point, Values};
use super::rounds::{Measurement, Setting};
use crate::cpu;
use crate::measure::Contestant;
use crate::servers::common;
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};

const PART: &str = "bodies";
/// Clients that upload at a time: as many as there are PHP workers.
const CLIENTS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const UPLOAD: Measurement = Measurement {
    name: "upload",
    about: "Four clients post bodies of 10 KB to 4 MB to a script that hashes them",
    workers: CLIENTS,
    servers: common,
    points: |effort| {
        let sizes = effort.choose(&[1024][..], &[10, 100, 1024, 4096]);
        sizes.iter().map(|&kb| Point::new(PART, f64::from(kb), format!("{kb} KB"))).collect()
    },
    furnish: |site, _| {
        // crc32b takes less time than the transfer, unlike md5.
        site.file("upload.php", b"<?php\necho hash('crc32b', file_get_contents('php://input'));\n")
    },
    run,
    figures: || {
        let of = |title, y, value| Figure::bars(PART, title, y, value);
        vec![
            of("Uploads", "uploads/s", "rate"),
            of("CPU time of the server", "µs per upload", "server_us"),
        ]
    },
    claims: &[],
};

fn run(setting: &Setting, contestant: &Contestant, point: &Point) -> Result<Values> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 4 MB")]
    let size = point.x as usize * 1024;
    let body: Vec<u8> = (0..=250).cycle().take(size).collect();
    let addr = contestant.running.addr;
    // `crc32b` of PHP is the CRC of gzip and zip.
    let expected = format!("{:08x}", crc32fast::hash(&body));
    let (roots, time) = (contestant.running.roots(), setting.plan.time);
    let before = cpu::sample(&roots)?;
    let started = Instant::now();
    let upload = || -> Result<u32> {
        let mut done = 0;
        while done == 0 || started.elapsed() < time {
            let answer = exchange(addr, "POST", "/upload.php", &body, PATIENCE)?;
            let answer = String::from_utf8_lossy(&answer);
            ensure!(answer == expected, "the script hashed other bytes: {answer:?}");
            done += 1;
        }
        Ok(done)
    };
    let counts = at_once(setting.workers, upload)?;
    let elapsed = started.elapsed();
    let used = cpu::sample(&roots)? - before;
    let count = f64::from(counts.into_iter().sum::<u32>());
    Ok(Values::from([
        ("rate".to_owned(), count / elapsed.as_secs_f64()),
        ("server_us".to_owned(), (used.front + used.worker).as_secs_f64() * 1e6 / count),
    ]))
}
