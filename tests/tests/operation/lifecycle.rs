//! Start, shutdown, and the death of single processes.

use rustix::process::Signal;
use sendoff_tests::{Broken, Client, Head, LIMIT, Request, Server, Site, pattern, processes, wait};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Waits until the server has stopped listening; false if it does not within [`LIMIT`].
fn refuses(server: &Server) -> bool {
    wait::until(LIMIT, || TcpStream::connect(server.addr()).is_err())
}

#[test]
fn the_ready_line() {
    let site = Site::waiting();
    let server = Server::start(site.root(), &[]);
    let expected =
        format!("sendoff: serving {} at http://{}/\n", site.root().display(), server.addr());
    assert_eq!(server.ready_line(), expected);
    // The server serves as soon as it has printed the ready line.
    assert_eq!(server.page("/ok.php"), "ok");
}

#[test]
fn several_addresses_and_event_loops() {
    let site = Site::waiting();
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
            let mut client = Client::connect(addr);
            assert_eq!(client.ask(&Request::get("/ok.php")).text(), "ok");
        }
    }
}

#[test]
fn what_cannot_start_says_why_in_one_sentence() {
    let site = Site::waiting();
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
fn sigterm_and_sigquit_let_responses_finish() {
    for signal in [Signal::TERM, Signal::QUIT] {
        let site = Site::waiting();
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
    let site = Site::waiting();
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
    let site = Site::waiting();
    let server = Server::start(site.root(), &[]);
    // (A script at work would be given the time that a SIGTERM gives it.)
    let mut client = server.connect();
    assert_eq!(client.ask(&Request::get("/ok.php")).text(), "ok");
    server.signal(Signal::KILL);
    let (status, _) = server.await_end();
    assert_eq!(status.code(), None);
}

/// Their workers go on until the front has ended.
#[test]
fn requests_under_way_and_those_that_wait_outlive_a_killed_supervisor() {
    let site = Site::waiting();
    let pipe = site.fifo("pipe");
    let server = Server::start(site.root(), &["--workers", "1", "--threads", "1"]);
    let mut at_work = server.connect();
    at_work.send(Request::get("/wait.php").bytes());
    let head = at_work.head().unwrap();
    assert_eq!(at_work.chunk(), b"first ");
    let mut waiting = server.connect();
    waiting.send(Request::get("/ok.php").bytes());
    let status = || server.command(&["status"]).unwrap();
    assert!(wait::until(LIMIT, || status().contains("1 waiting")), "{}", status());
    server.signal(Signal::KILL);
    assert!(wait::until(LIMIT, || refuses(&server)), "the front takes no new connections");
    pipe.release();
    assert_eq!(at_work.body_of(head, "GET").unwrap().body, b"last");
    assert_eq!(waiting.response("GET").text(), "ok");
    let (_, log) = server.await_end();
    assert!(!log.contains(" ERROR "), "{log}");
}

/// After the supervisor was killed, a pool without a process stays empty: its requests are refused.
#[test]
fn a_request_that_no_worker_will_take_is_refused_when_the_supervisor_was_killed() {
    let site = Site::waiting();
    let pipe = site.fifo("pipe");
    let server = Server::start(site.root(), &["--workers", "1", "--threads", "1"]);
    let mut at_work = server.connect();
    at_work.send(Request::get("/wait.php").bytes());
    let head = at_work.head().unwrap();
    assert_eq!(at_work.chunk(), b"first ");
    let mut waiting = server.connect();
    waiting.send(Request::get("/ok.php").bytes());
    let status = || server.command(&["status"]).unwrap();
    assert!(wait::until(LIMIT, || status().contains("1 waiting")), "{}", status());
    let master = processes::children(server.pid());
    let master = master.into_iter().find(|pid| *pid != server.front()).unwrap();
    server.signal(Signal::KILL);
    assert!(wait::until(LIMIT, || refuses(&server)), "the front takes no new connections");
    processes::signal(master, Signal::KILL);
    assert!(wait::until(LIMIT, || !processes::runs(master)));
    // The worker finishes its request and takes no other.
    pipe.release();
    assert_eq!(at_work.body_of(head, "GET").unwrap().body, b"last");
    let refused = waiting.response("GET");
    assert_eq!((refused.status(), refused.header("Retry-After").is_some()), (503, true));
    server.await_end();
}

#[test]
fn a_killed_front_is_replaced() {
    let site = Site::waiting();
    let server = Server::start(site.root(), &[]);
    let first = server.front();
    processes::signal(first, Signal::KILL);
    server.await_page("/ok.php", "ok");
    assert_ne!(server.front(), first);
    assert!(wait::until(LIMIT, || server.workers().len() == 4), "{:?}", server.workers());
}

#[test]
fn a_killed_php_master_is_replaced() {
    let site = Site::waiting();
    let server = Server::start(site.root(), &[]);
    let first = server.php_master();
    processes::signal(first, Signal::KILL);
    assert_eq!(server.page("/a.txt"), "static", "files need no PHP");
    assert!(wait::until(LIMIT, || !processes::runs(first) && server.php_master() != first));
    assert_eq!(server.page("/ok.php"), "ok");
    assert!(wait::until(LIMIT, || server.workers().len() == 4), "{:?}", server.workers());
}

/// A request at work outlives its master, with time for its script but not for ever.
#[test]
fn a_request_at_work_outlives_a_killed_php_master() {
    let site = Site::waiting();
    let pipe = site.fifo("pipe");
    let server = Server::start(site.root(), &["--workers", "2"]);
    let mut client = server.connect();
    client.send(Request::get("/wait.php").bytes());
    let head = client.head().unwrap();
    assert_eq!(client.chunk(), b"first ");
    let (master, workers) = (server.php_master(), server.workers());
    processes::signal(master, Signal::KILL);
    assert!(wait::until(LIMIT, || !processes::runs(master) && server.php_master() != master));
    assert_eq!(server.page("/ok.php"), "ok");
    pipe.release();
    assert_eq!(client.body_of(head, "GET").unwrap().body, b"last");
    assert_eq!(left_of(workers), [0; 0]);
}

#[test]
fn stuck_scripts_do_not_outlive_a_killed_php_master_for_long() {
    let site = Site::waiting();
    let server = Server::start(site.root(), &["--workers", "4", "--shutdown-timeout", "1s"]);
    site.fifo("pipe");
    // All but the last, because a stopped process takes no signal.
    let mut clients = Vec::new();
    for (name, script) in &ENDLESS[..4] {
        site.write(name, script);
        let mut client = server.connect();
        client.send(Request::get(&format!("/{name}")).bytes());
        client.head().unwrap();
        clients.push(client);
    }
    let workers = server.workers();
    processes::signal(server.php_master(), Signal::KILL);
    assert_eq!(left_of(workers), [0; 0]);
    server.await_page("/ok.php", "ok");
}

/// Scripts that do not end, each in its own way. `pipe` is a FIFO that nothing is written to.
const ENDLESS: [(&str, &str); 5] = [
    ("read.php", "<?php echo 'begun'; ob_flush(); flush(); file_get_contents('pipe');"),
    ("sleep.php", "<?php echo 'begun'; ob_flush(); flush(); while (true) sleep(1000);"),
    (
        "deaf.php",
        "<?php ignore_user_abort(true); set_time_limit(0);
         while (true) { echo 'begun'; ob_flush(); flush(); usleep(1000); }",
    ),
    ("after.php", "<?php echo 'begun'; fastcgi_finish_request(); while (true) sleep(1000);"),
    ("stopped.php", "<?php echo 'begun'; ob_flush(); flush(); posix_kill(getmypid(), 19);"),
];

/// A server whose scripts and clients do not end. The clients must be kept alive by the caller.
fn with_endless_work(site: &Site, options: &[&str]) -> (Server, Vec<(Client, Head)>) {
    site.fifo("pipe");
    site.write("big.php", "<?php echo str_repeat('x', 30000000);");
    site.write("big", pattern(1, 30_000_000));
    for (name, script) in ENDLESS {
        site.write(name, script);
    }
    let server = Server::start(site.root(), options);
    let begin = |name: &str| {
        let mut client = Client::connect_narrow(server.addr(), 4096);
        client.send(Request::get(&format!("/{name}")).bytes());
        let head = client.head().unwrap();
        (client, head)
    };
    let names = ENDLESS.iter().map(|(name, _)| *name);
    // The last ones read no more than the head.
    let clients = names.chain(["big.php", "big"]).map(begin).collect();
    (server, clients)
}

/// Which of these processes are left at the end.
fn left_of(family: Vec<u32>) -> Vec<u32> {
    let mut left = family;
    wait::until(LIMIT, || {
        left.retain(|pid| processes::runs(*pid));
        left.is_empty()
    });
    left
}

#[test]
fn sigterm_ends_in_time_whatever_scripts_and_clients_do() {
    for workers in ["6", "auto"] {
        let site = Site::waiting();
        let options = ["--workers", workers, "--shutdown-timeout", "1500ms"];
        let (server, clients) = with_endless_work(&site, &options);
        let family = processes::descendants(server.pid());
        let told = Instant::now();
        server.signal(Signal::TERM);
        let (status, log) = server.await_end();
        // Two seconds more than it should take, for a busy machine.
        assert!(told.elapsed() < Duration::from_millis(3500), "{:?}\n{log}", told.elapsed());
        assert_eq!(status.code(), Some(0), "{log}");
        assert_eq!(left_of(family), [0; 0]);
        // No client can take its response for complete, except the one whose response is complete.
        for (number, (mut client, head)) in clients.into_iter().enumerate() {
            match (client.body_of(head, "GET"), ENDLESS.get(number)) {
                (Ok(whole), Some(("after.php", _))) => assert_eq!(whole.text(), "begun"),
                (Err(Broken::Cut(_)), _) => {}
                other => panic!("client {number}: {other:?}"),
            }
        }
    }
}

#[test]
fn scripts_that_end_in_time_are_waited_for_after_their_responses() {
    let site = Site::waiting();
    let pipe = site.fifo("later");
    site.write(
        "later.php",
        "<?php echo 'done'; fastcgi_finish_request(); file_put_contents('result', file_get_contents('later'));",
    );
    let server = Server::start(site.root(), &[]);
    assert_eq!(server.page("/later.php"), "done");
    let front = server.front();
    server.signal(Signal::TERM);
    assert!(wait::until(LIMIT, || !processes::runs(front)));
    pipe.release();
    let (status, log) = server.await_end();
    assert_eq!(status.code(), Some(0), "{log}");
    assert_eq!(std::fs::read(site.path("result")).unwrap(), b"go");
}

#[test]
fn processes_that_do_not_react_are_killed_in_time() {
    let stopped: [fn(&Server) -> u32; 2] = [Server::front, Server::php_master];
    for process in stopped {
        let site = Site::waiting();
        let (server, _clients) =
            with_endless_work(&site, &["--workers", "6", "--shutdown-timeout", "1s"]);
        let family = processes::descendants(server.pid());
        processes::signal(process(&server), Signal::STOP);
        let told = Instant::now();
        server.signal(Signal::TERM);
        let (status, log) = server.await_end();
        assert!(told.elapsed() < Duration::from_secs(3), "{:?}\n{log}", told.elapsed());
        assert_eq!(status.code(), Some(0), "{log}");
        assert_eq!(left_of(family), [0; 0]);
    }
}

#[test]
fn a_second_signal_ends_stuck_scripts_at_once() {
    let site = Site::waiting();
    let (server, _clients) =
        with_endless_work(&site, &["--workers", "6", "--shutdown-timeout", "1h"]);
    let family = processes::descendants(server.pid());
    server.signal(Signal::TERM);
    assert!(refuses(&server));
    server.signal(Signal::TERM);
    let (status, log) = server.await_end();
    assert_eq!(status.code(), Some(0), "{log}");
    assert_eq!(left_of(family), [0; 0]);
}

#[test]
fn stuck_scripts_do_not_outlive_a_killed_supervisor_for_long() {
    let site = Site::waiting();
    let (server, _clients) =
        with_endless_work(&site, &["--workers", "6", "--shutdown-timeout", "1s"]);
    let family = processes::descendants(server.pid());
    server.signal(Signal::KILL);
    server.await_end();
    assert_eq!(left_of(family), [0; 0]);
}

#[test]
fn a_new_front_has_workers_though_the_old_ones_are_stuck() {
    let site = Site::waiting();
    let pipe = site.fifo("pipe");
    let server = Server::start(site.root(), &["--workers", "2"]);
    let stuck = server.workers();
    let mut clients: Vec<_> = (0..2).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(Request::get("/wait.php").bytes());
        client.head().unwrap();
    }
    let front = server.front();
    processes::signal(front, Signal::KILL);
    assert!(wait::until(LIMIT, || server.front() != front));
    server.await_page("/ok.php", "ok");
    assert_eq!(server.workers().len(), 4, "two for the new front, two that wait");
    // Both wait for the pipe to be opened.
    pipe.release();
    assert_eq!(left_of(stuck), [0; 0]);
    assert_eq!(server.workers().len(), 2);
    drop(clients);
}

#[test]
fn however_often_processes_are_killed_there_are_as_many_as_there_should_be() {
    let site = Site::waiting();
    site.fifo("pipe");
    let server = Server::start(site.root(), &["--workers", "3", "--request-timeout", "500ms"]);
    let mut gone = Vec::new();
    for round in 0..6 {
        let mut client = server.connect();
        let _ = client.try_send(Request::get("/wait.php").bytes());
        let victim = if round % 2 == 0 { server.front() } else { server.php_master() };
        gone.extend(processes::descendants(server.pid()));
        processes::signal(victim, Signal::KILL);
        assert!(wait::until(LIMIT, || !processes::runs(victim)));
    }
    server.await_page("/ok.php", "ok");
    let settled = || {
        let now = processes::descendants(server.pid());
        now.len() == 5 && server.workers().len() == 3
    };
    assert!(wait::until(LIMIT, settled), "{:?}", processes::descendants(server.pid()));
    gone.retain(|pid| !processes::descendants(server.pid()).contains(pid));
    assert_eq!(left_of(gone), [0; 0]);
}
