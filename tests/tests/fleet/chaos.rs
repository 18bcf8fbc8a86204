//! Random faults of the engine, of the ways to it and of nodes, while pages change and are purged.

use std::fs;
use std::path::Path;

use fastrand::Rng;
use sendoff_tests::{Engine, LIMIT, Progress, Request, Site, wait};

use crate::{Node, is_hit};

/// Each page shows a file that both nodes have.
const PAGE: &str =
    r"<?php readfile(trim(file_get_contents(__DIR__ . '/../shared')) . '/' . $_GET['page']);";

const PAGES: usize = 4;
const ROUNDS: usize = 60;

/// The pages, whose texts change.
struct Shared<'s>(&'s Path);

impl Shared<'_> {
    fn change(&self, page: usize, text: usize) {
        fs::write(self.0.join(page.to_string()), text.to_string()).unwrap();
    }

    fn text(&self, page: usize) -> String {
        fs::read_to_string(self.0.join(page.to_string())).unwrap()
    }
}

fn target(page: usize) -> String {
    format!("/page.php?page={page}")
}

/// A node, and the state of its way to the engine.
struct Wayward<'e> {
    node: Option<Node>,
    way: sendoff_tests::EnginePath<'e>,
    is_cut: bool,
}

impl Wayward<'_> {
    fn node(&self) -> &Node {
        self.node.as_ref().unwrap()
    }

    fn toggle(&mut self) {
        if self.is_cut {
            self.way.mend();
        } else {
            self.way.cut();
        }
        self.is_cut = !self.is_cut;
    }
}

/// Once the engine serves both nodes again, and no purge waits, each node shows the newest texts.
#[test]
#[ignore = "heavy: 60 rounds of faults"]
fn after_any_faults_no_node_serves_what_was_purged() {
    let seed = std::env::var("SENDOFF_FLEET_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    eprintln!("SENDOFF_FLEET_SEED={seed}");
    let (mut rng, progress) = (Rng::with_seed(seed), Progress::new(ROUNDS as u64, "rounds"));
    let folder = Site::new();
    let shared = Shared(folder.root());
    (0..PAGES).for_each(|page| shared.change(page, 0));
    let engine = Engine::start();
    let mut nodes = ["one.sock", "two.sock"].map(|name| {
        let way = engine.path(name);
        let site = Site::with("page.php", PAGE);
        site.write_at(site.outside("shared"), folder.root().display().to_string());
        let node = Some(Node::with(site, &way.url(), ""));
        Wayward { node, way, is_cut: false }
    });
    let mut text = 0;
    for round in 0..ROUNDS {
        let mut hangs = false;
        for _ in 0..rng.usize(1..12) {
            let page = rng.usize(..PAGES);
            match rng.u8(..12) {
                0 if !hangs => nodes[rng.usize(..2)].toggle(),
                1 if !hangs => drop(engine.command(&["FLUSHALL"])),
                2 if !hangs => drop(engine.command(&["XTRIM", "shop:purges", "MAXLEN", "1"])),
                3 if !hangs => {
                    engine.kill();
                    engine.start_again();
                }
                4 => {
                    hangs = !hangs;
                    engine.hang(hangs);
                }
                5 => {
                    let restarted = &mut nodes[rng.usize(..2)];
                    let node = restarted.node.take().unwrap();
                    restarted.node = Some(node.restart(&restarted.way.url(), || {}));
                }
                6..9 => {
                    for node in &nodes {
                        node.node().server.get(&target(page));
                    }
                }
                _ => {
                    text += 1;
                    shared.change(page, text);
                    nodes[rng.usize(..2)].node().purge(&target(page));
                }
            }
        }
        if hangs {
            engine.hang(false);
        }
        for node in nodes.iter_mut().filter(|node| node.is_cut) {
            node.toggle();
        }
        check(&nodes, &shared, round);
        progress.advance();
    }
}

/// Waits until both nodes have what the other one has sent, and compares their pages.
fn check(nodes: &[Wayward<'_>], shared: &Shared<'_>, round: usize) {
    for node in nodes {
        node.node().await_engine();
        let sent = node.node().await_status(|status| status["waiting"] == 0);
        assert!(sent, "round {round}: {}", node.node().status());
    }
    for node in nodes {
        for page in 0..PAGES {
            let newest = shared.text(page);
            let asked = || node.node().server.ask(&Request::get(&target(page)));
            // A purge that has just been sent is obeyed in a moment.
            let is_newest = || asked().text() == newest;
            assert!(wait::until(LIMIT, is_newest), "round {round}, page {page}");
            // It stays.
            let response = asked();
            assert_eq!(response.text(), newest, "round {round}, hit: {}", is_hit(&response));
        }
    }
}
