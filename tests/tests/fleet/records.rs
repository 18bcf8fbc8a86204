//! Records that no node has written, and the rights of the engine's user.

use sendoff_tests::{Authority, Engine, LIMIT, Site, processes, wait};

use crate::{Node, PAGE};

/// The engine's user, with the rights that docs/fleet.md names.
pub(crate) const RULES: &str = "user shop on >secret ~shop:* +xadd +xrange +xread +set +get +time +info +select +eval +pttl +del +getrange";

#[test]
fn garbage_in_the_stream_is_an_error_in_the_log_and_nothing_else() {
    let engine = Engine::start();
    let [one, two] = Node::two([&engine.url(), &engine.url()]);
    let (a, b) = (two.keep("/page.php?a"), two.keep("/page.php?b"));
    let long = "x".repeat(100_000);
    let garbage: [&[&str]; 7] = [
        &["a", "b"],
        &["v", "1"],
        &["v", "x", "by", "y", "purge", "\"Everything\""],
        &["v", "1", "by", "y", "purge", "\"Everyth"],
        &["v", "1", "by", "y", "purge", "[[[[[["],
        &["v", "1", "by", "y", "purge", "{\"Page\":{\"host\":7}}"],
        &["v", "1", "by", "y", "purge", &long],
    ];
    for fields in garbage {
        engine.command(&[&["XADD", "shop:purges", "*"], fields].concat());
    }
    one.purge("/page.php?a");
    assert!(wait::until(LIMIT, || !two.keeps("/page.php?a", &a)));
    assert!(two.keeps("/page.php?b", &b));
    assert_eq!([two.figure("broken"), two.figure("restarts")], [7, 0]);
    assert_eq!(two.log_lines("the fleet's engine has what no node has written"), 1);
}

/// A node that does not understand a record of a newer server purges everything.
#[test]
fn records_of_a_newer_version_purge_everything() {
    let engine = Engine::start();
    let [_, two] = Node::two([&engine.url(), &engine.url()]);
    let text = two.keep("/page.php");
    engine.command(&["XADD", "shop:purges", "*", "v", "2", "new", "form"]);
    assert!(wait::until(LIMIT, || !two.keeps("/page.php", &text)));
}

/// Another program has a key with the name of the stream.
#[test]
fn a_key_of_another_kind_is_told_by_status() {
    let engine = Engine::start();
    engine.command(&["SET", "shop:purges", "mine"]);
    let node = Node::start(&engine.url());
    let says = |status: &serde_json::Value| {
        status["why"].as_str().is_some_and(|why| why.contains("WRONGTYPE"))
    };
    assert!(node.await_status(says), "{}", node.status());
    assert_eq!(node.server.get("/page.php").status(), 200);
    engine.command(&["DEL", "shop:purges"]);
    node.await_engine();
}

/// A long record is read once, although it stays the last one.
#[test]
fn a_long_record_is_not_read_with_each_look() {
    const LONG: usize = 4 << 20;
    let engine = Engine::start();
    let [one, two] = Node::two([&engine.url(), &engine.url()]);
    engine.add_long("shop:purges", 1, LONG);
    for node in [&one, &two] {
        assert!(node.await_status(|status| status["broken"] == 1), "{}", node.status());
    }
    let looks = || engine.figure("commandstats", "cmdstat_xrange");
    let after = |more: u64| {
        let until = looks() + more;
        assert!(wait::until(LIMIT, || looks() >= until));
        engine.figure("stats", "total_net_output_bytes")
    };
    // Both nodes have marked the end.
    let before = after(4);
    assert!(after(4) - before < LONG as u64 / 4, "it is read again");
    let text = two.keep("/page.php");
    one.purge("/page.php");
    assert!(wait::until(LIMIT, || !two.keeps("/page.php", &text)));
    assert_eq!(two.figure("restarts"), 0);
}

/// A record that is too long for memory may be anything.
#[test]
fn a_record_that_is_too_long_is_passed_by() {
    let engine = Engine::start();
    let [one, two] = Node::two([&engine.url(), &engine.url()]);
    let text = two.keep("/page.php");
    engine.add_long("shop:purges", 1, 200 << 20);
    assert!(wait::until(LIMIT, || !two.keeps("/page.php", &text)));
    two.server.await_log("a record of the stream is too long to be read");
    for node in [&one, &two] {
        node.await_engine();
        let peak = processes::peak_memory(node.server.front());
        assert!(peak < 100 << 20, "{} MiB", peak >> 20);
    }
    let text = two.keep("/page.php");
    one.purge("/page.php");
    assert!(wait::until(LIMIT, || !two.keeps("/page.php", &text)));
}

/// Another program has the keys of session tickets. Purges are exchanged all the same.
#[test]
fn keys_of_another_kind_do_not_stop_purges() {
    let engine = Engine::start();
    let time = engine.command(&["TIME"]);
    let period = time.lines().next().unwrap().parse::<u64>().unwrap() / (6 * 60 * 60);
    for period in period - 1..=period + 1 {
        engine.command(&["HSET", &format!("shop:ticket-key:{period}"), "a", "b"]);
    }
    let [one, two] = Node::two([&engine.url(), &engine.url()]);
    let text = two.keep("/page.php");
    one.purge("/page.php");
    assert!(wait::until(LIMIT, || !two.keeps("/page.php", &text)));
    assert_eq!(two.log_lines("sessions of TLS are not resumed on other nodes"), 1);
    assert_eq!(two.log_lines("WRONGTYPE"), 1);
}

/// The rights that docs/fleet.md names are enough.
#[test]
fn the_engine_may_want_a_user_and_a_password() {
    let words: Vec<_> = RULES.split(' ').collect();
    let options = [&["--user"], &words[1..]].concat();
    let engine = Engine::with(&options);
    let start = |password: &str| {
        let site = Site::with("page.php", PAGE);
        site.write_at(site.outside("password"), password);
        Node::with(site, &engine.url(), "user = 'shop'\npassword_file = 'password'")
    };
    let nodes = ["secret\n", "secret"].map(start);
    nodes.iter().for_each(Node::await_engine);
    let [one, two] = &nodes;
    let text = two.keep("/page.php");
    one.purge("/page.php");
    assert!(wait::until(LIMIT, || !two.keeps("/page.php", &text)));
    let stranger = start("wr0ng");
    let says = |status: &serde_json::Value| {
        status["why"].as_str().is_some_and(|why| why.contains("authentication failed"))
    };
    assert!(stranger.await_status(says), "{}", stranger.status());
    assert!(!stranger.server.log().contains("wr0ng"), "the password is in no log");
    let config = stranger.site.outside("sendoff.toml");
    std::fs::remove_file(stranger.site.outside("password")).unwrap();
    let checked = sendoff_tests::sendoff(
        stranger.site.root(),
        &["check", "--config", config.to_str().unwrap()],
    );
    assert!(checked.unwrap_err().contains("password: No such file"));
}

#[test]
fn the_engine_may_speak_tls() {
    let authority = Authority::new();
    let (engine, port) = Engine::with_tls(&authority);
    let start = |host: &str, knows: bool| {
        let site = Site::with("page.php", PAGE);
        site.write_at(site.outside("roots.pem"), authority.pem());
        let roots = if knows { "roots = 'roots.pem'" } else { "" };
        Node::with(site, &format!("rediss://{host}:{port}"), roots)
    };
    let secured = start("localhost", true);
    secured.await_engine();
    let other = Node::start(&engine.url());
    other.await_engine();
    let text = other.keep("/page.php");
    secured.purge("/page.php");
    assert!(wait::until(LIMIT, || !other.keeps("/page.php", &text)));
    for node in [start("localhost", false), start("127.0.0.1", true)] {
        let says = |status: &serde_json::Value| {
            status["why"]
                .as_str()
                .is_some_and(|why| why.starts_with("TLS: invalid peer certificate"))
        };
        assert!(node.await_status(says), "{}", node.status());
    }
    // The nodes are to end without connections.
    drop(engine);
}
