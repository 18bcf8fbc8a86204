//! The status page (`status_page = true` in a route): a page without figures, whose script asks for
//! them as JSON.
//!
//! Texts that clients choose, such as the paths of requests, appear only in the JSON, and the
//! script shows them as text. The policy allows only the page's own script to run.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sendoff_report::meters::{BOUNDS, OTHER_STATUS, SentResponses, SiteMeter};
use sendoff_report::status::{PoolStatus, RequestStatus, UpstreamStatus, WorkerStatus};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::gather::{Figures, Gatherer};
use crate::metrics::busy;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Maximum number of requests at work on the page.
const MOST_SHOWN: usize = 32;

/// The page.
pub static PAGE: LazyLock<String> = LazyLock::new(|| {
    let page = include_str!("page.html");
    page.replacen("STYLE", STYLE, 1).replacen("SCRIPT", SCRIPT, 1)
});

/// The page's `Content-Security-Policy`: the page may load its own style, run its own script and
/// fetch the figures.
pub static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hash(STYLE),
        hash(SCRIPT)
    )
});

/// The figures in the form for the script.
#[derive(Debug, Serialize)]
struct ShownFigures<'f> {
    version: &'static str,
    /// Seconds since 1970.
    started: u64,
    /// Seconds.
    uptime: u64,
    connections: usize,
    idle_connections: usize,
    malformed: u64,
    log_lines_dropped: u64,
    /// The upper bounds of times, in microseconds.
    bounds: [u64; BOUNDS.len()],
    sites: Vec<SiteShown<'f>>,
    pools: Vec<PoolShown<'f>>,
    upstreams: &'f [UpstreamStatus],
    limits: &'f BTreeMap<String, u64>,
    /// The oldest requests, including requests that wait for a worker.
    requests: &'f [RequestStatus],
}

#[derive(Debug, Serialize)]
struct SiteShown<'f> {
    name: &'f str,
    requests: u64,
    handed_over: u64,
    copied: u64,
    /// Statuses of 400 to 499.
    refusals: u64,
    /// Statuses from 500 on.
    errors: u64,
    /// A histogram of times; its upper bounds are `ShownFigures::bounds`.
    times: &'f [u64],
}

#[derive(Debug, Serialize)]
struct PoolShown<'f> {
    name: &'f str,
    workers: usize,
    busy: usize,
    waiting: usize,
    requests: u64,
    slow: u64,
    limit_reached: u64,
    at_work: Vec<&'f WorkerStatus>,
}

impl<'f> SiteShown<'f> {
    fn new(name: &'f str, meter: &'f SiteMeter) -> Self {
        let sum = |of: fn(&SentResponses) -> u64| meter.sent.iter().map(of).sum();
        let statuses = |from: u16, to: u16| {
            let all = meter.statuses.iter().filter(|(status, _)| *status != OTHER_STATUS);
            all.filter(|(status, _)| (from..to).contains(status)).map(|(_, count)| count).sum()
        };
        Self {
            name,
            requests: sum(|sent| sent.responses),
            handed_over: sum(|sent| sent.handed_over),
            copied: sum(|sent| sent.copied),
            refusals: statuses(400, 500),
            errors: statuses(500, u16::MAX),
            times: &meter.duration.buckets,
        }
    }
}

impl<'f> PoolShown<'f> {
    fn new(name: &'f str, pool: &'f PoolStatus) -> Self {
        let PoolStatus { waiting, requests, limit_reached, slow, .. } = *pool;
        let mut at_work: Vec<_> =
            pool.workers.iter().filter(|worker| worker.request.is_some()).collect();
        let age = |worker: &WorkerStatus| worker.at_work.as_ref().map_or(0, |request| request.age);
        at_work.sort_by_key(|worker| Reverse(age(worker)));
        at_work.truncate(MOST_SHOWN);
        Self {
            name,
            workers: pool.workers.len(),
            busy: busy(pool),
            waiting,
            requests,
            slow,
            limit_reached,
            at_work,
        }
    }
}

/// The figures as JSON, with the shared state of `gatherer`, from which `figures` come.
///
/// # Errors
/// They cannot be written.
pub fn json(figures: &Figures, gatherer: &Gatherer) -> serde_json::Result<String> {
    let Figures { config, status, sites, pools: _ } = figures;
    let sites = config.sites.iter().zip(sites);
    let pools = config.pools.iter().zip(&status.pools);
    let since = |time: SystemTime| time.elapsed().map_or(0, |since| since.as_secs());
    let started = gatherer.started.duration_since(SystemTime::UNIX_EPOCH);
    serde_json::to_string(&ShownFigures {
        version: env!("CARGO_PKG_VERSION"),
        started: started.map_or(0, |since| since.as_secs()),
        uptime: since(gatherer.started),
        connections: status.connections,
        idle_connections: status.idle_connections,
        malformed: status.refused,
        log_lines_dropped: gatherer.log.dropped(),
        bounds: BOUNDS,
        sites: sites
            .filter_map(|(site, meter)| Some(SiteShown::new(&site.name, meter.as_deref()?)))
            .collect(),
        pools: pools.map(|(pool, status)| PoolShown::new(&pool.name, status)).collect(),
        upstreams: &status.upstreams,
        limits: &status.limits,
        requests: &status.requests[..status.requests.len().min(MOST_SHOWN)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        assert!(PAGE.contains(STYLE) && PAGE.contains(SCRIPT));
        for foreign in ["http:", "https:", "//cdn", "@import", "url(", "innerHTML", "eval("] {
            let found = PAGE.replace("http://www.w3.org/2000/svg", "").contains(foreign);
            assert!(!found, "{foreign}");
        }
        assert!(!SCRIPT.contains("</") && !STYLE.contains("</"), "they would end too early");
    }
}
