//! Everyday pages: a small script, static files, a page cache, an application that boots.

use super::comparison::{Comparison, Copies, Entry, Row};
use super::experiment::{Effort, Figure, Value};
use super::results::Point;
use crate::load::Persistence;
use crate::peers::{Booted, Kept, Nginx, Peer};
use crate::servers::common_and_tuned;
use crate::site::{KEPT, Page, WORKLOADS, Workload};

const PAGES: &str = "pages";

pub(crate) const EVERYDAY: Comparison = Comparison {
    name: "pages",
    about: "A script that prints hello, scripts that print or generate a page, static files",
    workers: 4,
    connections: 32,
    servers: common_and_tuned,
    rows: |effort| {
        let short = ["hello", "static-10k"];
        let shown = |w: &&Workload| effort == Effort::Full || short.contains(&&*w.name);
        rows(WORKLOADS.iter().filter(shown))
    },
    figures: || figures("nginx+fpm"),
    claims: &[],
    copies: Copies::NotSampled,
};

pub(crate) const PAGE_CACHE: Comparison = Comparison {
    name: "page-cache",
    about: "Pages of PHP that a page cache keeps: nginx, Varnish, Sendoff",
    servers: |sendoff| {
        vec![
            Box::new(Kept::Nginx),
            Box::new(Kept::Sendoff(sendoff.clone())),
            Box::new(Kept::Varnish),
        ]
    },
    rows: |effort| rows(KEPT.iter().take(effort.choose(1, KEPT.len()))),
    figures: || figures("nginx"),
    ..EVERYDAY
};

/// The script of [`Booted`], which boots for each request elsewhere.
const BOOTING: &[(u32, &str)] =
    &[(100, "worker mode, 100"), (1_000, "worker mode, 1000"), (10_000, "worker mode, 10000")];

pub(crate) const WORKER_MODE: Comparison = Comparison {
    name: "worker-mode",
    about: "A script that builds a table before it answers: for each request, and once in worker mode",
    servers: |sendoff| {
        let booted = BOOTING.iter().map(|&(entries, name)| {
            Box::new(Booted { name, sendoff: sendoff.clone(), script: booting(entries).path() })
                as Box<dyn Peer>
        });
        // Worker mode boots one script, so each page has a server of its own.
        [Box::new(Nginx::Unlogged) as Box<dyn Peer>, Box::new(sendoff.clone())]
            .into_iter()
            .chain(booted)
            .collect()
    },
    rows: |_| BOOTING.iter().map(|&(entries, name)| worker_mode_row(entries, name)).collect(),
    figures: || figures("nginx+fpm"),
    ..EVERYDAY
};

fn booting(entries: u32) -> Workload {
    Workload::new(format!("booting-{entries}"), Page::Booting(entries))
}

fn worker_mode_row(entries: u32, booted: &'static str) -> Row {
    Row {
        point: Point::new(PAGES, f64::from(entries), format!("{entries} entries")),
        persistence: Persistence::Kept,
        entries: ["nginx+fpm", "sendoff"]
            .map(|server| Entry::on(server, server, booting(entries)))
            .into_iter()
            .chain([Entry::on(booted, "sendoff, worker mode", booting(entries))])
            .collect(),
    }
}

fn rows<'a>(workloads: impl Iterator<Item = &'a Workload>) -> Vec<Row> {
    let row = |(x, workload): (u32, &Workload)| Row {
        point: Point::new(PAGES, f64::from(x), &*workload.name),
        persistence: Persistence::Kept,
        entries: vec![Entry::everywhere(workload.clone())],
    };
    (0..).zip(workloads).map(row).collect()
}

fn figures(reference: &'static str) -> Vec<Figure> {
    let of = |title, y, value| Figure::bars(PAGES, title, y, value);
    vec![
        of("Requests/s", "requests/s", "rate"),
        Figure {
            value: Value::RatioTo("rate", reference),
            ..of("Requests/s beside the first server", "times the first server", "rate")
        },
        of("CPU time of the server", "µs per response", "server_us"),
        of("CPU time of the load generator", "µs per response", "client_us"),
    ]
}
