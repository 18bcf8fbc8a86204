//! The effects of the options of `sendoff serve`.

use sendoff_tests::{Broken, Client, LIMIT, Request, Server, Site, pattern, wait};

#[test]
fn max_requests_replaces_workers() {
    let site = Site::with("pid.php", "<?php echo getmypid();");
    let server = Server::start(site.root(), &["--workers", "1", "--max-requests", "5"]);
    let mut client = server.connect();
    let mut pids: Vec<_> = (0..23).map(|_| client.ask(&Request::get("/pid.php")).text()).collect();
    pids.dedup();
    // A request that was given to a worker before the worker could announce its end is still
    // answered by it.
    assert!((4..=5).contains(&pids.len()), "{pids:?}");
    assert!(wait::until(LIMIT, || server.workers().len() == 1));
}

#[test]
fn max_body_refuses_larger_ones() {
    let site = Site::with("in.php", "<?php echo strlen(file_get_contents('php://input'));");
    let server = Server::start(site.root(), &["--max-body", "100000"]);
    let post = |size| Request::post("/in.php", "text/plain", vec![b'x'; size]);
    assert_eq!(server.ask(&post(100_000)).text(), "100000");
    assert_eq!(server.connect().try_ask(&post(100_001)).unwrap().status(), 413);
    // A client is not asked to send a body that will be refused.
    let mut client = server.connect();
    client.send("POST /in.php HTTP/1.1\r\nHost: h\r\nContent-Length: 200000\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.response("POST").status(), 413);
    let mut client = server.connect();
    client.send("POST /in.php HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = format!("{:x}\r\n{}\r\n", 60_000, "x".repeat(60_000));
    client.send(&chunk);
    let _ = client.try_send(&chunk);
    assert_eq!(client.try_response("POST").unwrap().status(), 413);
    assert!(client.is_closed());
}

/// Waits for the end of a connection on which nothing more is sent.
fn ends(client: &mut Client) -> Option<u16> {
    match client.try_response("POST") {
        Ok(response) => {
            assert!(client.is_closed());
            Some(response.status())
        }
        Err(Broken::Closed) => None,
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn clients_that_stop_are_not_waited_for() {
    let site = Site::with("in.php", "<?php echo 'never';");
    site.write("a.txt", "static");
    let options = ["--head-timeout", "1", "--body-timeout", "1", "--idle-timeout", "1"];
    let server = Server::start(site.root(), &options);
    let mut silent = server.connect();
    let mut idle = server.connect();
    assert_eq!(idle.ask(&Request::get("/a.txt")).text(), "static");
    let mut head = server.connect();
    head.send("GET /a.txt HTTP/1.1\r\nHo");
    let mut body = server.connect();
    body.send("POST /in.php HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf");
    assert!(matches!(ends(&mut silent), None | Some(408)));
    assert!(matches!(ends(&mut idle), None | Some(408)));
    assert!(matches!(ends(&mut head), None | Some(408)));
    assert_eq!(ends(&mut body), Some(408));
}

#[test]
fn a_client_that_takes_nothing_is_cut() {
    let site = Site::with("big.php", "<?php readfile('big');");
    site.write("big", pattern(1, 30 << 20));
    let server = Server::start(site.root(), &["--send-timeout", "1"]);
    for target in ["/big", "/big.php"] {
        let mut client = Client::connect_narrow(server.addr(), 4096);
        client.send(Request::get(target).bytes());
        let head = client.head().unwrap();
        let front = server.front();
        let cut = wait::until(LIMIT, || sendoff_tests::processes::connections(front) == 0);
        assert!(cut, "{target}: still served");
        assert!(matches!(client.body_of(head, "GET"), Err(Broken::Cut(_))), "{target}");
    }
}

#[test]
fn every_delivery_and_snapshot_gives_the_same_bytes() {
    let site = Site::with(
        "page.php",
        "<?php echo 'a', file_get_contents('big'), 'b'; readfile('small'); echo 'c';",
    );
    let (big, small) = (pattern(1, 1 << 20), pattern(2, 30_000));
    site.write("big", &big);
    site.write("small", &small);
    let expected = [b"a", &big[..], b"b", &small[..], b"c"].concat();
    for option in [
        ["--delivery", "relay"],
        ["--delivery", "file"],
        ["--delivery", "auto"],
        ["--snapshot", "copy"],
    ] {
        let server = Server::start(site.root(), &option);
        for _ in 0..20 {
            assert!(server.get("/page.php").expect(200) == expected, "{option:?}");
        }
    }
}

#[test]
fn the_access_log_has_a_line_per_request() {
    let site = Site::with("a.php", "<?php http_response_code(404); echo 'x';");
    site.write("b.txt", "b");
    let log = site.write_at(site.outside("access.log"), "");
    let server = Server::start(site.root(), &["--access-log", log.to_str().unwrap()]);
    server.get("/a.php?q=1");
    server.get("/b.txt");
    let lines = wait::for_some("two lines in the access log", || {
        let text = std::fs::read_to_string(&log).unwrap();
        (text.lines().count() == 2).then_some(text)
    });
    for part in ["GET /a.php?q=1", " 404", "GET /b.txt", " 200", "127.0.0.1"] {
        assert!(lines.contains(part), "{lines}");
    }
}

#[test]
fn times_and_sizes_have_units() {
    let site = Site::with("in.php", "<?php echo strlen(file_get_contents('php://input'));");
    let server = Server::start(site.root(), &["--max-body", "64K", "--idle-timeout", "300ms"]);
    let post = |size| Request::post("/in.php", "text/plain", vec![b'x'; size]);
    assert_eq!(server.ask(&post(65_536)).text(), "65536");
    assert_eq!(server.connect().try_ask(&post(65_537)).unwrap().status(), 413);
    let mut idle = server.connect();
    assert_eq!(idle.ask(&post(1)).text(), "1");
    assert!(matches!(ends(&mut idle), None | Some(408)));
}

#[test]
fn bad_values_cost_one_sentence() {
    let site = Site::with("a.txt", "static");
    for (option, value, says) in [
        ("--request-timeout", "soon", "30s, 500ms or 2m"),
        ("--shutdown-timeout", "5x", "30s, 500ms or 2m"),
        ("--idle-timeout", "0", "more than 0"),
        ("--head-timeout", "1e3", "30s, 500ms or 2m"),
        ("--max-body", "64MB", "4096, 64K, 100M or 1G"),
        ("--workers", "many", "neither a number from 1 to 1024 nor auto"),
        ("--threads", "64", "1..=63"),
        ("--delivery", "pigeon", "auto, direct, file, region, relay"),
        ("--accel", "files=/x", "/PREFIX=DIR"),
        ("--fastcgi", "/app", "/PREFIX=ADDRESS"),
        ("--php-ini", "memory_limit", "KEY=VALUE"),
        ("--sendfile-from", "/nowhere/at/all", "No such file"),
        ("--access-log", "/nowhere/at/all", "the folder of the file does not exist"),
    ] {
        let Err(failed) = Server::try_start(site.root(), &[option, value]) else {
            panic!("{option} {value} started")
        };
        assert_eq!((failed.code, &*failed.stdout), (Some(2), ""), "{failed:?}");
        let said = failed.stderr.trim_end();
        assert!(said.contains(says) && said.contains(value), "{said}");
        // Beside warnings of a server that is about to start.
        assert_eq!(said.lines().filter(|line| line.starts_with("sendoff: ")).count(), 1, "{said}");
        assert!(
            said.lines().all(|line| line.starts_with("sendoff: ") || line.contains(" WARN ")),
            "{said}"
        );
    }
}

/// The processes get the resolved command line only in the sealed file.
#[test]
fn children_get_their_configuration_by_descriptor_alone() {
    let site = Site::with("env.php", "<?php echo implode(',', array_keys(getenv()));");
    let folder = site.folder("private");
    let accel = format!("/secret={}", folder.display());
    let options = ["--php-ini", "memory_limit=77M", "--accel", &accel];
    let server = Server::start(site.root(), &options);
    for pid in [server.front(), server.php_master()] {
        let read = |file| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
        for told in ["memory_limit", "secret", "SENDOFF_ACCEL"] {
            assert!(!read("cmdline").contains(told) && !read("environ").contains(told), "{told}");
        }
    }
}
