//! Faults that appear only with several event loops, few descriptors or a script that prints.

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, getuid, prlimit};
use sendoff_tests::{LIMIT, Request, Server, Site, processes, wait};

/// An event loop without connections ends at once, but another loop still needs the workers.
#[test]
fn queued_requests_are_answered_after_sigterm_whichever_loop_has_them() {
    let site = Site::with("wait.php", "<?php file_get_contents('pipe'); echo 'waited';");
    site.write("ok.php", "<?php echo 'ok';");
    let pipe = site.fifo("pipe");
    let server = Server::start(site.root(), &["--threads", "4", "--workers", "1"]);
    let mut first = server.connect();
    first.send(Request::get("/wait.php").bytes());
    let mut queued: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for client in &mut queued {
        // The first answer shows that the connection was accepted; the worker is taken.
        client.send(Request::get("/missing.txt").bytes());
        assert_eq!(client.response("GET").status(), 404);
        client.send(Request::get("/ok.php").bytes());
    }
    server.signal(Signal::TERM);
    assert!(wait::until(LIMIT, || std::net::TcpStream::connect(server.addr()).is_err()));
    pipe.release();
    assert_eq!(first.response("GET").text(), "waited");
    for client in &mut queued {
        assert_eq!(client.response("GET").text(), "ok");
    }
    let (status, log) = server.await_end();
    assert_eq!(status.code(), Some(0), "{log}");
}

/// The request and the signal are there together, so the signal may be seen first.
#[test]
fn what_came_before_sigterm_is_answered() {
    let site = Site::with("ok.php", "<?php echo 'ok';");
    let server = Server::start(site.root(), &["--threads", "2"]);
    let mut clients: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.ask(&Request::get("/ok.php")).text(), "ok");
    }
    processes::signal(server.front(), Signal::STOP);
    server.signal(Signal::TERM);
    for client in &mut clients {
        client.send(Request::get("/ok.php").bytes());
    }
    processes::signal(server.front(), Signal::CONT);
    for client in &mut clients {
        assert_eq!(client.response("GET").text(), "ok");
        assert!(client.is_closed());
    }
    let (status, log) = server.await_end();
    assert_eq!(status.code(), Some(0), "{log}");
}

#[test]
fn a_body_that_cannot_be_stored_is_refused_and_the_client_is_told() {
    let site = Site::with("in.php", "<?php echo strlen(file_get_contents('php://input'));");
    // Only a process of the same user may be limited.
    let as_us: &[&str] = if getuid().is_root() { &["--user", "root"] } else { &[] };
    let server = Server::start(site.root(), as_us);
    let mut client = server.connect();
    assert_eq!(client.ask(&Request::post("/in.php", "text/plain", "x")).text(), "1");
    let pid = Pid::from_raw(i32::try_from(server.front()).unwrap());
    // Not even the number 3 is below it.
    let none = Rlimit { current: Some(3), ..getrlimit(Resource::Nofile) };
    let before = prlimit(pid, Resource::Nofile, none).unwrap();
    let big = Request::post("/in.php", "text/plain", vec![b'x'; 100_000]);
    assert_eq!(client.ask(&big).status(), 500);
    prlimit(pid, Resource::Nofile, before).unwrap();
    assert_eq!(server.ask(&big).text(), "100000");
}

#[test]
fn stdout_is_not_for_scripts() {
    let site =
        Site::with("say.php", "<?php file_put_contents('php://stdout', \"chatty\\n\"); echo 1;");
    let server = Server::start(site.root(), &[]);
    assert_eq!(server.page("/say.php"), "1");
    // That nothing came on stdout is checked after every scenario.
    server.await_log("chatty");
}
