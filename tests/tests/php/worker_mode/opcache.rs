//! opcache in worker mode: the effect of a reset on workers, which use opcache for as long as they
//! run.

use rustix::process::Signal;
use sendoff_tests::{LIMIT, Request, Server, Site, processes, wait};

/// Includes a page of constant text in each request.
const LOOP: &str = "<?php $page = static function () { \
    if (isset($_GET['reset'])) { echo opcache_reset() ? 'reset ' : 'no reset '; } \
    if (isset($_GET['timeout'])) { echo ini_get('opcache.force_restart_timeout'), ' '; } \
    echo getmypid(), '|'; include __DIR__ . '/page.html'; }; \
    while (sendoff_handle_request($page)) {}";

fn text(word: &str) -> String {
    (0..10_000).map(|n| format!("{word} {n}\n")).collect()
}

/// Requests the page at least `times` times, until both workers have answered. All answers must be
/// the page.
fn ask_both(server: &Server, times: usize, expected: &str) -> Vec<u32> {
    let mut pids = Vec::new();
    let enough = wait::until(LIMIT, || {
        let clients: Vec<_> = (0..times)
            .map(|_| {
                let mut client = server.connect();
                client.send(Request::get("/").bytes());
                client
            })
            .collect();
        for mut client in clients {
            let answer = client.response("GET").text();
            let (pid, page) = answer.split_once('|').expect("a process and a page");
            assert!(page == expected, "{} bytes: {:.40}", page.len(), page);
            pids.push(pid.parse().expect("a process"));
        }
        pids.sort_unstable();
        pids.dedup();
        pids.len() >= 2
    });
    assert!(enough, "{pids:?}");
    pids
}

#[test]
fn a_reset_changes_no_page_and_kills_no_worker() {
    let site = Site::with("index.php", LOOP);
    let page = text("first");
    site.write("page.html", &page);
    let script = site.path("index.php").display().to_string();
    let mut options = vec!["--workers", "2", "--php-worker", &script];
    for setting in ["opcache.file_update_protection=0", "opcache.validate_timestamps=0"] {
        options.extend(["--php-ini", setting]);
    }
    let server = Server::start(site.root(), &options);
    let pids = ask_both(&server, 20, &page);
    // By default opcache would kill the processes that use it when three minutes have passed.
    assert!(server.page("/?timeout").starts_with("0 "));
    assert!(server.page("/?reset").starts_with("reset "));
    // Constants are kept until the last process that uses them has ended.
    assert_eq!(ask_both(&server, 20, &page), pids);
    // A worker that boots while the restart is due compiles without opcache, and does not disturb
    // the other.
    processes::signal(pids[0], Signal::TERM);
    assert!(wait::until(LIMIT, || server.workers().len() == 2 && server.workers() != pids));
    assert!(ask_both(&server, 20, &page).contains(&pids[1]));
    let page = text("second");
    site.write("page.html", &page);
    server.command(&["reload"]).expect("a reload");
    let after = ask_both(&server, 20, &page);
    assert!(!after.contains(&pids[1]), "{after:?}");
}
