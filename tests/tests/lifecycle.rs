//! Starting, stopping, and what survives what.

use rustix::process::Signal;
use sendoff_tests::{LIMIT, Request, Server, Site, processes, wait};
use std::net::{TcpListener, TcpStream};

fn site() -> Site {
    let site = Site::with(
        "wait.php",
        "<?php echo 'first '; ob_flush(); flush(); file_get_contents('pipe'); echo 'last';",
    );
    site.write("ok.php", "<?php echo 'ok';");
    site.write("a.txt", "static");
    site
}

/// Whether nobody listens any more.
fn refuses(server: &Server) -> bool {
    wait::until(LIMIT, || TcpStream::connect(server.addr()).is_err())
}

#[test]
fn the_ready_line() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let expected =
        format!("sendoff: serving {} at http://{}/\n", site.root().display(), server.addr());
    assert_eq!(server.ready_line(), expected);
    // Ready means ready.
    assert_eq!(server.page("/ok.php"), "ok");
}

#[test]
fn several_addresses_and_event_loops() {
    let site = site();
    let options =
        ["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--threads", "2", "--workers", "3"];
    let server = Server::start(site.root(), &options);
    let line = server.ready_line().to_owned();
    let (_, addresses) = line.trim_end().split_once(" at ").unwrap();
    let addresses: Vec<_> = addresses.split(", ").collect();
    assert_eq!(addresses.len(), 2, "{line}");
    for address in addresses {
        let addr =
            address.trim_start_matches("http://").trim_end_matches('/').parse().expect(address);
        for _ in 0..20 {
            let mut client = sendoff_tests::Client::connect(addr);
            assert_eq!(client.ask(&Request::get("/ok.php")).text(), "ok");
        }
    }
}

#[test]
fn what_cannot_start_says_why_in_one_sentence() {
    let site = site();
    let missing = site.outside("missing");
    let file = site.path("a.txt");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (root, options, says) in [
        (site.root(), vec!["--listen", &*address], &*address),
        (&missing, vec![], "missing"),
        (&file, vec![], "a.txt"),
        (site.root(), vec!["--listen", "nonsense"], "nonsense"),
        (site.root(), vec!["--listen", "192.0.2.1:0"], "192.0.2.1"),
        (site.root(), vec!["--workers", "0"], "workers"),
        (site.root(), vec!["--workers", "many"], "many"),
        (site.root(), vec!["--user", "no-such-user-here"], "no-such-user-here"),
        (site.root(), vec!["--snapshot", "maybe"], "maybe"),
    ] {
        let Err(failed) = Server::try_start(root, &options) else { panic!("{options:?} started") };
        assert!(failed.code.is_some_and(|code| code != 0), "{options:?}: {failed:?}");
        assert_eq!(failed.stdout, "");
        assert!(failed.stderr.contains(says), "{options:?}: {failed:?}");
        assert!(!failed.stderr.contains("panicked"), "{failed:?}");
        let lines = failed.stderr.lines().filter(|line| !line.trim().is_empty()).count();
        // The command line's parser adds a hint how to use it; everything else is one sentence.
        assert!(lines == 1 || (failed.code == Some(2) && lines < 12), "{options:?}: {failed:?}");
    }
}

#[test]
fn sigterm_and_sigint_let_responses_finish() {
    for signal in [Signal::TERM, Signal::INT] {
        let site = site();
        let pipe = site.fifo("pipe");
        let server = Server::start(site.root(), &[]);
        let mut idle = server.connect();
        assert_eq!(idle.ask(&Request::get("/a.txt")).text(), "static");
        let mut client = server.connect();
        client.send(Request::get("/wait.php").bytes());
        let head = client.head().unwrap();
        assert_eq!(client.chunk(), b"first ");
        server.signal(signal);
        assert!(refuses(&server), "a server that ends takes no new connections");
        assert!(idle.is_closed(), "idle connections are closed");
        pipe.release();
        assert_eq!(client.body_of(head, "GET").unwrap().body, b"last");
        let (status, log) = server.await_end();
        assert_eq!(status.code(), Some(0), "{log}");
    }
}

#[test]
fn a_second_signal_ends_at_once() {
    let site = site();
    let _never_released = site.fifo("pipe");
    let server = Server::start(site.root(), &[]);
    let mut client = server.connect();
    client.send(Request::get("/wait.php").bytes());
    client.head().unwrap();
    server.signal(Signal::TERM);
    assert!(refuses(&server));
    assert!(processes::runs(server.pid()), "one signal waits for the response");
    server.signal(Signal::TERM);
    // LIMIT is shorter than the patience of the first signal's drain, or this would prove nothing.
    let (_, log) = server.await_end();
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn nobody_outlives_a_killed_supervisor() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    // (A script at work would be given the time that a SIGTERM gives it.)
    let mut client = server.connect();
    assert_eq!(client.ask(&Request::get("/ok.php")).text(), "ok");
    server.signal(Signal::KILL);
    let (status, _) = server.await_end();
    assert_eq!(status.code(), None);
}

#[test]
fn a_killed_front_is_replaced() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let first = server.front();
    processes::signal(first, Signal::KILL);
    let answered = wait::until(LIMIT, || {
        let Ok(_) = TcpStream::connect(server.addr()) else { return false };
        let answer = server.connect().try_ask(&Request::get("/ok.php"));
        answer.is_ok_and(|response| response.text() == "ok")
    });
    assert!(answered, "{}", server.log());
    assert_ne!(server.front(), first);
    assert!(wait::until(LIMIT, || server.workers().len() == 4), "{:?}", server.workers());
}

#[test]
fn a_killed_php_master_is_replaced() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let first = server.php_master();
    processes::signal(first, Signal::KILL);
    assert_eq!(server.page("/a.txt"), "static", "files need no PHP");
    assert!(wait::until(LIMIT, || !processes::runs(first) && server.php_master() != first));
    assert_eq!(server.page("/ok.php"), "ok");
    assert!(wait::until(LIMIT, || server.workers().len() == 4), "{:?}", server.workers());
}
