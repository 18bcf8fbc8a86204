//! Fragments of scripts in `sendoff-lua` (docs/fragments.md).

use std::collections::HashSet;
use std::thread;

use rustix::process::Signal;
use sendoff_tests::{LIMIT, Request, Server, Site, processes, wait};

use super::{program, run};
use crate::at_once::pages_at_once;

/// A fragment that takes a while, and that differs each time.
const ONE: &str = "local query = lighty.env['uri.query'] or ''
    local key, seconds = query:match('key=([^&]*)') or 'k', tonumber(query:match('ttl=([^&]*)') or 600)
    lighty.content = { sendoff.fragment(key, seconds, function()
        if query:find('fails') then error('no fragment') end
        local sum = 0
        for i = 1, 200000 do sum = sum + i end
        return 'made ' .. lighty.c.rand() .. ('x'):rep(tonumber(query:match('size=([^&]*)') or 0))
    end, { 'post-1' }) }
    return 200";

const OTHERS: &str = "local what, tag = lighty.env['uri.query']:match('([^=]*)=?(.*)')
    if what == 'purge' then sendoff.fragments.purge(tag ~= '' and { tag } or nil)
    elseif what == 'delete' then sendoff.fragments.delete(tag)
    elseif what == 'fetch' then what = sendoff.fragments.fetch(tag) or 'none' end
    lighty.content = { what } return 200";

/// A server with two sites whose scripts run in one pool with these keys.
fn start(site: &Site, arguments: &str, keys: &str) -> Server {
    for folder in ["", "other/"] {
        site.write(&format!("{folder}one.lua"), ONE);
        site.write(&format!("{folder}others.lua"), OTHERS);
    }
    let rest = "front_controller = 'off'\npage_cache = 'http'\npurge_from = ['127.0.0.1']\n\
                fastcgi = { '.lua' = 'pool:scripts' }\n";
    run(
        site,
        &format!(
            "page_cache_folder = 'pages'\n[[pool]]\nname = 'scripts'\n\
             command = ['{}'{arguments}]\n{keys}[[site]]\nroot = 'root'\n{rest}\
             [[site]]\nhosts = ['other']\nroot = 'root/other'\n{rest}",
            program().display()
        ),
    )
}

/// Asks twelve times at once, so that several processes answer. All answers are the same.
fn one(server: &Server) -> String {
    let mut pages = pages_at_once(server, "/one.lua", 12, || ());
    pages.dedup();
    assert_eq!(pages.len(), 1, "{pages:?}");
    pages.remove(0)
}

#[test]
fn the_processes_of_a_pool_share_fragments_until_they_are_purged() {
    let site = Site::new();
    let server = start(&site, ", '--threads', '3'", "workers = 3\nfragments = '8M'\n");
    let other = || server.ask(&Request::get("/one.lua").header("Host", "other")).text();
    let mut made = one(&server);
    assert!(made.starts_with("made "), "{made}");
    assert_ne!(other(), made, "each root has its own");
    let mut all = HashSet::from([made.clone()]);
    for (what, is_purged) in [
        ("/others.lua?purge=post-2", false),
        ("/others.lua?purge=post-1", true),
        ("/others.lua?delete=other", false),
        ("/others.lua?delete=k", true),
        ("/others.lua?purge", true),
        ("post-2", false),
        ("post-1", true),
        ("--all", true),
    ] {
        match what {
            "--all" => drop(server.command(&["purge", what]).unwrap()),
            tag if tag.starts_with("post") => {
                let request = Request::new("PURGE", "/").header("xkey-purge", tag);
                assert_eq!(server.ask(&request).status(), 200);
            }
            target => drop(server.page(target)),
        }
        let now = one(&server);
        assert_eq!(now != made, is_purged, "{what}");
        assert_eq!(all.insert(now.clone()), is_purged, "{what}");
        made = now;
    }
    assert_eq!(server.page("/others.lua?fetch=k"), made);
}

#[test]
fn threads_share_fragments_and_errors_keep_nothing() {
    let site = Site::new();
    let server = start(&site, ", '--threads', '4'", "");
    server.get("/one.lua?fails").expect(500);
    server.await_log("one.lua:4: no fragment");
    assert_eq!(server.page("/others.lua?fetch=k"), "none");
    let made = one(&server);
    let long = format!("/one.lua?key={}", "x".repeat(5000));
    for target in ["/one.lua?key=a&ttl=0", "/one.lua?key=b&size=1048577", &long] {
        assert_ne!(server.page(target), server.page(target), "{target}");
    }
    let table = server.explain("/one.lua", &[]).unwrap();
    assert!(table.contains("made of 1 fragments, 1 kept, 0 made in 0 ms"), "{table}");
    assert_eq!(one(&server), made);

    let none = Site::new();
    let none = start(&none, ", '--fragments', '0'", "");
    assert_ne!(none.page("/one.lua"), none.page("/one.lua"));
    assert_eq!(none.page("/others.lua?fetch=k"), "none");
}

/// Processes die at any time while they make fragments and send them.
#[test]
fn a_process_that_is_killed_holds_up_no_other() {
    let site = Site::new();
    let server = start(&site, ", '--threads', '2'", "workers = 2\nfragments = '8M'\n");
    let pids = || {
        let all = processes::descendants(server.pid()).into_iter();
        all.filter(|pid| processes::program(*pid) == "sendoff-lua").collect::<Vec<_>>()
    };
    for round in 0..10 {
        let target = format!("/one.lua?key={round}");
        let victim = pids().into_iter().min();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| server.get(&target));
            }
            victim.into_iter().for_each(|pid| processes::signal(pid, Signal::KILL));
        });
        let made = wait::for_some("a process", || {
            let page = server.get(&target);
            (page.status() == 200).then(|| page.text())
        });
        assert_eq!(server.page(&target), made, "round {round}");
        assert!(wait::until(LIMIT, || pids().len() == 2), "the pool is whole again");
    }
}
