//! The engine is away, hangs, or loses its data; a node is cut off, or starts again.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sendoff_tests::{Engine, LIMIT, Request, Site, processes, wait};

use crate::{Node, connect};

/// Two nodes that the engine serves, and the texts of two pages that the second one keeps.
fn two_with_pages(engines: [&str; 2]) -> ([Node; 2], [String; 2]) {
    let nodes = Node::two(engines);
    let texts = ["/page.php?a", "/page.php?b"].map(|page| nodes[1].keep(page));
    (nodes, texts)
}

/// Less than the time for which pages from disk wait.
const ENOUGH: Duration = Duration::from_millis(2500);

/// A node that is cut off goes on alone. Afterwards it obeys what it has missed, and nothing else.
#[test]
fn a_node_that_was_cut_off_obeys_what_it_has_missed() {
    let engine = Engine::start();
    let path = engine.path("two.sock");
    let ([one, two], [a, b]) = two_with_pages([&engine.url(), &path.url()]);
    let of_one = one.keep("/page.php?c");
    path.cut();
    two.await_away();
    one.await_engine();
    one.purge("/page.php?a");
    two.purge("/page.php?c");
    assert!(one.await_status(|status| status["sent"] == 1), "{}", one.status());
    assert!(two.keeps("/page.php?a", &a) && two.keeps("/page.php?b", &b));
    assert_eq!(two.figure("waiting"), 1);
    path.mend();
    assert!(wait::until(LIMIT, || !two.keeps("/page.php?a", &a)));
    assert!(two.keeps("/page.php?b", &b));
    assert!(wait::until(LIMIT, || !one.keeps("/page.php?c", &of_one)));
    two.await_engine();
    assert_eq!([one.figure("restarts"), two.figure("restarts")], [0, 0]);
    assert_eq!(two.log_lines("the fleet's engine is away"), 1);
    assert_eq!(two.log_lines("the fleet's engine serves"), 2);
}

/// An engine that was killed may have lost records, so all pages are purged.
#[test]
fn an_engine_that_was_killed_comes_back() {
    let engine = Engine::start();
    let ([one, two], [a, b]) = two_with_pages([&engine.url(), &engine.url()]);
    engine.kill();
    two.await_away();
    one.purge("/page.php?a");
    let text = two.server.command(&["status"]).unwrap();
    assert!(text.contains("engine.sock is away for"), "{text}");
    assert!(two.server.get("/metrics").text().contains("sendoff_fleet_engine_up 0"));
    assert!(two.keeps("/page.php?b", &b), "the node goes on alone");
    engine.start_again();
    assert!(wait::until(LIMIT, || !two.keeps("/page.php?a", &a)));
    two.await_engine();
    assert!(!two.keeps("/page.php?b", &b));
    assert_eq!(two.figure("restarts"), 1);
    assert!(two.server.get("/metrics").text().contains("sendoff_fleet_engine_up 1"));
    two.server.await_log("the engine was started again");
    // Purges arrive as before.
    let b = two.keep("/page.php?b");
    one.await_engine();
    one.purge("/page.php?b");
    assert!(wait::until(LIMIT, || !two.keeps("/page.php?b", &b)));
}

/// Neither clients nor purges wait for an engine that takes connections and does not answer.
#[test]
fn nothing_hangs_if_the_engine_hangs() {
    let engine = Engine::start();
    let ([one, two], [a, b]) = two_with_pages([&engine.url(), &engine.url()]);
    engine.hang(true);
    for node in [&one, &two] {
        node.purge("/page.php?c");
        let mut client = connect(node);
        client.send(Request::get("/page.php?new").bytes());
        assert_eq!(client.response("GET").status(), 200);
    }
    one.purge("/page.php?a");
    one.await_away();
    two.await_away();
    engine.hang(false);
    assert!(wait::until(LIMIT, || !two.keeps("/page.php?a", &a)));
    assert!(two.keeps("/page.php?b", &b));
    two.await_engine();
    assert_eq!(two.figure("restarts"), 0);
}

#[test]
fn a_stream_that_was_trimmed_too_far_makes_a_node_purge_everything() {
    let engine = Engine::start();
    let path = engine.path("two.sock");
    let ([one, two], [a, b]) = two_with_pages([&engine.url(), &path.url()]);
    path.cut();
    two.await_away();
    one.purge("/page.php?a");
    assert!(one.await_status(|status| status["sent"] == 1));
    engine.command(&["XTRIM", "shop:purges", "MAXLEN", "0"]);
    path.mend();
    assert!(wait::until(LIMIT, || !two.keeps("/page.php?a", &a)));
    assert!(!two.keeps("/page.php?b", &b));
    two.server.await_log("the stream no longer has the last record");
}

/// Connections stay, but records may be gone.
#[test]
fn an_engine_that_lost_its_data_makes_nodes_purge_everything() {
    let engine = Engine::start();
    let [one, two] = Node::two([&engine.url(), &engine.url()]);
    let [a, b] = [one.keep("/page.php"), two.keep("/page.php")];
    engine.command(&["FLUSHALL"]);
    assert!(wait::until(LIMIT, || !one.keeps("/page.php", &a)));
    assert!(wait::until(LIMIT, || !two.keeps("/page.php", &b)));
    let b = two.keep("/page.php");
    one.purge("/page.php");
    assert!(wait::until(LIMIT, || !two.keeps("/page.php", &b)));
}

/// A node that starts again does not send what was purged while it was off.
#[test]
fn a_node_that_starts_again_obeys_what_it_has_missed() {
    let engine = Engine::start();
    let ([one, two], [a, b]) = two_with_pages([&engine.url(), &engine.url()]);
    let two = two.restart(&engine.url(), || one.purge("/page.php?a"));
    assert!(!two.keeps("/page.php?a", &a));
    two.server.await_log("kept pages have been read pages=1");
    assert!(two.keeps("/page.php?b", &b));
    assert_eq!(two.figure("restarts"), 0);
}

/// A node that starts without the engine is alone.
#[test]
fn a_node_that_starts_without_the_engine_serves_its_pages() {
    let engine = Engine::start();
    let ([one, two], [a, b]) = two_with_pages([&engine.url(), &engine.url()]);
    engine.kill();
    let two = two.restart(&engine.url(), || one.purge("/page.php?a"));
    two.server.await_log("kept pages have been read pages=2");
    assert!(two.keeps("/page.php?a", &a) && two.keeps("/page.php?b", &b));
    two.await_away();
    engine.start_again();
    assert!(wait::until(LIMIT, || !two.keeps("/page.php?a", &a)));
    assert!(wait::until(LIMIT, || two.bodies() <= 1), "files are gone, too");
}

/// The network may come up after the server: pages from disk wait for it, for at most 3 s.
#[test]
fn a_node_that_starts_before_its_network_waits_for_the_engine() {
    let engine = Engine::start();
    let path = engine.path("two.sock");
    let [one, mut two] = Node::two([&engine.url(), &path.url()]);
    for _ in 0..5 {
        let (a, b) = (two.keep("/page.php?a"), two.keep("/page.php?b"));
        path.cut();
        two.await_away();
        let begun = Instant::now();
        two = two.restart(&path.url(), || one.purge("/page.php?a"));
        two.await_away();
        assert!(begun.elapsed() > ENOUGH || !two.keeps("/page.php?a", &a));
        path.mend();
        two.await_engine();
        let is_soon = begun.elapsed() < ENOUGH;
        two.server.await_log("kept pages have been read pages=");
        assert!(wait::until(LIMIT, || two.keeps("/page.php?b", &b)));
        assert!(wait::until(LIMIT, || !two.keeps("/page.php?a", &a)));
        if is_soon {
            return;
        }
    }
    panic!("this machine is too slow for the test");
}

/// A node that has missed more than its way to the engine carries within 2 s.
#[test]
fn a_slow_way_to_the_engine_is_enough() {
    let engine = Engine::start();
    let path = engine.path("two.sock");
    let [one, two] = Node::two([&engine.url(), &path.url()]);
    let (a, b) = (two.keep("/page.php?a"), two.keep("/page.php?b"));
    path.cut();
    two.await_away();
    engine.add_long("shop:purges", 30, 40_000);
    one.purge("/page.php?a");
    assert!(one.await_status(|status| status["sent"] == 1));
    path.mend_slowly(300_000);
    assert!(wait::until(LIMIT, || !two.keeps("/page.php?a", &a)), "{}", two.status());
    assert!(two.keeps("/page.php?b", &b));
    assert_eq!(two.figure("restarts"), 0);
}

/// While a node is away, the engine becomes a replica of another one, which lacks the last purge, and
/// then the primary again: the same process with other data.
#[test]
fn an_engine_that_was_a_replica_in_between_may_have_lost_purges() {
    let engine = Engine::start();
    let [one, two] = Node::two([&engine.url(), &engine.url()]);
    let a = two.keep("/page.php?a");
    let other = Engine::start();
    let (of_primary, port) = (engine.listen(), other.listen());
    other.command(&["REPLICAOF", "127.0.0.1", &of_primary.to_string()]);
    let follows = |replica: &Engine| {
        let is_up = || replica.command(&["INFO", "replication"]).contains("master_link_status:up");
        assert!(wait::until(LIMIT, is_up));
    };
    let two = two.restart(&engine.url(), || {
        follows(&other);
        other.command(&["REPLICAOF", "NO", "ONE"]);
        one.purge("/page.php?a");
        assert!(one.await_status(|status| status["sent"] == 1));
        engine.command(&["REPLICAOF", "127.0.0.1", &port.to_string()]);
        follows(&engine);
        engine.command(&["REPLICAOF", "NO", "ONE"]);
    });
    two.await_engine();
    assert!(!two.keeps("/page.php?a", &a));
    two.server.await_log("was a replica");
}

/// A new front obeys the purges that the dead one has missed.
#[test]
fn a_front_that_died_leaves_its_place_in_the_stream() {
    let engine = Engine::start();
    let ([one, two], [a, b]) = two_with_pages([&engine.url(), &engine.url()]);
    let front = two.server.front();
    kill_process(Pid::from_raw(front.cast_signed()).unwrap(), Signal::KILL).unwrap();
    one.purge("/page.php?a");
    two.server.await_log("kept pages have been read pages=1");
    assert!(two.keeps("/page.php?b", &b));
    assert!(!two.keeps("/page.php?a", &a));
    two.await_engine();
    assert_eq!(two.figure("restarts"), 0);
}

/// Purges that a node could not send before its end are lost, so the others purge everything.
#[test]
fn purges_that_were_not_sent_become_one_of_everything() {
    let engine = Engine::start();
    let path = engine.path("one.sock");
    for ends_at_once in [false, true] {
        let ([one, two], [a, b]) = two_with_pages([&path.url(), &engine.url()]);
        path.cut();
        one.await_away();
        one.purge("/page.php?a");
        assert!(wait::until(LIMIT, || one.notes().1 == 1));
        if ends_at_once {
            let front = Pid::from_raw(one.server.front().cast_signed()).unwrap();
            kill_process(front, Signal::KILL).unwrap();
        }
        let one = one.restart(&path.url(), || {});
        one.await_away();
        assert!(two.keeps("/page.php?a", &a) && two.keeps("/page.php?b", &b));
        path.mend();
        assert!(wait::until(LIMIT, || !two.keeps("/page.php?a", &a)));
        assert!(!two.keeps("/page.php?b", &b));
        assert!(wait::until(LIMIT, || one.notes() == (1, 0)));
    }
}

/// The same of a server that an upgrade has replaced, and that ends later.
#[test]
fn purges_that_an_earlier_server_could_not_send_become_one_of_everything() {
    const WAITING: &str =
        "<?php if ($_SERVER['REQUEST_METHOD'] == 'POST') file_get_contents('pipe');
        file_put_contents('../runs', '.', FILE_APPEND); echo filesize('../runs');";
    let engine = Engine::start();
    let path = engine.path("one.sock");
    let site = Site::with("page.php", WAITING);
    let fifo = site.fifo("pipe");
    let (one, two) = (Node::with(site, &path.url(), ""), Node::start(&engine.url()));
    [&one, &two].iter().for_each(|node| node.await_engine());
    let mut servers = vec![one.server.pid()];
    for is_cut in [false, true] {
        let (a, b) = (two.keep("/page.php?a"), two.keep("/page.php?b"));
        let mut client = connect(&one);
        client.send(Request::post("/page.php?a", "text/plain", "x").bytes());
        let held = fifo.hold();
        let status = ["upgrade", "--listen", &one.server.clear_addr().to_string()];
        let said = sendoff_tests::sendoff(one.site.root(), &status).unwrap();
        let new = said.split(' ').nth(2).unwrap().parse().unwrap();
        let old = servers.last().copied().unwrap();
        servers.push(new);
        if is_cut {
            path.cut();
        }
        drop(held);
        assert_eq!(client.response("POST").status(), 200);
        assert!(wait::until(LIMIT, || !processes::runs(old)));
        if is_cut {
            assert!(two.keeps("/page.php?a", &a) && two.keeps("/page.php?b", &b));
            path.mend();
        }
        assert!(wait::until(LIMIT, || !two.keeps("/page.php?a", &a)));
        assert!(wait::until(LIMIT, || one.notes() == (1, 0)), "{:?}", one.notes());
        assert!(wait::until(LIMIT, || two.keeps("/page.php?b", &b) != is_cut));
    }
    processes::signal(servers[2], Signal::TERM);
    assert!(wait::until(LIMIT, || !processes::runs(servers[2])));
    let (status, log) = one.server.await_end();
    assert!(status.success(), "{log}");
}

/// A reload joins a fleet, changes it, and leaves it.
#[test]
fn a_reload_changes_the_fleet() {
    let engine = Engine::start();
    let [one, two] = Node::two([&engine.url(), &engine.url()]);
    let path = two.site.outside("sendoff.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let (section, rest) = text.split_once("[fleet]").unwrap();
    let (_, rest) = rest.split_once("[[pool]]").unwrap();
    let reload = |text: &str| {
        std::fs::write(&path, text).unwrap();
        two.server.command(&["reload"]).unwrap();
    };
    let kept = two.keep("/page.php");
    reload(&format!("{section}[[pool]]{rest}"));
    assert!(two.status().is_null());
    one.purge("/page.php");
    assert!(one.await_status(|status| status["sent"] == 1));
    assert!(two.keeps("/page.php", &kept));
    // What happened meanwhile counts.
    reload(&text);
    two.await_engine();
    assert!(!two.keeps("/page.php", &kept));
    assert_eq!(two.figure("restarts"), 0);
    let kept = two.keep("/page.php");
    reload(&text.replacen("name = 'shop'", "name = 'other'", 1));
    two.await_engine();
    assert!(!two.keeps("/page.php", &kept));
    assert_eq!(two.figure("restarts"), 1);
    let kept = two.keep("/page.php");
    one.purge("/page.php");
    assert!(one.await_status(|status| status["sent"] == 2));
    assert!(two.keeps("/page.php", &kept));
}

/// The last purges of a node that ends reach the others.
#[test]
fn a_node_that_ends_sends_its_last_purges() {
    let engine = Engine::start();
    let [one, two] = Node::two([&engine.url(), &engine.url()]);
    let pages: Vec<_> = (0..20).map(|number| format!("/page.php?{number}")).collect();
    let texts: Vec<_> = pages.iter().map(|page| two.keep(page)).collect();
    pages.iter().for_each(|page| one.purge(page));
    one.server.signal(Signal::TERM);
    let (status, log) = one.server.await_end();
    assert!(status.success(), "{log}");
    for (page, text) in pages.iter().zip(&texts) {
        assert!(wait::until(LIMIT, || !two.keeps(page, text)), "{page}");
    }
}
