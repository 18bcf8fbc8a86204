//! Tables 5.1 to 5.3 of Yeung's thesis: generated pages in Sendoff's delivery modes.

use super::claims::{Bound, Claim, Ratio};
use super::comparison::{Comparison, Copies, Entry, Row};
use super::experiment::{Effort, Figure, Shape, Value};
use super::papers::{Paper, THESIS_RATES, THESIS_RATIOS, THESIS_SIZES};
use super::results::Point;
use crate::load::Persistence;
use crate::peers::{delivery_modes, responder_modes};
use crate::site::{Page, Workload};

const SIZES: &str = "sizes";

/// The thesis' own application: a FastCGI program in C.
pub(crate) const THESIS_C: Comparison = Comparison {
    name: "thesis-c",
    about: "A FastCGI program in C prints pages of 32 KB to 4 MB in each delivery mode (Yeung, tables 5.1 to 5.3)",
    workers: 8,
    connections: 32,
    servers: responder_modes,
    rows: |effort| rows(effort, |size| Workload::new(format!("c-{size}"), Page::Responder(size))),
    figures: || figures(THESIS_RATES, THESIS_RATIOS),
    claims: CLAIMS,
    copies: Copies::Sampled,
};

/// The same pages, printed by PHP.
pub(crate) const THESIS_PHP: Comparison = Comparison {
    name: "thesis-php",
    about: "A PHP script generates pages of 32 KB to 4 MB in each delivery mode",
    servers: delivery_modes,
    claims: CLAIMS.split_at(1).1,
    rows: |effort| rows(effort, |size| Workload::new(format!("php-{size}"), Page::Generated(size))),
    ..THESIS_C
};

/// Means over all sizes. The first one is about the C program only.
const CLAIMS: &[Claim] = &[
    Claim {
        says: "Yeung, table 5.3: TCP to the application is slower than UNIX sockets",
        paper: Some(0.93),
        holds: Bound::Below(1.0),
        ..throughput("fcgi_inet", "base_uds")
    },
    Claim {
        says: "Yeung, table 5.3: shared memory is faster than UNIX sockets",
        paper: Some(1.14),
        ..throughput("sharedmem", "base_uds")
    },
    Claim {
        says: "Yeung, table 5.3: passing the client's socket is faster than UNIX sockets",
        paper: Some(1.27),
        ..throughput("passfd", "base_uds")
    },
    Claim {
        says: "Yeung, table 5.3: passing the client's socket is faster than shared memory",
        paper: Some(1.11),
        ..throughput("passfd", "sharedmem")
    },
    Claim {
        says: "Yeung, section 5: shared memory copies less per Gbit/s than UNIX sockets",
        paper: Some(0.7),
        ..copying("sharedmem")
    },
    Claim {
        says: "Yeung, section 5: passing the client's socket copies less per Gbit/s than UNIX sockets",
        paper: Some(0.4),
        ..copying("passfd")
    },
];

const fn throughput(of: &'static str, to: &'static str) -> Claim {
    let (ratio, holds) = (Ratio::Everywhere { of, to }, Bound::Above(1.0));
    Claim { says: "", part: SIZES, value: "mbit", ratio, paper: None, holds }
}

const fn copying(of: &'static str) -> Claim {
    let (value, holds) = ("copy_share_per_gbit", Bound::Below(1.0));
    Claim { value, holds, ..throughput(of, "base_uds") }
}

fn rows(effort: Effort, page: fn(usize) -> Workload) -> Vec<Row> {
    let sizes = effort.choose(&[32, 1024][..], &THESIS_SIZES[..]);
    let row = |&kb: &u32| Row {
        point: Point::new(SIZES, f64::from(kb), format!("{kb} KB")),
        persistence: Persistence::Kept,
        entries: vec![Entry::everywhere(page(kb as usize * 1024))],
    };
    sizes.iter().map(row).collect()
}

fn figures(rates: &'static [Paper], ratios: &'static [Paper]) -> Vec<Figure> {
    let of = |title, y, value, papers| Figure {
        title,
        part: SIZES,
        shape: Shape::Lines,
        x: "size of the page, KB",
        y,
        value,
        papers,
    };
    vec![
        of("Table 5.1: Mbit/s", "Mbit/s", Value::Of("mbit"), rates),
        of(
            "Table 5.3: relative to UNIX sockets",
            "times base_uds",
            Value::RatioTo("mbit", "base_uds"),
            ratios,
        ),
        of("CPU time of the server", "µs per response", Value::Of("server_us"), &[]),
        of(
            "Copying per Gbit/s",
            "% of the server's CPU time per Gbit/s",
            Value::Of("copy_share_per_gbit"),
            &[],
        ),
    ]
}
