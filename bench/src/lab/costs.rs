//! The cost of a small answer, by the way to it (the note about lighttpd and Lua): one client.

use super::claims::{Bound, Claim, Ratio};
use super::comparison::{Comparison, Copies, Entry, Row};
use super::experiment::{Figure, Value};
use super::papers::SET_UP;
use super::results::Point;
use crate::load::Persistence;
use crate::peers::{Booted, Lighttpd, Lua, Nginx, Peer};
use crate::report::SENDOFF;
use crate::site::{Page, Workload};

const PART: &str = "one client";
const NEW_LINKS: &str = "PHP, nginx, new FastCGI connections";
const KEPT_LINKS: &str = "PHP, nginx, kept FastCGI connections";
const WORKER: &str = "PHP, sendoff";
const LUA_PROGRAM: &str = "Lua, sendoff-lua";
const LUA_SERVER: &str = "Lua in sendoff";
/// The server of the page that boots once.
const BOOTED: &str = "sendoff, worker mode";

pub(crate) const COSTS: Comparison = Comparison {
    name: "costs",
    about: "A small answer for one client, by the way to it: PHP, Lua, files; new and kept connections (the note about lighttpd and Lua)",
    workers: 4,
    connections: 1,
    servers: |sendoff| {
        let script = booting().path();
        let all: [Box<dyn Peer>; 8] = [
            Box::new(Nginx::Unlogged),
            Box::new(Nginx::KeepAlive),
            Box::new(Lighttpd),
            Box::new(sendoff.clone()),
            Box::new(Booted { name: BOOTED, sendoff: sendoff.clone(), script }),
            Box::new(Lua::Program(sendoff.clone())),
            Box::new(Lua::Server(sendoff.clone())),
            Box::new(Lua::Magnet),
        ];
        all.into()
    },
    rows: |_| {
        let row = |(x, label, persistence)| Row {
            point: Point::new(PART, x, label),
            persistence,
            entries: entries(),
        };
        [(0.0, "new connections", Persistence::New), (1.0, "a kept connection", Persistence::Kept)]
            .map(row)
            .into()
    },
    figures: || {
        let of = |title, y, value| Figure::bars(PART, title, y, value);
        vec![
            Figure { papers: SET_UP, ..of("Requests/s", "requests/s", "rate") },
            Figure {
                value: Value::RatioTo("rate", NEW_LINKS),
                ..of("Beside nginx + php-fpm", "times nginx + php-fpm", "rate")
            },
            of("CPU time of the server", "µs per response", "server_us"),
            of("CPU time of the web server alone", "µs per response", "front_us"),
        ]
    },
    claims: &[
        Claim {
            says: "lighttpd note: PHP is faster if the client keeps its connection",
            paper: Some(1.21),
            ..faster(Ratio::Points { of: 1.0, to: 0.0, server: NEW_LINKS })
        },
        Claim {
            says: "lighttpd note: PHP is faster over kept FastCGI connections",
            ..faster(Ratio::Servers { x: 1.0, of: KEPT_LINKS, to: NEW_LINKS })
        },
        Claim {
            says: "lighttpd note: a FastCGI application in Lua is faster than PHP",
            paper: Some(1.34),
            ..faster(Ratio::Servers { x: 1.0, of: LUA_PROGRAM, to: WORKER })
        },
        Claim {
            says: "lighttpd note: Lua in the server is faster than a FastCGI application in Lua",
            paper: Some(2.72),
            ..faster(Ratio::Servers { x: 1.0, of: LUA_SERVER, to: LUA_PROGRAM })
        },
    ],
    copies: Copies::NotSampled,
};

const fn faster(ratio: Ratio) -> Claim {
    Claim { says: "", part: PART, value: "rate", ratio, paper: None, holds: Bound::Above(1.0) }
}

fn hello() -> Workload {
    Workload::new("hello", Page::Hello)
}

fn booting() -> Workload {
    Workload::new("booting", Page::Booting(100))
}

fn entries() -> Vec<Entry> {
    vec![
        Entry::on("nginx+fpm", NEW_LINKS, hello()),
        Entry::on("nginx+fpm-keepalive", KEPT_LINKS, hello()),
        Entry::on("lighttpd+fpm", "PHP, lighttpd, new FastCGI connections", hello()),
        Entry::on(SENDOFF, WORKER, hello()),
        Entry::on(BOOTED, "PHP, sendoff, worker mode", booting()),
        // The script answers every path.
        Entry::on("sendoff-lua", LUA_PROGRAM, hello()),
        Entry::on("sendoff, Lua", LUA_SERVER, hello()),
        Entry::on("lighttpd, Lua", "Lua in lighttpd", hello()),
        Entry::on("nginx+fpm", "a file of 5 bytes, nginx", Workload::new("small", Page::Static(5))),
        Entry::on(SENDOFF, "a file of 5 bytes, sendoff", Workload::new("small", Page::Static(5))),
    ]
}
