//! A request from its first byte to its line in the access log: clients that leave, requests that
//! are refused, responses that are cut.

use rustix::process::Signal;
use sendoff_tests::{Client, LIMIT, Request, Server, Site, pattern, wait};

/// A site with a script that waits for a FIFO, and a script that leaves a mark when it runs.
fn site() -> Site {
    let site = Site::new();
    site.write(
        "wait.php",
        "<?php file_put_contents('here', 'here'); echo file_get_contents('pipe');",
    );
    site.write("mark.php", "<?php touch('ran.' . $_GET['n']); echo 'ran';");
    site.write("hello.php", "<?php echo 'hello';");
    site.write("a.txt", "a static file\n");
    site
}

/// The lines of the access log: waits until there are `count`, for at most the limit.
fn lines(log: &std::path::Path, count: usize) -> Vec<String> {
    let read = || std::fs::read_to_string(log).unwrap_or_default();
    wait::until(LIMIT, || read().lines().count() >= count);
    read().lines().map(str::to_owned).collect()
}

/// Request line, status and bytes of each line.
fn told(lines: &[String]) -> Vec<String> {
    let parts = lines.iter().map(|line| line.split('"').collect::<Vec<_>>());
    parts.map(|parts| format!("{}{}", parts[1], parts[2].trim_end())).collect()
}

/// A waiting request whose client has left does not run, and delays no other request.
#[test]
fn requests_whose_clients_leave_the_queue_do_not_run() {
    let site = site();
    let (here, pipe) = (site.fifo("here"), site.fifo("pipe"));
    let log = site.outside("access.log");
    let server =
        Server::start(site.root(), &["--workers", "1", "--access-log", log.to_str().unwrap()]);
    let mut busy = server.connect();
    busy.send(Request::get("/wait.php").bytes());
    here.await_script();
    let waiting: Vec<_> = (0..20)
        .map(|n| {
            let mut client = server.connect();
            client.send(Request::get(&format!("/mark.php?n={n}")).bytes());
            client
        })
        .collect();
    // A request that is read behind them shows that they are in the queue.
    server.get("/a.txt").expect(200);
    drop(waiting);
    // They are noticed while the only worker is still busy.
    let left = || told(&lines(&log, 21)).iter().filter(|line| line.contains(" 499 0")).count();
    assert_eq!(left(), 20, "{:?}", lines(&log, 21));
    pipe.release();
    busy.response("GET").expect(200);
    server.get("/hello.php").expect(200);
    let ran = (0..20).filter(|n| site.path(&format!("ran.{n}")).exists()).count();
    assert_eq!(ran, 0);
}

/// A script that is silent learns with its next output that its client has left, as under php-fpm.
#[test]
fn a_silent_script_learns_that_its_client_has_left() {
    let site = site();
    let (here, pipe) = (site.fifo("here"), site.fifo("pipe"));
    site.write(
        "learn.php",
        "<?php ignore_user_abort(true);
        file_put_contents('here', 'here'); file_get_contents('pipe');
        for ($i = 0; $i < 100 && !connection_aborted(); $i++) { echo str_repeat('x', 100000); flush(); usleep(10000); }
        file_put_contents('learnt', connection_aborted() ? 'left' : 'there');",
    );
    let log = site.outside("access.log");
    let server = Server::start(site.root(), &["--access-log", log.to_str().unwrap()]);
    let mut client = server.connect();
    client.send(Request::get("/learn.php").bytes());
    here.await_script();
    drop(client);
    assert_eq!(told(&lines(&log, 1)), ["GET /learn.php HTTP/1.1 499 0"]);
    pipe.release();
    let learnt = wait::for_some("the script's word", || {
        std::fs::read_to_string(site.path("learnt")).ok().filter(|text| !text.is_empty())
    });
    assert_eq!(learnt, "left");
}

/// Refused requests have a line, too, for every reason.
#[test]
fn every_request_has_its_line_in_the_access_log() {
    let site = site();
    site.write("die.php", "<?php posix_kill(getmypid(), 9);");
    site.write(
        "cut.php",
        "<?php header('Content-Length: 100'); echo 'short'; ob_flush(); flush(); posix_kill(getmypid(), 9);",
    );
    let log = site.outside("access.log");
    let server = Server::start(
        site.root(),
        &["--access-log", log.to_str().unwrap(), "--head-timeout", "0.2", "--max-body", "10"],
    );
    let mut expected = Vec::new();
    for (wire, method, status, line) in [
        (&b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n"[..], "GET", 200, "GET /a.txt HTTP/1.1 200 14"),
        (b"GET /none.txt HTTP/1.1\r\nHost: a\r\n\r\n", "GET", 404, "GET /none.txt HTTP/1.1 404"),
        (b"GET /.env HTTP/1.1\r\nHost: a\r\n\r\n", "GET", 403, "GET /.env HTTP/1.1 403"),
        (b"GET /a%zz HTTP/1.1\r\nHost: a\r\n\r\n", "GET", 400, "GET /a%zz HTTP/1.1 400"),
        (b"GET / HTTP/1.1\r\n\r\n", "GET", 400, "GET / HTTP/1.1 400"),
        (b"not \"http\"\r\n\r\n", "GET", 400, "not \\x22http\\x22 400"),
        (b"GET / HTTP/3.0\r\nHost: a\r\n\r\n", "GET", 505, "GET / HTTP/3.0 505"),
        (b"GET /slow", "GET", 408, "GET /slow 408"),
        (b"HEAD /a b HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD", 400, "HEAD /a b HTTP/1.1 400"),
        (
            b"POST /hello.php HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n",
            "POST",
            413,
            "POST /hello.php HTTP/1.1 413",
        ),
        (b"GET /die.php HTTP/1.1\r\nHost: a\r\n\r\n", "GET", 502, "GET /die.php HTTP/1.1 502"),
        (b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS", 204, "OPTIONS * HTTP/1.1 204 0"),
        (b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", "TRACE", 405, "TRACE / HTTP/1.1 405"),
    ] {
        let mut client = server.connect();
        client.send(wire);
        let response = client.response(method);
        assert_eq!(response.status(), status, "{}", wire.escape_ascii());
        if method == "HEAD" {
            assert!(client.is_closed(), "a response to HEAD has no body");
        }
        expected.push(line);
    }
    let mut client = server.connect();
    assert!(client.try_ask(&Request::get("/cut.php")).is_err());
    expected.push("GET /cut.php HTTP/1.1 200 5");
    let mut lines = told(&lines(&log, expected.len()));
    for line in &expected {
        let found = lines.iter().position(|found| found.starts_with(line));
        assert!(found.map(|at| lines.remove(at)).is_some(), "{line} is missing in {lines:#?}");
    }
    assert_eq!(lines, Vec::<String>::new());
    server.await_log("response was cut short");
    assert!(server.log().contains("/cut.php"), "{}", server.log());
}

/// Browsers connect before they have anything to ask.
#[test]
fn a_connection_that_was_never_used_does_not_hold_up_the_stop() {
    let site = site();
    let options = ["--head-timeout", "1h", "--shutdown-timeout", "1h"];
    let server = Server::start(site.root(), &options);
    let mut unused = server.connect();
    // It is accepted before a later one.
    server.get("/a.txt").expect(200);
    server.signal(Signal::TERM);
    assert!(unused.is_closed());
    let (status, stderr) = server.await_end();
    assert_eq!(status.code(), Some(0), "{stderr}");
}

/// The log is written completely, although the last lines come when no loop is left that would
/// flush them.
#[test]
fn responses_that_the_stop_cuts_have_their_lines() {
    let site = site();
    site.write("big.bin", pattern(1, 8 << 20));
    let here = site.fifo("here");
    let _pipe = site.fifo("pipe");
    let log = site.outside("access.log");
    let options = ["--shutdown-timeout", "1s", "--access-log", log.to_str().unwrap()];
    let server = Server::start(site.root(), &options);
    let mut slow = Client::connect_narrow(server.addr(), 4096);
    slow.send(Request::get("/big.bin").bytes());
    slow.head().unwrap();
    let mut waiting = server.connect();
    waiting.send(Request::get("/wait.php").bytes());
    here.await_script();
    server.signal(Signal::TERM);
    let (status, stderr) = server.await_end();
    assert_eq!(status.code(), Some(0), "{stderr}");
    let mut lines = told(&lines(&log, 2));
    lines.sort();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[0].starts_with("GET /big.bin HTTP/1.1 200 "), "{lines:#?}");
    assert!(lines[1].starts_with("GET /wait.php HTTP/1.1 "), "{lines:#?}");
}

/// A request whose body never came has a log line; a connection that ends between requests has
/// none.
#[test]
fn a_client_that_resets_amid_its_body_has_its_line() {
    let site = site();
    let log = site.outside("access.log");
    let server = Server::start(site.root(), &["--access-log", log.to_str().unwrap()]);
    for wire in [
        Request::get("/a.txt").bytes(),
        b"POST /hello.php HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
            .to_vec(),
    ] {
        let mut client = server.connect();
        client.send(wire);
        client.stream().peek(&mut [0]).unwrap();
        // It leaves bytes unread, which makes the close a reset.
        drop(client);
    }
    let expected = ["GET /a.txt HTTP/1.1 200 14", "POST /hello.php HTTP/1.1 499 0"];
    assert_eq!(told(&lines(&log, 2)), expected);
}

/// A client that expects `100 Continue` gets it only if the body is wanted.
#[test]
fn a_body_that_is_of_no_use_is_not_asked_for() {
    let site = site();
    site.write("echo.php", "<?php echo file_get_contents('php://input');");
    let server = Server::start(site.root(), &[]);
    let ask = |target: &str| {
        let head = format!(
            "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
        );
        let mut client = server.connect();
        client.send(head);
        client
    };
    let mut client = ask("/echo.php");
    assert_eq!(client.head().unwrap().status, 100);
    client.send("body");
    assert_eq!(client.response("POST").expect(200), b"body");
    for (target, status) in [("/a.txt", 405), ("/.env", 403), ("/none.txt", 404)] {
        let mut client = ask(target);
        let response = client.response("POST");
        assert_eq!(response.status(), status, "{target}");
        assert!(client.is_closed(), "{target}: what follows could be the body or a request");
    }
}

#[test]
fn what_the_server_can_do_is_its_own_to_say() {
    let site = site();
    site.write("index.php", "<?php echo 'a script';");
    let server = Server::start(site.root(), &[]);
    let response = server.ask(&Request::new("OPTIONS", "*"));
    assert_eq!((response.status(), response.body.len()), (204, 0));
    assert!(response.header("Allow").is_some_and(|allow| allow.contains("GET")));
    assert_eq!(server.ask(&Request::new("OPTIONS", "/")).expect(200), b"a script");
}

/// The log tells the operator what causes a 403 and which option would help.
#[test]
fn every_403_says_why() {
    let site = site();
    site.write(".env", "secret");
    site.write("old.phtml", "<?php");
    site.folder("empty");
    let outside = site.write_at(site.outside("shared.txt"), "shared");
    std::os::unix::fs::symlink(&outside, site.path("link.txt")).unwrap();
    site.fifo("pipe");
    let server = Server::start(site.root(), &["--symlinks", "inside"]);
    let folder = outside.parent().unwrap().display().to_string();
    for (target, why) in [
        ("/.env", "begin with a dot"),
        ("/old.phtml", "looks like a script"),
        ("/empty/", "neither index.php nor index.html"),
        ("/link.txt", &*format!("--follow-symlinks-into {folder}")),
        ("/pipe", "no regular file"),
    ] {
        server.get(target).expect(403);
        server.await_log(&format!("request=\"GET {target}\""));
        let log = server.log();
        let line = log.lines().find(|line| line.contains(target)).unwrap();
        assert!(line.contains("403") && line.contains(why), "{line}");
    }
}
