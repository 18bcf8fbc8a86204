//! Fragments of Python applications (docs/fragments.md).

use std::fs;
use std::thread;

use sendoff_tests::{Request, Server, Site, processes, wait};

use super::server::{Python, programs};
use crate::at_once::pages_at_once;

const APPLICATION: &str = "fragments:application";

fn start(options: &[&str]) -> (Python, Server) {
    let site = Site::new();
    site.write_at(site.outside("fragments.py"), include_str!("fragments.py"));
    let python = Python::start_in(site, APPLICATION, options);
    let server = python.front(&[]);
    (python, server)
}

#[test]
fn one_process_makes_a_fragment_and_all_send_it() {
    let (_python, server) = start(&["--workers", "4"]);
    assert_eq!(server.page("/one"), "run 1");
    for _ in 0..20 {
        assert_eq!(server.page("/one"), "run 1");
    }
    assert_eq!(server.page("/one?key=other"), "run 2");
    assert_eq!(server.page("/fetch"), "run 1");
    // Made each time: without a lifetime, and because it is too large, or its key is too long.
    for target in ["/one?key=a&ttl=0", "/one?key=b&size=1048577"] {
        assert_ne!(server.page(target), server.page(target), "{target}");
    }
    let long = format!("/one?key={}", "x".repeat(5000));
    assert_ne!(server.page(&long), server.page(&long));
}

#[test]
fn fragments_are_purged_by_tags_and_keys() {
    let (_python, server) = start(&["--workers", "2"]);
    let mut run = 1_usize;
    for (purge, is_purged) in [
        ("/purge?tag=post-2", false),
        ("/purge?tag=post-1", true),
        ("/delete?key=other", false),
        ("/delete?key=k", true),
        ("/purge", true),
        ("/one?key=purging&purges", true),
    ] {
        assert_eq!(server.page("/one"), format!("run {run}"), "{purge}");
        server.page(purge);
        run += usize::from(is_purged) + usize::from(purge.contains("purging"));
    }
    assert_eq!(server.page("/one"), format!("run {run}"));
    // It was purged while it was made.
    assert_ne!(server.page("/one?key=purging"), "run 5");
    assert_eq!([server.page("/store?purges"), server.page("/store")], ["0", "1"]);
    assert_eq!(server.page("/one"), "stored");
}

#[test]
fn others_wait_for_the_process_that_makes_a_fragment() {
    let (python, server) = start(&["--workers", "4", "--threads", "2"]);
    let fifo = python.site.fifo("pipe");
    std::os::unix::fs::symlink(python.site.path("pipe"), python.site.outside("pipe")).unwrap();
    let pages = pages_at_once(&server, "/one?wait", 5, || fifo.release());
    assert_eq!(pages, ["run 1"; 5]);
}

#[test]
fn a_permit_dies_with_its_process_and_errors_keep_nothing() {
    let (python, server) = start(&["--workers", "2"]);
    for _ in 0..3 {
        assert_eq!(server.get("/one?dies").status(), 502);
    }
    assert_eq!(server.get("/one?fails").status(), 500);
    let page = wait::for_some("a process", || {
        let page = server.get("/one");
        (page.status() == 200).then(|| page.text())
    });
    assert_eq!(page, "run 1");
    assert_eq!(server.page("/one"), "run 1");
    drop(python);
}

#[test]
fn an_old_fragment_is_sent_while_a_new_one_is_made() {
    let (python, server) = start(&["--workers", "2"]);
    assert_eq!(server.page("/one?ttl=1"), "run 1");
    let fifo = python.site.fifo("pipe");
    std::os::unix::fs::symlink(python.site.path("pipe"), python.site.outside("pipe")).unwrap();
    wait::for_some("the end of its time", || (server.page("/fetch") == "none").then_some(()));
    thread::scope(|scope| {
        let maker = scope.spawn(|| server.page("/one?wait"));
        let held = fifo.hold();
        assert_eq!(server.page("/one"), "run 1");
        drop(held);
        assert_eq!(maker.join().unwrap(), "run 2");
    });
    assert_eq!(server.page("/one"), "run 2");
}

#[test]
fn explain_counts_fragments() {
    let (_python, server) = start(&["--workers", "1"]);
    let note = |target: &str| {
        let page = server.explain(target, &[]).unwrap();
        page.lines().find(|line| line.starts_with("made of")).map(str::to_owned)
    };
    let made = note("/three").unwrap();
    assert!(made.starts_with("made of 3 fragments, 0 kept, 3 made in "), "{made}");
    assert_eq!(note("/three").unwrap(), "made of 3 fragments, 3 kept, 0 made in 0 ms");
    assert_eq!(note("/hello"), None);
}

/// From the second time on that a process sends a kept fragment, it names a memory file.
#[test]
fn large_fragments_are_handed_over() {
    let (_python, server) = start(&["--workers", "1"]);
    let body: String = (0..3).map(|n| n.to_string().repeat(100_000)).collect();
    let body = format!("<p>{body}</p>");
    for _ in 0..4 {
        assert!(server.page("/large") == body);
    }
    let table = server.explain("/large", &[]).unwrap();
    assert!(table.contains("300000 in 3"), "{table}");
    assert!(table.contains("made of 3 fragments, 3 kept, 0 made"), "{table}");
    let head = server.ask(&Request::new("HEAD", "/large"));
    assert!(head.status() == 200 && head.body.is_empty());
    // A new fragment has another file.
    server.page("/purge");
    for _ in 0..4 {
        assert!(server.page("/large") == body);
    }
}

#[test]
fn a_reload_begins_without_fragments() {
    let (python, server) = start(&["--workers", "2"]);
    assert_eq!(server.page("/one"), "run 1");
    processes::signal(python.pid(), rustix::process::Signal::HUP);
    python.await_log("reloaded");
    wait::for_some("the new version", || (server.page("/one") == "run 2").then_some(()));
    assert_eq!(fs::read(python.site.outside("runs")).unwrap().len(), 2);
}

#[test]
fn without_memory_fragments_are_made_each_time() {
    let (_python, server) = start(&["--workers", "1", "--fragments", "0"]);
    assert_eq!([server.page("/one"), server.page("/one")], ["run 1", "run 2"]);
    assert_eq!(
        [server.page("/fetch"), server.page("/store"), server.page("/purge")],
        ["none", "0", "purged"]
    );
}

/// The processes of a pool share fragments, which the purges of the site's pages concern.
#[test]
fn purges_of_the_site_reach_the_processes_of_its_pool() {
    let site = Site::new();
    site.write_at(site.outside("fragments.py"), include_str!("fragments.py"));
    let program = programs().join("sendoff-python");
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\npage_cache_folder = 'pages'\n[[pool]]\nname = 'shop'\n\
         command = ['{}', '{APPLICATION}', '--workers', '2']\nworkers = 2\nfragments = '8M'\n\
         chdir = '.'\n[[site]]\nroot = 'root'\npage_cache = 'http'\npurge_from = ['127.0.0.1']\n\
         fastcgi = {{ '/' = 'pool:shop' }}\n",
        program.display()
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server = Server::try_run(&config, site.root(), 0);
    let server = server.unwrap_or_else(|failed| panic!("{}", failed.stderr));
    wait::for_some("the program", || (server.get("/hello").status() == 200).then_some(()));
    let one = |run: &str| {
        for _ in 0..8 {
            assert_eq!(server.page("/one"), run);
        }
    };
    one("run 1");
    let purge = |tag: &str| {
        let request = Request::new("PURGE", "/").header("xkey-purge", tag);
        assert_eq!(server.ask(&request).status(), 200);
    };
    purge("post-2");
    one("run 1");
    purge("post-1");
    one("run 2");
    server.command(&["purge", "--all"]).unwrap();
    one("run 3");
    server.command(&["reload"]).unwrap();
    one("run 3");
    purge("post-1");
    one("run 4");
}

#[test]
fn fragments_of_django_s_templates_are_kept() {
    let site = Site::new();
    site.write_at(site.outside("django_fragments.py"), include_str!("django_fragments.py"));
    let python = Python::start_in(site, "django_fragments:application", &["--workers", "3"]);
    let server = python.front(&[]);
    for _ in 0..10 {
        assert_eq!(server.page("/page"), "<b>1</b> en");
    }
    assert_eq!(server.page("/page?lang=de"), "<b>2</b> de");
    let steps = "[None, True, False, {'x': 1}, True, False, 7, 7, None, True, False, 5, None, 2]";
    assert_eq!(server.page("/value"), steps);
    assert_eq!(server.page("/clear"), "cleared");
    assert_eq!(server.page("/page"), "<b>3</b> en");
}
