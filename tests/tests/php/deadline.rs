//! `--request-timeout`: scripts that are stuck.

use std::fs::File;

use rustix::fs::{FlockOperation, flock};
use sendoff_tests::{Broken, Client, LIMIT, Request, Server, Site, pattern, processes, wait};

/// A site with a script for each way to get stuck: `pipe` is a FIFO without a writer, `lock` is
/// locked.
fn site() -> (Site, File) {
    let site = Site::with("ok.php", "<?php echo 'ok', getmypid();");
    site.fifo("pipe");
    let lock = File::open(site.write("lock", "")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    for (name, script) in STUCK {
        site.write(name, script);
    }
    (site, lock)
}

const STUCK: [(&str, &str); 6] = [
    (
        "read.php",
        "<?php\nfunction wait_for($pipe) {\n  return file_get_contents($pipe);\n}\nwait_for('pipe');",
    ),
    ("sleep.php", "<?php\n\n\nwhile (true) {\n  sleep(1000);\n}"),
    ("busy.php", "<?php\nset_time_limit(0);\n\n\nwhile (true) {}"),
    ("lock.php", "<?php\n\n\n\nflock(fopen('lock', 'r'), LOCK_EX);"),
    (
        "deaf.php",
        "<?php\nignore_user_abort(true);\nset_time_limit(0);\n\nwhile (true) sleep(1000);",
    ),
    ("stopped.php", "<?php\n\n\n\nposix_kill(getmypid(), 19);"),
];

#[test]
fn a_stuck_script_is_a_504_and_its_worker_is_replaced() {
    let (site, _lock) = site();
    let server = Server::start(site.root(), &["--workers", "6", "--request-timeout", "500ms"]);
    let before = server.workers();
    // All workers at once.
    let stuck = |name: &&str| {
        let mut client = server.connect();
        client.send(Request::get(&format!("/{name}?q=1")).bytes());
        client
    };
    let names = STUCK.map(|(name, _)| name);
    let clients: Vec<Client> = names.iter().map(stuck).collect();
    for (name, mut client) in names.iter().zip(clients) {
        let response = client.response("GET");
        assert_eq!(response.status(), 504, "{name}");
        // The connection is still usable.
        assert!(client.ask(&Request::get("/ok.php")).text().starts_with("ok"), "{name}");
    }
    server.await_replacement(&before);
    for name in names.iter().filter(|name| **name != "stopped.php") {
        server.await_log(&format!("it is ended in GET /{name}?q=1\n"));
        server.await_log(&format!(" at {}:5\n", site.path(name).display()));
    }
    server.await_log(" of pool default:   #0 file_get_contents()\n");
    server.await_log(" of pool default:   #1 wait_for() at ");
    server.await_log("does not end: killed");
}

#[test]
fn a_response_that_has_begun_is_cut_after_what_was_handed_over() {
    let site = Site::with(
        "begun.php",
        "<?php echo 'made ', file_get_contents('big'); ob_flush(); flush(); sleep(1000);",
    );
    let big = pattern(7, 2_000_000);
    for delivery in ["auto", "relay", "region", "direct"] {
        site.write("big", &big);
        let options = ["--workers", "1", "--request-timeout", "300ms", "--delivery", delivery];
        let server = Server::start(site.root(), &options);
        let mut slow = Client::connect_narrow(server.addr(), 64 * 1024);
        slow.send(Request::get("/begun.php").bytes());
        let head = slow.head().unwrap();
        let first = server.workers();
        server.await_log("--request-timeout");
        server.await_replacement(&first);
        // The worker has ended, the file has changed, and the client continues to read.
        std::fs::write(site.path("big"), "other").unwrap();
        match slow.body_of(head, "GET") {
            Err(Broken::Cut(part)) => {
                assert!(
                    part.body == [b"made ", &big[..]].concat(),
                    "{delivery}: {}",
                    part.body.len()
                );
            }
            other => panic!("{delivery}: a cut response was expected: {other:?}"),
        }
    }
}

/// A download or an event stream is never stuck, even if it takes long, with bytes through the
/// front or directly.
#[test]
fn a_script_that_sends_is_left_alone() {
    let events = "<?php set_time_limit(0); for ($i = 0; $i < 30; $i++) { echo SIZE; ob_flush(); flush(); usleep(100000); }";
    let site = Site::with("small.php", &events.replace("SIZE", "'event '"));
    site.write("large.php", events.replace("SIZE", "str_repeat('x', 100000)"));
    for delivery in ["auto", "direct", "relay"] {
        let options = ["--request-timeout", "1s", "--delivery", delivery];
        let server = Server::start(site.root(), &options);
        let (mut small, mut large) = (server.connect(), server.connect());
        small.send(Request::get("/small.php").bytes());
        large.send(Request::get("/large.php").bytes());
        assert_eq!(small.response("GET").text(), "event ".repeat(30));
        assert_eq!(large.response("GET").expect(200).len(), 3_000_000);
        assert!(!server.log().contains("--request-timeout"), "{}", server.log());
    }
}

#[test]
fn clients_that_left_do_not_leave_stuck_workers_behind() {
    let (site, _lock) = site();
    let server = Server::start(site.root(), &["--workers", "2", "--request-timeout", "500ms"]);
    let before = server.workers();
    for name in ["read.php", "deaf.php"] {
        let mut client = server.connect();
        client.send(Request::get(&format!("/{name}")).bytes());
        // When the worker sleeps, the script is running; then the client leaves.
        server.page("/ok.php");
        drop(client);
    }
    assert!(wait::until(LIMIT, || server.workers().iter().all(|pid| !before.contains(pid))));
    assert!(server.page("/ok.php").starts_with("ok"));
}

/// As under php-fpm: the deadline applies to the request, which has ended.
#[test]
fn work_after_the_end_of_the_request_may_take_its_time() {
    let (site, _lock) = site();
    let pipe = site.fifo("after");
    site.write(
        "after.php",
        "<?php echo 'done'; fastcgi_finish_request(); file_put_contents('result', file_get_contents('after'));",
    );
    let server = Server::start(site.root(), &["--workers", "2", "--request-timeout", "200ms"]);
    assert_eq!(server.page("/after.php"), "done");
    for _ in 0..3 {
        // Each takes one deadline.
        assert_eq!(server.get("/read.php").status(), 504);
    }
    pipe.release();
    let written = || std::fs::read(site.path("result")).is_ok_and(|text| text == b"go");
    assert!(wait::until(LIMIT, written), "{}", server.log());
}

#[test]
fn without_a_deadline_a_script_may_take_for_ever() {
    let (site, _lock) = site();
    let pipe = site.fifo("later");
    site.write("later.php", "<?php echo file_get_contents('later');");
    let server = Server::start(site.root(), &["--workers", "1", "--request-timeout", "0"]);
    let other = Server::start(site.root(), &["--workers", "1", "--request-timeout", "200ms"]);
    let mut client = server.connect();
    client.send(Request::get("/later.php").bytes());
    for _ in 0..3 {
        assert_eq!(other.get("/read.php").status(), 504);
    }
    pipe.release();
    assert_eq!(client.response("GET").text(), "go");
    assert!(processes::runs(server.workers()[0]));
}
