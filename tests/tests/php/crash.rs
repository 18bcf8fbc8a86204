//! Workers that die cost their own request and nothing else.

use rustix::process::Signal;
use sendoff_config::PHP_VERSION;
use sendoff_tests::{Broken, LIMIT, Request, Server, Site, processes, wait};

fn site() -> Site {
    let site = Site::with("ok.php", "<?php echo 'ok';");
    site.write("a.txt", "static");
    site.write("segv.php", "<?php echo 'lost'; posix_kill(getmypid(), 11);");
    site.write("kill.php", "<?php echo 'lost'; posix_kill(getmypid(), 9);");
    site.write("overflow.php", "<?php function f() { array_map('f', [1]); } f();");
    site.write("abort.php", "<?php posix_kill(getmypid(), 6);");
    site.write("begun.php", "<?php echo 'begun'; ob_flush(); flush(); posix_kill(getmypid(), 9);");
    site.write("memory.php", "<?php $a = []; while (true) $a[] = str_repeat('x', 1000);");
    site.write("exit.php", "<?php echo 'half'; exit(1);");
    site.write("bytes.php", "<?php echo file_get_contents('big'); posix_kill(getmypid(), 9);");
    site.write("wait.php", "<?php file_get_contents('pipe'); echo 'unharmed';");
    site.write("big", sendoff_tests::pattern(1, 2_000_000));
    site
}

fn whole_again(server: &Server, workers: usize) {
    assert!(
        wait::until(LIMIT, || server.workers().len() == workers),
        "workers come back: {:?}",
        server.workers()
    );
    assert_eq!(server.page("/ok.php"), "ok");
}

#[test]
fn a_dying_worker_is_a_502_and_nobody_else_notices() {
    let site = site();
    let pipe = site.fifo("pipe");
    // PHP since 8.3 ends such a script in time, with an error.
    let unlimited = ["--php-ini", "zend.max_allowed_stack_size=-1"];
    let options = if PHP_VERSION == "8.2" { &[][..] } else { &unlimited };
    let server = Server::start(site.root(), options);
    for script in ["/segv.php", "/kill.php", "/abort.php", "/overflow.php"] {
        let mut waiting = server.connect();
        waiting.send(Request::get("/wait.php").bytes());
        let mut client = server.connect();
        assert_eq!(client.ask(&Request::get(script)).status(), 502, "{script}");
        // The client's connection is still usable.
        assert_eq!(client.ask(&Request::get("/a.txt")).text(), "static");
        assert_eq!(client.ask(&Request::get("/ok.php")).text(), "ok");
        pipe.release();
        assert_eq!(waiting.response("GET").text(), "unharmed");
    }
    whole_again(&server, 4);
}

#[test]
fn what_had_begun_is_cut() {
    let site = site();
    let server = Server::start(site.root(), &["--workers", "2"]);
    let mut client = server.connect();
    client.send(Request::get("/begun.php").bytes());
    match client.try_response("GET") {
        Err(Broken::Cut(part)) => assert_eq!(part.body, b"begun"),
        other => panic!("a cut response was expected: {other:?}"),
    }
    // If PHP's buffer has output, or a file was handed over, the result is a cut response or an
    // error, never a whole response.
    for _ in 0..3 {
        match server.connect().try_ask(&Request::get("/bytes.php")) {
            Ok(response) => assert_eq!(response.status(), 502),
            Err(Broken::Cut(_)) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    whole_again(&server, 2);
}

#[test]
fn a_post_is_not_run_twice() {
    let site = site();
    site.write(
        "once.php",
        "<?php file_put_contents('count', 'x', FILE_APPEND); posix_kill(getmypid(), 9);",
    );
    let server = Server::start(site.root(), &[]);
    let answer = server.ask(&Request::post("/once.php", "text/plain", "body"));
    assert_eq!(answer.status(), 502);
    assert_eq!(std::fs::read_to_string(site.path("count")).unwrap(), "x");
}

#[test]
fn exhausted_memory_and_exit_cost_no_worker() {
    let site = site();
    let server = Server::start(site.root(), &["--workers", "1"]);
    let worker = server.workers();
    assert_eq!(server.get("/memory.php").status(), 500);
    assert_eq!(server.page("/exit.php"), "half");
    assert_eq!(server.page("/ok.php"), "ok");
    assert_eq!(server.workers(), worker);
    server.await_log("Allowed memory size");
}

#[test]
fn idle_workers_that_are_killed_are_replaced() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    for _ in 0..3 {
        for worker in server.workers() {
            processes::signal(worker, Signal::KILL);
        }
        // If there is no worker, requests wait; they do not fail.
        assert_eq!(server.page("/ok.php"), "ok");
        assert_eq!(server.page("/a.txt"), "static");
    }
    whole_again(&server, 4);
}

#[test]
fn a_worker_told_to_end_finishes_its_request_first() {
    let site = site();
    let pipe = site.fifo("pipe");
    let server = Server::start(site.root(), &["--workers", "1"]);
    let mut client = server.connect();
    client.send(Request::get("/wait.php").bytes());
    let worker = server.workers();
    processes::signal(worker[0], Signal::TERM);
    pipe.release();
    assert_eq!(client.response("GET").text(), "unharmed");
    server.await_replacement(&worker);
    assert_eq!(server.page("/ok.php"), "ok");
}
