//! Fragments of servlets (docs/fragments.md).

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use sendoff_tests::{LIMIT, Request, Server, Site, wait};

use super::tomcat::{add_spring, command, copy_tree};
use super::{Pair, get};
use crate::at_once::pages_at_once;

/// Two processes of Tomcat in a pool. Both run in the site's folder.
fn pool(site: &Site) -> Server {
    let base = site.root();
    let connector = "<Connector protocol=\"sendoff.tomcat.SendoffProtocol\" path=\"fd:0\"/>";
    let java = command(base, connector, &["-Xcheck:jni", "-Xshare:auto"]);
    for name in ["work", "temp", "logs"] {
        fs::set_permissions(base.join(name), fs::Permissions::from_mode(0o777)).unwrap();
    }
    let arguments: Vec<_> = java.get_args().map(|word| word.to_str().unwrap()).collect();
    let begin = arguments.iter().position(|word| *word == "java").unwrap();
    let command = [&["/usr/bin/env"], &arguments[begin..]].concat();
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\npage_cache_folder = 'pages'\n[[pool]]\nname = 'shop'\n\
         command = {command:?}\nworkers = 2\nfragments = '8M'\nchdir = 'root'\n[[site]]\n\
         root = 'root'\npage_cache = 'http'\npurge_from = ['127.0.0.1']\n\
         fastcgi = {{ '/' = 'pool:shop' }}\n"
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server = Server::try_run(&config, base, 0);
    let server = server.unwrap_or_else(|failed| panic!("{}", failed.stderr));
    let starts = || server.log().matches("Server startup in").count() == 2;
    assert!(wait::until(4 * LIMIT, starts), "{}", server.log());
    server
}

fn one(query: &str) -> String {
    format!("/fragments/one?{query}")
}

#[test]
#[ignore = "heavy: starts Tomcat"]
fn one_process_makes_a_fragment_and_all_send_it_until_it_is_purged() {
    let site = Site::new();
    let server = pool(&site);
    let fifo = site.fifo("pipe");
    let pages = pages_at_once(&server, &one("wait"), 6, || fifo.release());
    assert_eq!(pages, ["run 1"; 6]);
    let mut processes = HashSet::new();
    wait::for_some("both processes", || {
        std::thread::scope(|scope| {
            let ask = || {
                let page = server.get(&one(""));
                assert_eq!(page.text(), "run 1");
                page.header("X-Process").unwrap().to_owned()
            };
            let all: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            processes.extend(all.into_iter().map(|one| one.join().unwrap()));
        });
        (processes.len() == 2).then_some(())
    });
    let purge = |tag: &str| {
        let request = Request::new("PURGE", "/").header("xkey-purge", tag);
        assert_eq!(server.ask(&request).status(), 200);
    };
    let mut run = 1;
    for (what, is_purged) in [
        ("/fragments/purge?tag=post-2", false),
        ("/fragments/purge?tag=post-1", true),
        ("/fragments/delete?key=other", false),
        ("/fragments/delete?key=k", true),
        ("/fragments/purge", true),
        ("post-2", false),
        ("post-1", true),
        ("--all", true),
    ] {
        match what {
            "--all" => drop(server.command(&["purge", what]).unwrap()),
            tag if tag.starts_with("post") => purge(tag),
            target => drop(server.page(target)),
        }
        run += usize::from(is_purged);
        for _ in 0..4 {
            assert_eq!(server.page(&one("")), format!("run {run}"), "{what}");
        }
    }
    assert!(!server.log().contains("in native"), "{}", server.log());
}

#[test]
#[ignore = "heavy: starts Tomcat"]
fn a_permit_dies_with_its_process() {
    let site = Site::new();
    let server = pool(&site);
    assert_eq!(server.get(&one("dies")).status(), 502);
    let page = wait::for_some("a process", || {
        let page = server.get(&one(""));
        (page.status() == 200).then(|| page.text())
    });
    assert_eq!(page, "run 1");
    assert_eq!(server.page(&one("")), "run 1");
}

#[test]
#[ignore = "heavy: starts Tomcat"]
fn threads_share_fragments_and_errors_keep_nothing() {
    let shops = |root: &std::path::Path| {
        copy_tree(&root.join("WEB-INF"), &root.parent().unwrap().join("other/WEB-INF"));
    };
    let tomcat = super::Tomcat::start("threads=\"8\"", &["-Xcheck:jni"], shops);
    let pair = Pair::attach(tomcat, &[]);
    let page = |target: &str| pair.server.page(&format!("/fragments/{target}"));
    let failed = pair.server.get(&one("fails"));
    assert_eq!((failed.status(), failed.text()), (500, "no fragment".to_owned()));
    assert_eq!([page("fetch"), page("one"), page("fetch")], ["none", "run 1", "run 1"]);
    assert_eq!(pair.same(&get(&one("fails"))).text(), "run 1");
    assert_eq!(pair.server.page("/other/fragments/one"), "run 2", "each application has its own");
    // Made each time: without a lifetime, too large, or with too long a key or too many tags.
    let long = format!("key={}", "x".repeat(5000));
    for query in ["key=a&ttl=0", "key=b&size=1048577", "key=c&tags=65", "key=d&purges", &long] {
        assert_ne!(pair.server.page(&one(query)), pair.server.page(&one(query)), "{query}");
    }
    let large = one("key=e&size=1000000&tags=64");
    assert_eq!(pair.server.page(&large), pair.server.page(&large));
    assert_eq!(page("nested?key=n"), "inner outer");
    assert_eq!(page("nested?key=n"), "inner outer");
    assert_eq!([page("store?tag=post-2"), page("store")], ["false", "true"]);
    assert_eq!(page("one"), "s");
    let note = |target: &str| {
        let table = pair.server.explain(target, &[]).unwrap();
        table.lines().find(|line| line.starts_with("made of")).map(str::to_owned)
    };
    let made = note("/fragments/three").unwrap();
    assert!(made.starts_with("made of 3 fragments, 0 kept, 3 made in "), "{made}");
    assert_eq!(note("/fragments/three").unwrap(), "made of 3 fragments, 3 kept, 0 made in 0 ms");
    assert_eq!(note("/fragments/hello"), None);
    assert_eq!(page("three"), "0 ü 1 ü 2 ü ");
    let round = "0-0 0-1 0-2 0-3 0-4 0-5 0-6 0-7 ";
    assert_eq!(page("keys"), format!("{round}{round}truetrue"));
    assert!(!pair.tomcat.log().contains("in native"), "{}", pair.tomcat.log());

    let none = Pair::start("fragments=\"0\"", &[]);
    assert_eq!([none.server.page(&one("")), none.server.page(&one(""))], ["run 1", "run 2"]);
    assert_eq!(none.server.page("/fragments/fetch"), "none");
}

/// Spring's jars and ours in the application, as on any server with Spring.
#[test]
#[ignore = "heavy: starts Tomcat"]
fn a_cache_of_spring_keeps_values() {
    let pair = Pair::attach(super::Tomcat::start("", &[], add_spring), &[]);
    let steps = "[null, [1, 2], null, null, [1, 2], 2, 2, 3, null, 2, null, null, null, k, no value, \
                 null, not serializable: java.lang.Object]";
    assert_eq!(pair.server.page("/spring"), steps, "{}", pair.tomcat.log());
}
