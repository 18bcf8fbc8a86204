//! Changes that break no lease, or break it unnoticed: a file is truncated without being opened for
//! writing, or a process is stopped for longer than the others wait for it. A cut connection is a
//! correct outcome; a wrong byte never is.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use sendoff_tests::{
    Broken, Client, Progress, Request, Response, Server, Site, overwrite, pattern, processes, wait,
};

const SCRIPT: &str = "<?php
    $s = file_get_contents('f');
    file_put_contents('has-read', 'yes');
    file_get_contents('go-on');
    echo $s;";

/// Expects a response that is allowed if the file was changed: an error, or the beginning of the
/// right response.
#[track_caller]
fn right_or_cut(response: Result<Response, Broken>, original: &[u8]) {
    match response {
        Ok(response) if response.status() == 502 => {}
        Ok(response) => assert!(response.expect(200) == original, "wrong bytes"),
        Err(Broken::Cut(part)) => {
            assert!(original.starts_with(&part.body), "wrong bytes before the cut");
        }
        Err(Broken::Closed) => {}
        Err(broken) => panic!("{broken:?}"),
    }
}

fn cut_without_a_word(path: &Path) {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::TRUNC, Mode::empty()).unwrap();
}

#[test]
fn a_file_opened_for_reading_and_truncated() {
    let site = Site::with("page.php", SCRIPT);
    let (has_read, go_on) = (site.fifo("has-read"), site.fifo("go-on"));
    for size in [30_000, 300_000] {
        for regrows in [false, true] {
            let server = Server::start(site.root(), &["--workers", "2"]);
            let original = pattern(1, size);
            let file = site.write("f", &original);
            let mut client = server.connect();
            client.send(Request::get("/page.php").bytes());
            has_read.await_script();
            cut_without_a_word(&file);
            if regrows {
                // Now the lease breaks, but there is nothing left to save.
                fs::write(&file, pattern(2, size)).unwrap();
            } else {
                go_on.release();
            }
            right_or_cut(client.try_response("GET"), &original);
            // The next request gets the current contents.
            fs::write(&file, pattern(3, size)).unwrap();
            let mut client = server.connect();
            client.send(Request::get("/page.php").bytes());
            has_read.await_script();
            go_on.release();
            assert!(client.response("GET").expect(200) == pattern(3, size));
        }
    }
}

/// A worker is stopped after it has read a file and before it has sent anything. `output` is a PHP
/// expression of the contents `$s`; `expected` computes the same from the original contents.
fn stopped_before_it_sends(delivery: &str, output: &str, expected: fn(Vec<u8>) -> Vec<u8>) {
    // The script blocks in no system call, so it sends at once when the process is continued.
    let script = format!(
        "<?php
        $s = file_get_contents('f');
        file_put_contents('has-read', 'yes');
        while (!file_exists('go-on')) clearstatcache();
        echo {output};"
    );
    let site = Site::with("page.php", &script);
    let has_read = site.fifo("has-read");
    let original = pattern(1, 300_000);
    let file = site.write("f", &original);
    let server = Server::start(site.root(), &["--workers", "1", "--delivery", delivery]);
    let mut client = server.connect();
    client.send(Request::get("/page.php").bytes());
    has_read.await_script();
    let worker = server.workers()[0];
    processes::signal(worker, Signal::STOP);
    let start = Instant::now();
    fs::write(&file, pattern(2, 300_000)).unwrap();
    let waited = start.elapsed();
    site.write("go-on", "");
    processes::signal(worker, Signal::CONT);
    right_or_cut(client.try_response("GET"), &expected(original));
    assert!(waited > Duration::from_secs(5), "the kernel let the writer go after {waited:?}");
    server.await_log("took a lease away");
    assert!(wait::until(sendoff_tests::LIMIT, || server.workers() != [worker]));
}

/// The front has most of a file to send, to a client that does not read.
fn stopped_after_it_has_sent() {
    let site = Site::with("page.php", SCRIPT);
    let (has_read, go_on) = (site.fifo("has-read"), site.fifo("go-on"));
    let original = pattern(1, 12 << 20);
    let file = site.write("f", &original);
    let settings = ["--workers", "1", "--php-ini", "memory_limit=256M", "--send-timeout", "300"];
    let server = Server::start(site.root(), &settings);
    let mut client = Client::connect_narrow(server.addr(), 16 * 1024);
    client.send(Request::get("/page.php").bytes());
    has_read.await_script();
    go_on.release();
    let head = client.head().unwrap();
    let worker = server.workers()[0];
    processes::signal(worker, Signal::STOP);
    overwrite(&file, &pattern(2, 12 << 20));
    let response = client.body_of(head, "GET");
    processes::signal(worker, Signal::CONT);
    assert!(response.is_err(), "the front cannot have had all of it");
    right_or_cut(response, &original);
}

/// The worker gives the lease up after 5 s. Bytes that the front has in memory by then are right,
/// the rest is cut.
#[test]
fn a_front_stopped_for_longer_than_the_worker_waits() {
    let site = Site::with("page.php", "<?php echo file_get_contents('f');");
    let original = pattern(1, 12 << 20);
    let file = site.write("f", &original);
    let settings = ["--workers", "1", "--php-ini", "memory_limit=256M", "--send-timeout", "300"];
    let server = Server::start(site.root(), &settings);
    let worker = server.workers();
    let mut client = Client::connect_narrow(server.addr(), 16 * 1024);
    client.send(Request::get("/page.php").bytes());
    let head = client.head().unwrap();
    processes::signal(server.front(), Signal::STOP);
    let start = Instant::now();
    overwrite(&file, &pattern(2, 12 << 20));
    let held = start.elapsed();
    processes::signal(server.front(), Signal::CONT);
    let response = client.body_of(head, "GET");
    assert!(matches!(response, Err(Broken::Cut(_))), "the front cannot have had all of it");
    right_or_cut(response, &original);
    assert!((4..10).contains(&held.as_secs()), "the writer was held for {held:?}");
    server
        .await_log(&format!("is lost, responses that want more of it are cut: {}", file.display()));
    // The worker has nothing to repair.
    assert!(server.get("/page.php").expect(200) == pattern(2, 12 << 20));
    assert_eq!(server.workers(), worker);
}

#[test]
#[ignore = "heavy: make test-heavy; waits as long as the kernel does, 45 s"]
fn a_worker_stopped_for_longer_than_the_kernel_waits() {
    let reversed = |mut bytes: Vec<u8>| {
        bytes.reverse();
        bytes
    };
    let _progress = Progress::new(0, "stopped workers");
    let before = [
        thread::spawn(|| stopped_before_it_sends("auto", "$s", |bytes| bytes)),
        thread::spawn(move || stopped_before_it_sends("direct", "strrev($s)", reversed)),
        thread::spawn(move || stopped_before_it_sends("region", "strrev($s)", reversed)),
    ];
    stopped_after_it_has_sent();
    for one in before {
        one.join().unwrap();
    }
}
