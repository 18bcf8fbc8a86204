//! Fragments of Lua scripts in the server (docs/fragments.md).

use std::thread;

use sendoff_tests::{Request, Server, Site, wait};

/// A fragment says how many were made before it.
const ONE: &str = "local function parameter(name)
        return (lighty.env['uri.query'] or ''):match(name .. '=([^&]*)')
    end
    local key, seconds = parameter('key') or 'k', tonumber(parameter('ttl') or 600)
    lighty.content = { sendoff.fragment(key, seconds, function()
        if parameter('fails') then error('no fragment') end
        if parameter('asks') then sendoff.subrequest('/wait.php') end
        local size = tonumber(parameter('size') or 0)
        return 'run ' .. sendoff.shared.incr('runs') .. ('x'):rep(size)
    end, { 'post-1', 'all' }) }
    return 200";

const OTHERS: &str = "local what, tag = lighty.env['uri.path'], lighty.env['uri.query']
    if what == '/purge' then sendoff.fragments.purge(tag and { tag })
    elseif what == '/delete' then sendoff.fragments.delete(tag)
    elseif what == '/store' then what = tostring(sendoff.fragments.store('k', 600, 'stored', { 'post-1' }))
    elseif what == '/fetch' then what = sendoff.fragments.fetch(tag) or 'none' end
    lighty.content = { what } return 200";

/// Two sites with the same scripts on two event loops; the second is called `other`.
fn start(site: &Site) -> Server {
    site.write_at(site.outside("one.lua"), ONE);
    site.write_at(site.outside("others.lua"), OTHERS);
    site.write("wait.php", "<?php file_get_contents('pipe');");
    let routes = "[[site.route]]\npath = '/one'\nlua = 'one.lua'\n[[site.route]]\n\
         path = ['/purge', '/delete', '/store', '/fetch']\nlua = 'others.lua'\n";
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 2\npage_cache_folder = 'pages'\n[[pool]]\nworkers = 1\n\
         [[site]]\nroot = 'root'\npage_cache = 'http'\npurge_from = ['127.0.0.1']\n{routes}\
         [[site]]\nhosts = ['other']\nroot = 'root'\npage_cache = 'http'\n\
         purge_from = ['127.0.0.1']\n{routes}"
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server = Server::try_run_with(&config, site.root(), 1, 2);
    server.unwrap_or_else(|failed| panic!("{}", failed.stderr))
}

#[test]
fn one_script_makes_a_fragment_and_all_loops_send_it_until_it_is_purged() {
    let site = Site::new();
    let server = start(&site);
    let one = |run: usize, what: &str| {
        // Each connection goes to one of the event loops.
        for _ in 0..8 {
            assert_eq!(server.page("/one"), format!("run {run}"), "{what}");
        }
    };
    let other = || server.ask(&Request::get("/one").header("Host", "other")).text();
    one(1, "first");
    assert_eq!(other(), "run 1", "sites have counters and fragments of their own");
    let purge = |host: &str, tag: &str| {
        let request = Request::new("PURGE", "/").header("Host", host).header("xkey-purge", tag);
        assert_eq!(server.ask(&request).status(), 200);
    };
    let mut run = 1;
    for (what, is_purged) in [
        ("/purge?post-2", false),
        ("/purge?post-1", true),
        ("/delete?other", false),
        ("/delete?k", true),
        ("/purge", true),
    ] {
        server.page(what);
        run += usize::from(is_purged);
        one(run, what);
    }
    assert_eq!(other(), "run 1");
    purge("other", "post-1");
    one(run, "a purge of the other site");
    assert_eq!(other(), "run 2");
    purge("localhost", "post-1");
    one(run + 1, "a purge of the site");
    server.command(&["purge", "--all"]).unwrap();
    one(run + 2, "a purge of everything");
    assert_eq!(other(), "run 3");
    server.command(&["reload"]).unwrap();
    one(run + 2, "a reload");
    assert_eq!([server.page("/store"), server.page("/fetch?k")], ["true", "stored"]);
    assert_eq!(server.page("/fetch?z"), "none");
}

#[test]
fn errors_and_what_does_not_fit_keep_nothing() {
    let site = Site::new();
    let server = start(&site);
    server.get("/one?fails=1").expect(500);
    server.await_log("one.lua:6: no fragment");
    assert_eq!([server.page("/fetch?k"), server.page("/one")], ["none", "run 1"]);
    let long = format!("/one?key={}", "x".repeat(5000));
    for target in ["/one?key=a&ttl=0", "/one?key=b&size=1048577", &long] {
        assert_ne!(server.page(target), server.page(target), "{target}");
    }
    let large = "/one?key=c&size=1000000";
    assert!(server.page(large) == server.page(large));
    let note = |target: &str| {
        let table = server.explain(target, &[]).unwrap();
        table.lines().find(|line| line.starts_with("made of")).map(str::to_owned)
    };
    assert_eq!(note("/one").unwrap(), "made of 1 fragments, 1 kept, 0 made in 0 ms");
    assert!(note("/one?key=d").unwrap().starts_with("made of 1 fragments, 0 kept, 1 made in "));
    assert_eq!(note("/fetch?z"), None);
}

/// A script that waits for a subrequest while it makes a fragment holds up no other.
#[test]
fn an_event_loop_never_waits_for_a_fragment() {
    let site = Site::new();
    let server = start(&site);
    let fifo = site.fifo("pipe");
    thread::scope(|scope| {
        let maker = scope.spawn(|| server.page("/one?asks=1"));
        let held = fifo.hold();
        // The last of them is kept until the first one ends.
        for run in 1..=4 {
            let page = server.page(&format!("/one?key=k&ttl={}", i32::from(run == 4)));
            assert_eq!(page, format!("run {run}"));
        }
        drop(held);
        assert_eq!(maker.join().unwrap(), "run 5");
    });
    assert_eq!(server.page("/one"), "run 5");
    // The old fragment is sent meanwhile.
    assert_eq!(server.page("/one?key=old&ttl=1"), "run 6");
    wait::for_some("the end of its time", || (server.page("/fetch?old") == "none").then_some(()));
    thread::scope(|scope| {
        let maker = scope.spawn(|| server.page("/one?key=old&asks=1"));
        let held = fifo.hold();
        assert_eq!(server.page("/one?key=old"), "run 6");
        drop(held);
        assert_eq!(maker.join().unwrap(), "run 7");
    });
    assert_eq!(server.page("/one?key=old"), "run 7");
}
