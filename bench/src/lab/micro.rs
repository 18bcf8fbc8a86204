//! The micro-benchmark of Suzumura and others (section 4.1, figures 3 to 6): a script that prints a
//! file, by the size of the file and by the work that the script does besides.

use super::claims::{Bound, Claim, Ratio};
use super::comparison::{Comparison, Copies, Entry, Row};
use super::experiment::{Effort, Figure, Shape, Value};
use super::papers::{COPY_SHARE, COPY_SHARE_BY_WORK, SPEED_UP};
use super::results::Point;
use crate::load::Persistence;
use crate::report::SENDOFF;
use crate::servers::common_and_tuned;
use crate::site::{Page, Workload};

const SIZES: &[u32] = &[10, 20, 40, 60, 80, 100, 120, 140, 160, 180, 200];
/// Additions of the script. The paper ends at 50,000; PHP 8 needs more of them for as much time.
const OPERATIONS: &[u32] = &[0, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 200_000, 1_000_000];
const WORKING_SIZE: usize = 60 * 1024;

const NEW: &str = "sizes, new connections";
const KEPT: &str = "sizes, kept connections";
const WORK: &str = "work, new connections";

pub(crate) const MICRO: Comparison = Comparison {
    name: "micro",
    about: "A PHP script prints a file of 10 to 200 KB, or 60 KB after some work (Suzumura et al., figures 3 to 6)",
    // Eight FastCGI processes and 100 clients, as in the paper.
    workers: 8,
    connections: 100,
    servers: common_and_tuned,
    rows,
    figures,
    claims: CLAIMS,
    copies: Copies::Sampled,
};

fn rows(effort: Effort) -> Vec<Row> {
    let sizes = effort.choose(&[10, 60, 200][..], SIZES);
    let operations = effort.choose(&[0, 50_000][..], OPERATIONS);
    let by_size = |part, persistence| {
        sizes.iter().map(move |&kb| Row {
            point: Point::new(part, f64::from(kb), format!("{kb} KB")),
            persistence,
            entries: pages(kb as usize * 1024),
        })
    };
    let by_work = operations.iter().map(|&operations| Row {
        point: Point::new(WORK, f64::from(operations), format!("{operations} additions")),
        persistence: Persistence::New,
        entries: vec![Entry::everywhere(Workload::new(
            format!("working-{operations}"),
            Page::Working(WORKING_SIZE, operations),
        ))],
    });
    by_size(NEW, Persistence::New).chain(by_size(KEPT, Persistence::Kept)).chain(by_work).collect()
}

/// The page on each server, then the paper's other ways on Sendoff: the page goes through a file
/// that the web server sends ("level 1"), and no script at all (the limit).
fn pages(size: usize) -> Vec<Entry> {
    vec![
        Entry::everywhere(Workload::new(format!("echo-{size}"), Page::Echo(size))),
        Entry::on(SENDOFF, LEVEL_1, Workload::new(format!("copy-{size}"), Page::NamedCopy(size))),
        Entry::on(
            SENDOFF,
            "sendoff, static file",
            Workload::new(format!("static-{size}"), Page::Static(size)),
        ),
    ]
}

const LEVEL_1: &str = "sendoff, X-Sendfile of a copy";
const PLAIN: &str = "nginx+fpm";

/// Zero copy is Sendoff, plain is nginx + php-fpm.
const CLAIMS: &[Claim] = &[
    Claim {
        says: "Suzumura et al., figure 3: zero copy is faster at 10 KB",
        paper: Some(1.26),
        ..gain(Ratio::Servers { x: 10.0, of: SENDOFF, to: PLAIN })
    },
    Claim {
        says: "Suzumura et al., figure 3: zero copy is faster at 60 KB",
        paper: Some(2.26),
        ..gain(Ratio::Servers { x: 60.0, of: SENDOFF, to: PLAIN })
    },
    Claim {
        says: "Suzumura et al., figure 3: the gain grows from 10 to 60 KB",
        paper: Some(1.79),
        ..gain(Ratio::Gains { x: 60.0, over: 10.0, of: SENDOFF, to: PLAIN })
    },
    Claim {
        says: "Suzumura et al., figure 3: the gain grows no more from 60 to 200 KB",
        paper: Some(0.88),
        holds: Bound::Below(1.0),
        ..gain(Ratio::Gains { x: 200.0, over: 60.0, of: SENDOFF, to: PLAIN })
    },
    Claim {
        says: "Suzumura et al., section 4: a copy that the web server sends is faster than plain at 60 KB",
        ..gain(Ratio::Servers { x: 60.0, of: LEVEL_1, to: PLAIN })
    },
    Claim {
        says: "Suzumura et al., section 4: zero copy is faster than a copy that the web server sends",
        ..gain(Ratio::Servers { x: 60.0, of: SENDOFF, to: LEVEL_1 })
    },
    Claim {
        says: "Suzumura et al., figure 4: the share of copying of plain pages grows from 10 to 60 KB",
        value: "copy_share",
        paper: Some(3.0),
        ..gain(Ratio::Points { of: 60.0, to: 10.0, server: PLAIN })
    },
    Claim {
        says: "Suzumura et al., figure 5: the share of copying falls with 50,000 additions",
        part: WORK,
        value: "copy_share",
        paper: Some(0.12),
        holds: Bound::Below(1.0),
        ..gain(Ratio::Points { of: 50_000.0, to: 0.0, server: PLAIN })
    },
    Claim {
        says: "Suzumura et al., figure 6: the gain falls with 50,000 additions",
        part: WORK,
        holds: Bound::Below(1.0),
        ..gain(Ratio::Gains { x: 50_000.0, over: 0.0, of: SENDOFF, to: PLAIN })
    },
];

/// A gain in requests/s over new connections.
const fn gain(ratio: Ratio) -> Claim {
    Claim { says: "", part: NEW, value: "rate", ratio, paper: None, holds: Bound::Above(1.0) }
}

fn figures() -> Vec<Figure> {
    let of = |title, part, x, y, value, papers| Figure {
        title,
        part,
        shape: Shape::Lines,
        x,
        y,
        value,
        papers,
    };
    let (kb, additions) = ("size of the file, KB", "additions before the file is printed");
    let times = "requests/s, times nginx + php-fpm";
    let ratio = Value::RatioTo("rate", PLAIN);
    let share = "copying, % of the server's CPU time";
    vec![
        of(
            "Figure 3: requests/s, a connection per request",
            NEW,
            kb,
            "requests/s",
            Value::Of("rate"),
            &[],
        ),
        of("Figure 3: speed-up, a connection per request", NEW, kb, times, ratio, SPEED_UP),
        of("Requests/s, kept connections", KEPT, kb, "requests/s", Value::Of("rate"), &[]),
        of("Speed-up, kept connections", KEPT, kb, times, ratio, SPEED_UP),
        of(
            "CPU time of the server, kept connections",
            KEPT,
            kb,
            "µs per response",
            Value::Of("server_us"),
            &[],
        ),
        of("Figure 4: share of copying", NEW, kb, share, Value::Of("copy_share"), COPY_SHARE),
        of(
            "Figure 5: share of copying by the script's work",
            WORK,
            additions,
            share,
            Value::Of("copy_share"),
            COPY_SHARE_BY_WORK,
        ),
        of("Figure 6: speed-up by the script's work", WORK, additions, times, ratio, &[]),
    ]
}
