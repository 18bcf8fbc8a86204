//! Purges on one node reach the others.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sendoff_tests::{Engine, LIMIT, Request, Server, Site, wait};

use crate::{Node, PAGE, is_hit};

/// The promise of docs/fleet.md.
const SOON: Duration = Duration::from_millis(100);

/// The time until a node no longer has the page that is kept for this request.
fn time_until_gone(node: &Node, request: &Request, text: &str) -> Duration {
    let begun = Instant::now();
    let gone = || {
        let response = node.server.ask(request);
        !is_hit(&response) || response.text() != text
    };
    assert!(wait::until(LIMIT, gone), "the page is still kept");
    begun.elapsed()
}

#[test]
fn each_kind_of_purge_on_one_node_is_obeyed_by_the_other() {
    let engine = Engine::start();
    let [one, two] = Node::two([&engine.url(), &engine.url()]);
    let target = "/page.php?head[]=Cache-Tag:+post-1";
    let other = "/page.php?other";
    let command = |arguments: &[&str]| {
        one.server.command(&[&["purge"], arguments].concat()).unwrap();
    };
    let ask = |request: &Request| assert_eq!(one.server.ask(request).status(), 200);
    let url = format!("http://example.test{target}");
    let purges: [(&str, &dyn Fn(), bool); 8] = [
        ("the operator's of a page", &|| command(&[&url]), false),
        ("the operator's of a beginning", &|| command(&["http://example.test/*"]), true),
        ("the operator's of everything", &|| command(&["--all"]), true),
        ("a request's of a page", &|| one.purge(target), false),
        ("a request's of a beginning", &|| one.purge("/page.php?head*"), false),
        ("tags", &|| ask(&Request::new("PURGE", "/").header("Cache-Tag", "post-1")), false),
        ("soft", &|| ask(&Request::new("PURGE", "/").header("xkey-softpurge", "post-1")), false),
        ("a form", &|| ask(&Request::post(target, "text/plain", "x")), false),
    ];
    for (number, (kind, purge, is_of_others)) in purges.into_iter().enumerate() {
        let (kept, others) = (two.keep(target), two.keep(other));
        purge();
        time_until_gone(&two, &Request::get(target), &kept);
        assert_eq!(two.keeps(other, &others), !is_of_others, "{kind}");
        assert_eq!(two.figure("obeyed"), number as u64 + 1, "{kind}");
    }
    // A node obeys no record of its own, and sends none on.
    assert_eq!([one.figure("sent"), one.figure("obeyed")], [8, 0]);
    assert_eq!([two.figure("sent"), two.figure("waiting")], [0, 0]);
    // Each node has marked its beginning.
    assert_eq!(engine.command(&["XLEN", "shop:purges"]), "10");
}

/// Two nodes with another site than usual.
fn two_of(engine: &Engine, page: &str, lines: &str) -> [Node; 2] {
    let nodes = [(); 2].map(|()| {
        let site = Site::with("page.php", page);
        let text = format!(
            "listen = '127.0.0.1:0'\nthreads = 1\npage_cache_folder = 'pages'\n\
             [fleet]\nname = 'shop'\nengine = '{}'\n[[pool]]\nworkers = 1\n\
             [[site]]\nroot = 'root'\nname = 'shop'\n{lines}\n",
            engine.url()
        );
        let config = site.write_at(site.outside("sendoff.toml"), text);
        let server = Server::try_run(&config, site.root(), 1);
        Node { site, server: server.unwrap_or_else(|failed| panic!("{failed:#?}")) }
    });
    nodes.iter().for_each(Node::await_engine);
    nodes
}

/// Fragments of PHP workers have tags. Their memory outlives a front, which may have missed purges.
#[test]
fn fragments_are_purged_on_all_nodes() {
    const PAGE: &str = "<?php sendoff_fragment('k', 600, function () {
        $runs = __DIR__ . '/../runs';
        file_put_contents($runs, '.', FILE_APPEND);
        echo 'run ', strlen(file_get_contents($runs));
    }, ['post-1']);";
    let engine = Engine::start();
    let [one, two] = two_of(&engine, PAGE, "page_cache = 'http'\npurge_from = '127.0.0.1'");
    let run = || two.server.get("/page.php").text()["run ".len()..].parse::<usize>().unwrap();
    let is_run = |number: usize| run() == number;
    assert!(is_run(1) && is_run(1));
    one.server.ask(&Request::new("PURGE", "/").header("xkey-purge", "post-2"));
    one.server.ask(&Request::new("PURGE", "/").header("xkey-purge", "post-1"));
    assert!(wait::until(LIMIT, || is_run(2)));
    one.server.command(&["purge", "--all"]).unwrap();
    assert!(wait::until(LIMIT, || is_run(3)));
    assert!(is_run(3));
    let front = two.server.front();
    kill_process(Pid::from_raw(front.cast_signed()).unwrap(), Signal::KILL).unwrap();
    assert!(wait::until(LIMIT, || two.server.front() != front));
    // It may obey the last purge again.
    assert!(wait::until(LIMIT, || run() > 3));
}

/// A response of LSCache's plugins purges pages for all, and private ones by tags and by their user.
#[test]
fn words_of_lscache_reach_other_nodes() {
    let engine = Engine::start();
    let nodes = two_of(&engine, PAGE, "page_cache = 'lscache'");
    let [one, two] = &nodes;
    let control = "head[]=X-LiteSpeed-Cache-Control:";
    let public = format!("/page.php?{control}+public,max-age=600&head[]=X-LiteSpeed-Tag:+home");
    let private = format!("/page.php?{control}+private,max-age=600&head[]=X-LiteSpeed-Tag:+cart");
    let user = |target: &str| Request::get(target).header("Cookie", "session=1");
    for (words, of_public, of_private) in
        [("tag=home", true, false), ("private,tag=cart", false, true), ("*", true, true)]
    {
        let pages = [user(&public), user(&private)].map(|page| (two.keep_for(&page), page));
        let purge = format!("/page.php?head[]=X-LiteSpeed-Purge:+{words}");
        let before = two.figure("obeyed");
        assert_eq!(one.server.ask(&user(&purge)).status(), 200);
        let obeyed = two.await_status(|status| {
            status["obeyed"].as_u64() > Some(before) && status["obeyed"] == one.status()["sent"]
        });
        assert!(obeyed, "{}", two.status());
        for ((text, page), is_gone) in pages.iter().zip([of_public, of_private]) {
            let response = two.server.ask(page);
            assert_eq!(!is_hit(&response) || response.text() != *text, is_gone, "{words}");
        }
    }
}

#[test]
#[ignore = "heavy: it measures"]
fn a_purge_reaches_the_other_node_within_100_ms() {
    let engine = Engine::start();
    let [one, two] = Node::two([&engine.url(), &engine.url()]);
    let mut times: Vec<_> = (0..50)
        .map(|_| {
            let text = two.keep("/page.php");
            one.purge("/page.php");
            time_until_gone(&two, &Request::get("/page.php"), &text)
        })
        .collect();
    times.sort_unstable();
    eprintln!("from the answer to the purge: median {:?}, longest {:?}", times[25], times[49]);
    assert!(times[49] < SOON, "{times:?}");
}
