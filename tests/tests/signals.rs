//! The effect of each signal on a running server.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

use rustix::process::Signal;
use sendoff_tests::{Broken, LIMIT, Request, Server, Site, processes, wait};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The path of a log in a folder that only the user of the supervisor may enter.
fn private_log(site: &Site) -> PathBuf {
    let folder = site.outside("log");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    folder.join("access.log")
}

/// True if a process has the file open.
fn has_open(pid: u32, path: &Path) -> bool {
    processes::descriptors(pid).iter().any(|open| Path::new(open) == path)
}

#[test]
fn a_renamed_access_log_is_written_anew_after_sigusr1_and_no_line_is_lost() {
    let site = Site::waiting();
    let log = private_log(&site);
    let server =
        Server::start(site.root(), &["--threads", "2", "--access-log", log.to_str().unwrap()]);
    let front = server.front();
    let mut clients: Vec<_> = (0..8).map(|_| server.connect()).collect();
    let mut asked = 0;
    let mut ask = |rotation: usize| {
        for _ in 0..10 {
            for client in &mut clients {
                let target = format!("/a.txt?{asked}");
                assert_eq!(client.ask(&Request::get(&target)).text(), "static", "{rotation}");
                asked += 1;
            }
        }
    };
    let old = |rotation: usize| log.with_extension(rotation.to_string());
    ask(0);
    for rotation in 0..5 {
        fs::rename(&log, old(rotation)).unwrap();
        ask(rotation);
        server.signal(Signal::USR1);
        let reopened = || has_open(front, &log) && !has_open(front, &old(rotation));
        assert!(wait::until(LIMIT, reopened), "{:?}", processes::descriptors(front));
        ask(rotation);
    }
    assert_eq!(server.front(), front);
    server.signal(Signal::TERM);
    let (status, _) = server.await_end();
    assert_eq!(status.code(), Some(0));
    let files = (0..5).map(old).chain([log.clone()]);
    let text: String = files.map(|file| fs::read_to_string(file).unwrap()).collect();
    let mut numbers: Vec<usize> = text
        .lines()
        .map(|line| line.split_once("a.txt?").unwrap().1.split_once(' ').unwrap().0)
        .map(|number| number.parse().unwrap())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..asked).collect::<Vec<_>>());
    assert!(!fs::read_to_string(&log).unwrap().is_empty(), "lines after the last rotation");
}

#[test]
fn a_log_that_cannot_be_opened_again_goes_on_in_the_old_file() {
    let site = Site::waiting();
    let log = private_log(&site);
    let server = Server::start(site.root(), &["--access-log", log.to_str().unwrap()]);
    let moved = site.outside("moved");
    fs::rename(log.parent().unwrap(), &moved).unwrap();
    server.signal(Signal::USR1);
    server.await_log("lines still go to the old file");
    assert_eq!(server.page("/ok.php"), "ok");
    let written = || fs::read_to_string(moved.join("access.log")).unwrap().contains("/ok.php");
    assert!(wait::until(LIMIT, written));
}

#[test]
fn signals_that_do_not_end_the_server_end_none_of_its_processes() {
    let site = Site::waiting();
    let pipe = site.fifo("pipe");
    let server = Server::start(site.root(), &[]);
    let mut client = server.connect();
    client.send(Request::get("/wait.php").bytes());
    let head = client.head().unwrap();
    let parts = [server.front(), server.php_master()];
    for signal in [Signal::HUP, Signal::USR1] {
        for process in [server.pid(), parts[0], parts[1]] {
            processes::signal(process, signal);
        }
    }
    for process in parts {
        processes::signal(process, Signal::USR2);
    }
    server.await_log("reloaded");
    assert_eq!(server.page("/ok.php"), "ok");
    pipe.release();
    assert_eq!(client.body_of(head, "GET").unwrap().body, b"first last");
    assert_eq!([server.front(), server.php_master()], parts);
    assert!(!server.log().contains("started again"), "{}", server.log());
}

#[test]
fn sigusr2_replaces_the_workers_of_every_pool_and_cuts_nothing() {
    let site = Site::waiting();
    let pipe = site.fifo("pipe");
    let server = Server::start(site.root(), &[]);
    let (front, master, workers) = (server.front(), server.php_master(), server.workers());
    let mut client = server.connect();
    client.send(Request::get("/wait.php").bytes());
    let head = client.head().unwrap();
    server.signal(Signal::USR2);
    server.await_log("reloaded, with new workers in 1 pool");
    assert_eq!(server.page("/ok.php"), "ok");
    assert!(processes::runs(master), "it has a worker that is at work");
    pipe.release();
    assert_eq!(client.body_of(head, "GET").unwrap().body, b"first last");
    assert!(wait::until(LIMIT, || !processes::runs(master)), "{}", server.log());
    let now = server.workers();
    assert!(now.len() == workers.len() && now.iter().all(|worker| !workers.contains(worker)));
    assert_eq!(server.front(), front);
}

#[test]
fn sigint_cuts_what_is_under_way_and_its_log_line_is_written() {
    let site = Site::waiting();
    let _never_released = site.fifo("pipe");
    let log = private_log(&site);
    let options = ["--shutdown-timeout", "1h", "--access-log", log.to_str().unwrap()];
    // Also while the server drains already.
    for before in [None, Some(Signal::TERM)] {
        let server = Server::start(site.root(), &options);
        let mut client = server.connect();
        client.send(Request::get("/wait.php").bytes());
        let head = client.head().unwrap();
        if let Some(signal) = before {
            server.signal(signal);
            let refuses = || std::net::TcpStream::connect(server.addr()).is_err();
            assert!(wait::until(LIMIT, refuses));
        }
        server.signal(Signal::INT);
        let (status, said) = server.await_end();
        assert_eq!(status.code(), Some(0), "{said}");
        assert!(matches!(client.body_of(head, "GET"), Err(Broken::Cut(_))));
        let lines = fs::read_to_string(&log).unwrap();
        assert!(lines.contains("GET /wait.php"), "{lines}");
        assert!(!said.contains("panicked") && !said.contains("killed"), "{said}");
        fs::remove_file(&log).unwrap();
    }
}

#[test]
fn a_server_that_is_about_to_leave_says_so_and_serves_on() {
    let site = Site::with("a.txt", "static");
    let config = "listen = '127.0.0.1:0'\nthreads = 1\ndrain_delay = '1h'\n\
        [[pool]]\nworkers = 1\n[[site]]\nroot = 'root'\n\
        [[site.route]]\npath = '/ready'\nready = true\n";
    let config = site.write_at(site.outside("sendoff.toml"), config);
    let server = Server::try_run(&config, site.root(), 1).unwrap();
    assert_eq!(server.get("/ready").text(), "ready\n");
    server.signal(Signal::TERM);
    assert!(wait::until(LIMIT, || server.get("/ready").status() == 503));
    for _ in 0..10 {
        assert_eq!(server.get("/a.txt").text(), "static");
        server.get("/ready").expect(503);
    }
    // A second signal waits for nothing.
    server.signal(Signal::TERM);
    let (status, log) = server.await_end();
    assert_eq!(status.code(), Some(0), "{log}");
}
