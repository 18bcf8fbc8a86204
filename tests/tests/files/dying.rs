//! Processes that are killed while a writer waits for a file in flight: the writer continues at
//! once, and no client receives the writer's bytes. A response that the worker has sent completely
//! is not lost with the worker.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::process::Signal;
use sendoff_tests::{
    Broken, Client, Head, LIMIT, Request, Server, Site, overwrite, pattern, processes, wait,
};

/// Far less than the 5 s that a living process may take. A copy of 20 MB takes 5 ms.
const SOON: Duration = Duration::from_secs(2);

const MB: usize = 1_000_000;
const SIZES: [usize; 4] = [100_000, 4 * MB, 8 * MB, 20 * MB];

fn start() -> (Site, Server) {
    let site = Site::with("page.php", "<?php readfile($_GET['f']);");
    let server = Server::start(site.root(), &["--workers", "2", "--send-timeout", "600"]);
    (site, server)
}

/// Requests a file of `size` bytes, and reads only the head of the response.
fn ask(site: &Site, server: &Server, size: usize) -> (Client, Head, PathBuf, Vec<u8>) {
    let old = pattern(1, size);
    let path = site.write("f", &old);
    let mut client = Client::connect_narrow(server.addr(), 16 * 1024);
    client.send(Request::get("/page.php?f=f").bytes());
    let head = client.head().unwrap();
    (client, head, path, old)
}

/// Waits until the file is held, and starts a writer, which reports how long it was delayed.
fn waiting_writer(path: &Path, size: usize) -> JoinHandle<Duration> {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
    let attempt = OpenOptions::new().write(true).custom_flags(nonblocking).open(path);
    assert_eq!(attempt.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let path = path.to_owned();
    thread::spawn(move || {
        let start = Instant::now();
        overwrite(&path, &pattern(2, size));
        start.elapsed()
    })
}

#[track_caller]
fn went_on_soon(writer: JoinHandle<Duration>, size: usize) {
    let held = writer.join().unwrap();
    println!("{size} bytes: the writer was held for {held:?}");
    assert!(held < SOON, "{size} bytes: the writer was held for {held:?}");
}

fn kill_workers(server: &Server) {
    let old = server.workers();
    old.iter().for_each(|worker| processes::signal(*worker, Signal::KILL));
    server.await_replacement(&old);
}

#[test]
fn workers_that_have_sent_everything() {
    let (site, server) = start();
    for size in SIZES {
        let (mut client, head, path, old) = ask(&site, &server, size);
        kill_workers(&server);
        let start = Instant::now();
        overwrite(&path, &pattern(2, size));
        assert!(start.elapsed() < SOON, "{size} bytes: held for {:?}", start.elapsed());
        assert!(client.body_of(head, "GET").unwrap().expect(200) == old, "{size} bytes");
        let now = server.get("/page.php?f=f");
        assert!(now.expect(200) == pattern(2, size), "{size} bytes: the next response");
    }
    assert!(!server.log().contains("is lost"), "{}", server.log());
}

/// The kernel has signalled the lease break, and the killed processes cannot act on it.
#[test]
fn stopped_workers_that_a_writer_waits_for() {
    let (site, server) = start();
    for size in SIZES {
        let (mut client, head, path, old) = ask(&site, &server, size);
        for worker in server.workers() {
            processes::signal(worker, Signal::STOP);
        }
        let writer = waiting_writer(&path, size);
        kill_workers(&server);
        went_on_soon(writer, size);
        assert!(client.body_of(head, "GET").unwrap().expect(200) == old, "{size} bytes");
    }
    assert!(!server.log().contains("is lost"), "{}", server.log());
}

/// The worker is killed at any time between the break and the end of the copies.
#[test]
fn workers_that_die_while_copies_are_made() {
    let (site, server) = start();
    let size = 20 * MB;
    for round in 0..20 {
        let (mut client, head, path, old) = ask(&site, &server, size);
        let writer = thread::spawn(move || {
            let start = Instant::now();
            overwrite(&path, &pattern(2, size));
            start.elapsed()
        });
        let start = Instant::now();
        while start.elapsed() < Duration::from_micros(round * 400) {
            std::hint::spin_loop();
        }
        kill_workers(&server);
        went_on_soon(writer, size);
        assert!(client.body_of(head, "GET").unwrap().expect(200) == old, "round {round}");
    }
    assert!(!server.log().contains("is lost"), "{}", server.log());
}

/// A new front takes the place of the dead one.
#[test]
fn a_stopped_front_that_a_writer_waits_for() {
    let (site, server) = start();
    for size in SIZES {
        let (mut client, head, path, old) = ask(&site, &server, size);
        let front = server.front();
        processes::signal(front, Signal::STOP);
        let writer = waiting_writer(&path, size);
        processes::signal(front, Signal::KILL);
        went_on_soon(writer, size);
        match client.body_of(head, "GET") {
            Err(Broken::Cut(part)) => assert!(old.starts_with(&part.body), "{size} bytes"),
            Err(Broken::Closed) => {}
            // A response that the socket had taken completely.
            Ok(response) => assert!(response.expect(200) == old, "{size} bytes"),
            Err(broken) => panic!("{size} bytes: {broken:?}"),
        }
        assert!(wait::until(LIMIT, || server.front() != front));
        let now = server.get("/page.php?f=f");
        assert!(now.expect(200) == pattern(2, size), "{size} bytes: the next response");
    }
}
