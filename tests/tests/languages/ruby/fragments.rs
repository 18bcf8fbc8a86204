//! Fragments of Ruby applications (docs/fragments.md).

use sendoff_tests::{Server, Site, wait};

use super::application::Application;
use crate::at_once::pages_at_once;

fn start(options: &[&str]) -> (Site, Application, Server) {
    let site = Site::new();
    let config = site.write_at(site.outside("config.ru"), include_str!("fragments.ru"));
    let folder = site.outside("");
    let application = Application::start_with(&site, &config, options, |command| {
        command.env("FOLDER", folder);
    });
    let server = super::front(&site, &application, &[]);
    server.get("/hello");
    (site, application, server)
}

#[test]
fn one_process_makes_a_fragment_and_all_send_it_until_it_is_purged() {
    let (_site, _application, server) = start(&["workers=3", "threads=1"]);
    for _ in 0..20 {
        assert_eq!(server.page("/one"), "run 1");
    }
    assert_eq!([server.page("/one?key=other"), server.page("/fetch")], ["run 2", "run 1"]);
    let mut run = 1;
    for (purge, is_purged) in [
        ("/purge?tag=post-2", false),
        ("/purge?tag=post-1", true),
        ("/delete?key=other", false),
        ("/delete?key=k", true),
        ("/purge", true),
    ] {
        server.page(purge);
        let page = server.page("/one");
        assert_eq!(page != format!("run {run}"), is_purged, "{purge}: {page}");
        run = page["run ".len()..].parse().unwrap();
    }
    for target in ["/one?key=a&ttl=0", "/one?key=b&size=1048577"] {
        assert_ne!(server.page(target), server.page(target), "{target}");
    }
}

#[test]
fn others_wait_and_a_permit_dies_with_its_process() {
    let (site, _application, server) = start(&["workers=2", "threads=3"]);
    assert_eq!(server.get("/one?dies").status(), 502);
    let fails = || Some(server.get("/one?fails").status()).filter(|status| *status == 500);
    wait::for_some("a process", fails);
    let fifo = site.fifo("pipe");
    let pages = pages_at_once(&server, "/one?wait", 4, || fifo.release());
    assert_eq!(pages, ["run 1"; 4]);
}

#[test]
fn explain_counts_fragments_and_a_store_of_rails_keeps_values() {
    let (_site, _application, server) = start(&["workers=1"]);
    let note = |target: &str| {
        let page = server.explain(target, &[]).unwrap();
        page.lines().find(|line| line.starts_with("made of")).map(str::to_owned)
    };
    assert!(note("/three").unwrap().starts_with("made of 3 fragments, 0 kept, 3 made in "));
    assert_eq!(note("/three").unwrap(), "made of 3 fragments, 3 kept, 0 made in 0 ms");
    assert_eq!(note("/hello"), None);
    let steps = "[nil, true, {:x=>1}, true, 7, 7, 8, false, nil, true, false, nil]";
    assert_eq!(server.page("/value"), steps);
}
