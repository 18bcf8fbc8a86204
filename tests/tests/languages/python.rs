//! WSGI and ASGI applications in `sendoff-python`: their requests, and the responses that clients
//! get.

mod departed;
mod duplex;
mod fragments;
mod server;
mod sites;
mod socketio;
mod websocket_cases;
mod websockets;

use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use sendoff_tests::{
    Broken, Framing, Http2, LIMIT, Request, Response, Server, Site, overwrite, pattern, processes,
    wait,
};
use server::{Python, Reference};

use crate::{delivery, valgrind};

const APPLICATION: &str = "conformance:application";
const COROUTINES: &str = "coroutines:application";
const COROUTINES_PY: &str = include_str!("python/coroutines.py");
const MB: usize = 1 << 20;

fn made(n: usize) -> Vec<u8> {
    let line = b"sixty-three bytes and a line feed are what this line is made of\n";
    let mut body = line.repeat(n / line.len() + 1);
    body.truncate(n);
    body
}

/// Status, fields that do not belong to the server, and body.
fn facts(mut response: Response) -> (u16, Vec<(String, String)>, Vec<u8>) {
    let fields = &mut response.head.headers;
    let servers = ["date", "server", "connection", "transfer-encoding", "content-length"];
    fields.retain(|(name, _)| !servers.contains(&name.to_ascii_lowercase().as_str()));
    (response.head.status, std::mem::take(fields), response.body)
}

#[test]
fn responses_are_those_of_wsgiref() {
    let python = Python::start(APPLICATION, &["--workers", "1"]);
    let reference = Reference::wsgiref(&python.site, APPLICATION);
    let server = python.front(&[]);
    let gets = [
        "/hello",
        "/missing",
        "/list?n=5000",
        "/tuple?n=5000",
        "/one?n=100",
        "/one?n=0",
        "/length?n=70000",
        "/generator?n=5000",
        "/generator?n=0",
        "/late?n=9",
        "/write?n=3000",
        "/empty",
        "/fields",
        "/recovers",
        "/types?a=%C3%A9+b&c=d%26e",
        "/nothing",
        "/unmodified",
        "/fail_first",
        "/fail_started",
    ];
    for target in gets {
        let request = Request::get(target).header("X-Own", "one, two");
        let (mut ours, mut theirs) = (facts(server.ask(&request)), facts(reference.ask(&request)));
        if target.starts_with("/fail") {
            // Each has its own words for it.
            (ours.1, ours.2, theirs.1, theirs.2) = Default::default();
        }
        assert_eq!(ours, theirs, "{target}");
    }
    let text = b"first\nsecond line, longer\n\n\nlast without an end".to_vec();
    for body in [Vec::new(), text, pattern(3, 100_000), made(300_000)] {
        for way in
            ["read", "pieces", "length", "line", "short", "lines", "hint", "iterate", "unread"]
        {
            // The streams of wsgiref do not end where the body ends.
            if !["length", "unread"].contains(&way) {
                continue;
            }
            let request =
                Request::post(&format!("/echo?way={way}"), "application/x-own", body.clone());
            assert_eq!(facts(server.ask(&request)), facts(reference.ask(&request)), "{way}");
        }
    }
    assert_eq!(
        server.ask(&Request::new("HEAD", "/length?n=1000")).header("Content-Length"),
        Some("1000")
    );
    assert_eq!(server.ask(&Request::new("HEAD", "/fields")).status(), 418);
}

#[test]
fn requests_and_responses_pass_the_checks_of_the_standard_library() {
    let python = Python::start("conformance:validated", &["--workers", "1"]);
    let server = python.front(&[]);
    assert_eq!(server.page("/hello"), "hello");
    assert_eq!(server.ask(&Request::new("HEAD", "/length?n=1000")).status(), 200);
    for body in ["", "a=b"] {
        let post = Request::post("/echo?way=length", "text/plain", body);
        assert_eq!(server.ask(&post).text(), body, "{}", server.log());
    }
    assert!(!server.log().contains("AssertionError"), "{}", server.log());
}

#[test]
fn parts_that_frameworks_reach() {
    let output = Command::new(server::programs().join("python"))
        .args(["-c", include_str!("python/units.py")])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text == "done\n", "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn request_bodies_are_streams_that_end() {
    let python = Python::start(APPLICATION, &["--workers", "1"]);
    let server = python.front(&[]);
    let mut client = server.connect();
    let mut ask = |way: &str, body: &[u8]| {
        let request = Request::post(&format!("/echo?way={way}"), "text/plain", body);
        client.ask(&request).expect(200).to_vec()
    };
    let text = b"one\ntwo and more\n\nend";
    assert_eq!(ask("line", text), b"one\n|two and more\n|\n|end");
    assert_eq!(ask("short", text), b"one\n|two a|nd mo|re\n|\n|end");
    assert_eq!(ask("lines", text), b"one\n|two and more\n|\n|end");
    assert_eq!(ask("iterate", text), b"one\n|two and more\n|\n|end");
    assert_eq!(ask("hint", text), b"one\n|two and more\n#\nend");
    for body in [Vec::new(), pattern(4, 1), pattern(5, 70_000), pattern(6, 3 * MB)] {
        for way in ["read", "pieces", "length", "beyond"] {
            assert!(ask(way, &body) == body, "{way}: {} bytes", body.len());
        }
        assert_eq!(ask("unread", &body), b"unread");
    }
}

#[test]
fn every_size_in_every_mode() {
    let python = Python::start(APPLICATION, &["--workers", "2", "--threads", "2"]);
    for mode in ["relay", "file", "region", "direct", "auto"] {
        let server = python.front(&["--delivery", mode]);
        let mut client = server.connect();
        for n in [0, 1, 16_384, 65_537, 131_072, MB, 5 * MB] {
            let piece = if n > MB { 50_000 } else { 7_000 };
            for way in ["one", "length", "list", "generator", "write"] {
                let target = format!("/{way}?n={n}&piece={piece}");
                let mut body = made(n);
                if way == "write" {
                    body.extend_from_slice(b"and a list");
                }
                let response = client.ask(&Request::get(&target));
                assert!(response.expect(200) == body, "{mode} {target}: other bytes");
                let known = ["one", "length", "list"].contains(&way);
                assert_eq!(
                    response.framing == Framing::Length(body.len() as u64),
                    known || n == 0,
                    "{mode} {target}"
                );
                assert_eq!(client.ask(&Request::new("HEAD", &target)).body, b"");
                let old = server.ask(&Request::get(&target).http10());
                assert!(old.body == body, "{mode} {target}: other bytes over HTTP/1.0");
            }
        }
    }
}

/// The number of bytes of the response that the front sent from files, according to `sendoff
/// explain`.
fn from_files(server: &Server, target: &str) -> u64 {
    from_files_with(server, target, &[])
}

/// The same with options of `sendoff explain`.
fn from_files_with(server: &Server, target: &str, options: &[&str]) -> u64 {
    let table = server.explain(target, options).unwrap();
    let rows = table.lines().filter(|line| line.contains("  file"));
    rows.map(|line| line.split_whitespace().next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn plain_files_are_handed_over_and_others_are_read() {
    let site = Site::new();
    let (a, small) = (pattern(1, 200_000), pattern(2, 5_000));
    site.write_at(site.outside("a"), &a);
    site.write_at(site.outside("small"), &small);
    site.write_at(site.outside("empty"), b"");
    let python = Python::start_in(site, APPLICATION, &["--workers", "1", "--user", "www-data"]);
    let server = python.front(&[]);
    for (query, handed_over, body) in [
        ("name=a", 200_000, a.clone()),
        ("name=a", 200_000, a.clone()),
        ("name=a&how=raw", 200_000, a.clone()),
        ("name=a&length=200000", 200_000, a.clone()),
        ("name=a&length=50000", 50_000, a[..50_000].to_vec()),
        ("name=a&how=seek&at=70001", 129_999, a[70_001..].to_vec()),
        ("name=a&how=partly", 199_900, a[100..].to_vec()),
        ("name=a&how=passing", 200_000, a.clone()),
        ("name=a&how=written", 200_000, a.clone()),
        ("name=a&how=seek&at=190000", 0, a[190_000..].to_vec()),
        ("name=a&how=seek&at=200000", 0, Vec::new()),
        ("name=a&how=seek&at=300000", 0, Vec::new()),
        ("name=small", 0, small.clone()),
        ("name=empty", 0, Vec::new()),
        ("name=a&how=bytes", 0, a.clone()),
        ("name=a&how=gzip", 0, a.clone()),
        ("name=a&how=other", 0, a.to_ascii_uppercase()),
        ("name=a&how=memory", 0, a.clone()),
        ("name=a&how=pipe", 0, a[..50_000].to_vec()),
        ("name=a&how=both", 0, a.clone()),
    ] {
        let target = format!("/file?{query}");
        let response = server.get(&target);
        assert!(response.body == body, "{query}: other bytes");
        assert_eq!(response.header("X-Sendoff"), None);
        assert_eq!(from_files(&server, &target), handed_over, "{query}");
        assert_eq!(server.ask(&Request::new("HEAD", &target)).body, b"");
    }
    assert_eq!(server.page("/closed?name=file"), "3");
    // The file is held for the next request, so its contents stay although it is deleted.
    let response = server.get("/file?name=a&how=deleted");
    assert!(response.expect(200) == a);
    let relay = python.front(&["--delivery", "relay"]);
    assert_eq!(relay.get("/file?name=small").expect(200), small);
}

#[test]
fn a_download_is_one_version_of_its_file() {
    let site = Site::new();
    let old = pattern(7, 12 * MB);
    let file = site.write_at(site.outside("big"), &old);
    let python = Python::start_in(site, APPLICATION, &["--workers", "1", "--user", "www-data"]);
    let server = python.front(&[]);
    for round in 0_u8..2 {
        let mut slow = sendoff_tests::Client::connect_narrow(server.addr(), 4096);
        slow.send(Request::get("/file?name=big").bytes());
        let head = slow.head().unwrap();
        overwrite(&file, &vec![round; 12 * MB]);
        let response = slow.body_of(head, "GET").unwrap();
        let before = if round == 0 { old.clone() } else { vec![0; 12 * MB] };
        assert!(response.body == before, "round {round}: not the version that was asked for");
        assert!(server.get("/file?name=big").body == vec![round; 12 * MB]);
    }
}

#[test]
fn failures_before_the_first_byte_are_errors() {
    let python = Python::start(APPLICATION, &["--workers", "1"]);
    let server = python.front(&[]);
    for name in
        ["first", "started", "silent", "twice", "str", "status", "injection", "exit", "closing"]
    {
        let response = server.get(&format!("/fail_{name}"));
        assert_eq!(response.expect(500), b"Internal Server Error\n", "{name}");
        assert_eq!(response.header("X-Secret"), None);
        assert_eq!(response.header("X-Injected"), None);
    }
    server.await_log("LookupError: before start_response");
    server.await_log("SystemExit: the application wants to end");
    assert_eq!(server.page("/closed?name=failed"), "1");
    assert_eq!(server.get("/fail_in_close").expect(200), b"whole");
    python.await_log("LookupError: in close()");
    assert_eq!(server.page("/closed?name=failing"), "1");
    assert_eq!(server.get("/recovers").expect(503), b"instead");
    server.get("/log").expect(200);
    server.await_log("an entry of the application: €");
    assert_eq!(server.get("/hop").expect(200), b"hop");
}

/// gunicorn ends the response, then calls close().
#[test]
fn a_response_is_whole_before_its_body_is_closed() {
    let site = Site::new();
    let go = site.fifo("go");
    let path = site.path("go").display().to_string();
    let python = Python::start_in(site, APPLICATION, &["--workers", "1"]);
    let server = python.front(&[]);
    for round in 1..=2 {
        assert_eq!(server.page(&format!("/wait_in_close?path={path}")), "whole");
        go.release();
        let closed = || server.page("/closed?name=waiting") == round.to_string();
        assert!(wait::until(LIMIT, closed), "close() was not called");
    }
}

#[test]
fn a_response_that_fails_in_the_middle_is_cut() {
    let python = Python::start(APPLICATION, &["--workers", "1"]);
    for mode in ["relay", "region", "direct"] {
        let server = python.front(&["--delivery", mode]);
        let cut = ["/fail_written", "/recovers_late"].map(str::to_owned);
        let others = ["type", "read"].map(|how| format!("/fail_{how}?n=70000"));
        let middle = [1, 70_000, 3 * MB].map(|n| format!("/fail_middle?n={n}"));
        let length = [1, 70_000, 3 * MB].map(|n| format!("/fail_middle?n={n}&length=1"));
        for target in cut.iter().chain(&others).chain(&middle).chain(&length) {
            // Twice: on a connection that is new to the application, and on a kept one.
            for _ in 0..2 {
                let answer = server.connect().try_ask(&Request::get(target));
                assert!(answer.is_err(), "{mode} {target}: {:?}", answer.unwrap().head);
                assert_eq!(server.page("/hello"), "hello");
            }
        }
    }
    let server = python.front(&[]);
    // 3 modes, 8 targets, 2 times.
    assert_eq!(server.page("/closed?name=middle"), "48");
}

fn delivered_alike(application: &str, ways: &[&str], sends_file: &str) {
    let site = Site::new();
    let file = pattern(3, 3 * MB);
    site.write_at(site.outside("a"), &file);
    site.write_at(site.outside("coroutines.py"), COROUTINES_PY);
    let options = ["--workers", "2", "--threads", "2", "--user", "www-data"];
    let python = Python::start_in(site, application, &options);
    let page = |way: &str, n| (format!("/{way}?n={n}&piece=30000"), made(n));
    let mut pages: Vec<_> = ways
        .iter()
        .flat_map(|way| [100, 200_000, 0, 70_000, 2 * MB].map(|n| page(way, n)))
        .collect();
    pages.push((format!("/{sends_file}?name=a"), file));
    for mode in delivery::MODES {
        let server = python.front(&["--delivery", mode]);
        delivery::kept_and_pipelined_connections(&server, &pages);
        delivery::the_same_over_http2(&server, &pages);
        for page in [&page(ways[0], 3 * MB), pages.last().unwrap()] {
            delivery::clients_that_leave_in_the_middle(&server, page);
        }
    }
    assert!(!python.log().contains("Traceback"), "{}", python.log());
}

#[test]
fn delivery_is_the_same_in_every_mode() {
    delivered_alike(APPLICATION, &["generator", "one", "list"], "file");
}

#[test]
fn coroutines_deliver_the_same_in_every_mode() {
    delivered_alike(COROUTINES, &["made"], "path");
}

#[test]
#[ignore = "heavy: 1,000 slow clients in every mode"]
fn a_thousand_slow_clients_hold_no_process() {
    let site = Site::new();
    let file = pattern(3, 8 * MB);
    site.write_at(site.outside("a"), &file);
    let options = ["--workers", "2", "--threads", "2", "--user", "www-data"];
    let python = Python::start_in(site, APPLICATION, &options);
    let pages = [
        ("/file?name=a".to_owned(), file),
        (format!("/one?n={}", 8 * MB), made(8 * MB)),
        (format!("/generator?n={}&piece=50000", 2 * MB), made(2 * MB)),
    ];
    for mode in delivery::MODES {
        let server = python.front(&["--delivery", mode, "--send-timeout", "600"]);
        delivery::a_thousand_slow_clients(&server, &pages, "/hello");
    }
}

#[test]
#[ignore = "heavy: Python under valgrind"]
fn valgrind_finds_nothing_in_the_extension() {
    for application in [APPLICATION, COROUTINES] {
        let site = Site::new();
        site.write_at(site.outside("a"), pattern(1, 300_000));
        site.write_at(site.outside("coroutines.py"), COROUTINES_PY);
        let reports = Site::new();
        let python = Python::start_under_valgrind(site, application, reports.root());
        for mode in delivery::MODES {
            let server = python.front(&["--delivery", mode]);
            let mut pages = vec!["/fail_first", "/fail_started", "/fail_silent"];
            let breaking = if application == APPLICATION {
                pages.extend(["/list?n=5000", "/one?n=3000000", "/generator?n=100000&piece=9000"]);
                pages.extend(["/write?n=3000", "/fields", "/late?n=70000", "/log", "/nothing"]);
                pages.extend(["/types", "/file?name=a", "/file?name=a&how=seek&at=70001"]);
                pages.extend(["/fail_str", "/fail_status", "/fail_in_close", "/recovers"]);
                &["/fail_middle?n=70000", "/fail_type?n=9", "/fail_read?n=9", "/recovers_late"][..]
            } else {
                pages.extend(["/made?n=300000&piece=50000", "/path?name=a", "/fail_path"]);
                &["/fail_middle?n=70000", "/fail_cancelled?n=9", "/fail_open"]
            };
            for page in pages {
                server.get(page);
            }
            for page in breaking {
                assert!(server.connect().try_ask(&Request::get(page)).is_err(), "{page}");
            }
            for way in ["read", "lines", "short", "unread"] {
                let target = format!("/echo?way={way}");
                server.ask(&Request::post(&target, "text/plain", made(200_000))).expect(200);
            }
            let mut client = server.connect();
            let endless = if application == APPLICATION { "/endless" } else { "/gone" };
            client.send(Request::get(endless).bytes());
            client.read(100_000);
            drop(client);
            server.page("/hello");
        }
        python.signal(Signal::TERM);
        let (status, log) = python.end();
        assert!(status.success(), "{log}");
        let findings = valgrind::findings(reports.root(), "/_sendoff.");
        assert!(findings.is_empty(), "{}", findings.join("\n\n"));
    }
}

/// Expects that the response breaks off behind the first half of a file.
#[track_caller]
fn assert_cut_in_the_middle(server: &Server, target: &str, file: &[u8]) {
    match server.connect().try_ask(&Request::get(target)) {
        Err(Broken::Cut(part)) => assert!(part.body == file[..file.len() / 2], "other bytes"),
        other => panic!("{other:?}"),
    }
    server.await_log("it has become shorter");
    assert_eq!(server.page("/hello"), "hello");
}

#[test]
fn a_file_that_becomes_shorter_cuts_its_response() {
    let file = pattern(1, 300_000);
    let large = pattern(2, 8 * MB);
    for (application, page) in [(APPLICATION, "/file?name=b"), (COROUTINES, "/path?name=b")] {
        let site = Site::new();
        site.write_at(site.outside("a"), &file);
        let path = site.write_at(site.outside("b"), &large);
        site.write_at(site.outside("coroutines.py"), COROUTINES_PY);
        let python = Python::start_in(site, application, &["--workers", "1"]);
        assert_cut_in_the_middle(&python.front(&[]), "/fail_shrinks?name=a", &file);
        let socket = python.site.outside("socket");
        delivery::a_file_that_becomes_shorter(&socket, page, &path, &large);
    }
}

#[test]
fn a_client_that_leaves_ends_the_response() {
    let python = Python::start(APPLICATION, &["--workers", "1"]);
    for (round, mode) in (1..).zip(["relay", "region", "direct", "auto"]) {
        let server = python.front(&["--delivery", mode]);
        let mut client = server.connect();
        client.send(Request::get("/endless").bytes());
        client.head().unwrap();
        client.read(100_000);
        drop(client);
        let closed = || server.page("/closed?name=endless") == round.to_string();
        assert!(wait::until(LIMIT, closed), "{mode}: close() was not called");
    }
    assert!(!python.log().contains("Traceback"), "{}", python.log());
}

#[test]
fn threads_and_processes_work_at_the_same_time() {
    let python = Python::start(APPLICATION, &["--workers", "1", "--threads", "3"]);
    let server = python.front(&[]);
    let pages = std::thread::scope(|scope| {
        let ask = || scope.spawn(|| server.page("/meet"));
        [ask(), ask()].map(|thread| thread.join().unwrap())
    });
    assert_eq!(pages, ["True False", "True False"]);
}

#[test]
fn blocks_leave_before_the_next_one_is_made() {
    let python = Python::start(APPLICATION, &["--workers", "1"]);
    let pipe = python.site.fifo("../pipe");
    let server = python.front(&[]);
    let mut client = server.connect();
    client.send(Request::get("/wait").bytes());
    client.head().unwrap();
    assert_eq!(client.chunk(), b"first ");
    pipe.release();
    assert_eq!(client.chunk(), b"last");
}

#[test]
fn a_stop_lets_requests_finish() {
    let python = Python::start(APPLICATION, &["--workers", "2", "--threads", "2"]);
    let pipe = python.site.fifo("../pipe");
    let server = python.front(&[]);
    let mut client = server.connect();
    client.send(Request::get("/wait").bytes());
    let head = client.head().unwrap();
    let workers = python.workers();
    python.signal(Signal::TERM);
    // The idle one ends; the other waits for its request.
    assert!(wait::until(LIMIT, || python.workers().len() == 1));
    pipe.release();
    assert_eq!(client.body_of(head, "GET").unwrap().body, b"first last");
    let (status, log) = python.end();
    assert!(status.success(), "{log}");
    assert!(workers.iter().all(|pid| !processes::runs(*pid)));
}

#[test]
fn workers_that_die_or_have_done_their_share_are_replaced() {
    let python = Python::start(APPLICATION, &["--workers", "1", "--max-requests", "5"]);
    let server = python.front(&[]);
    let first = server.page("/pid");
    let mut seen = vec![first.clone()];
    for _ in 0..20 {
        let pid = server.page("/pid");
        if seen.last() != Some(&pid) {
            seen.push(pid);
        }
    }
    assert!(seen.len() >= 4, "{seen:?}");
    let worker = python.workers()[0];
    processes::signal(worker, Signal::KILL);
    // A process may still take a connection from the queue while it is being killed.
    assert!(wait::until(LIMIT, || {
        let workers = python.workers();
        !workers.is_empty() && !workers.contains(&worker)
    }));
    server.page("/pid");
    python.await_log("was ended by SIGKILL");
}

#[test]
fn a_child_of_the_application_answers_nothing() {
    let python = Python::start(APPLICATION, &["--workers", "1"]);
    let server = python.front(&[]);
    let worker = server.page("/pid");
    for _ in 0..3 {
        assert_eq!(server.page("/fork?way=exit"), "the child ended with 7");
        assert_eq!(server.page("/fork?way=raise"), "the child ended with 1");
        assert_eq!(server.page("/fork?way=return"), "the child ended with 0");
        for (signal, status) in [("SIGTERM", -15), ("SIGQUIT", -3), ("SIGHUP", -1), ("SIGINT", 1)] {
            let ended = server.page(&format!("/fork?way={signal}"));
            assert_eq!(ended, format!("the child ended with {status}"), "{signal}");
        }
    }
    python.await_log("LookupError: in the child");
    assert_eq!(server.page("/pid"), worker);
    assert_eq!(processes::descendants(worker.parse().unwrap()), [0; 0]);
}

/// It would take the wake-ups of its parent's event loop.
#[test]
fn a_child_of_a_coroutine_does_not_go_on_in_the_event_loop() {
    let site = Site::new();
    site.write_at(site.outside("coroutines.py"), COROUTINES_PY);
    let python = Python::start_in(site, COROUTINES, &["--workers", "1", "--threads", "2"]);
    let server = python.front(&[]);
    for (target, status) in [
        ("/fork?way=return", 0),
        ("/fork?way=raise", 1),
        ("/fork?way=sleep", 1),
        ("/fork?way=answer", 1),
        ("/fork?way=caught", 1),
        ("/fork_in_thread", 0),
    ] {
        assert_eq!(server.page(target), format!("the child ended with {status}"), "{target}");
        assert_eq!(server.page("/hello"), "hello");
    }
    python.await_log("LookupError: in the child");
    python.await_log("A forked process awaits the event loop of its parent");
}

#[test]
fn programs_that_the_application_starts_are_ended_by_signals() {
    let python = Python::start(APPLICATION, &["--workers", "1"]);
    assert_eq!(python.front(&[]).page("/signals"), "-2 -1 -15");
}

/// A process that has been given a request could work, so the next one starts at once.
#[test]
fn a_page_that_ends_its_process_makes_no_other_page_wait() {
    let python = Python::start(APPLICATION, &["--workers", "1", "--threads", "1"]);
    let server = python.front(&[]);
    for _ in 0..4 {
        let fatal = Request::post("/fail_process", "text/plain", "");
        assert_eq!(server.ask(&fatal).status(), 502);
        server.page("/pid");
    }
    python.await_log("has ended with status 9");
    assert!(!python.log().contains("the next worker starts in"), "{}", python.log());
}

const VERSION: &str = "def application(environ, start_response):
    start_response('200 OK', [('Content-Type', 'text/plain')])
    return [b'version 1']
";

fn versions(options: &[&str], reload: impl Fn(&Python)) {
    let site = Site::new();
    let module = site.write_at(site.outside("versions.py"), VERSION);
    let python = Python::start_in(site, "versions", &[&["--workers", "2"], options].concat());
    let server = python.front(&[]);
    assert_eq!(server.page("/"), "version 1");
    let write = |text: &str| {
        std::fs::write(&module, text).unwrap();
        reload(&python);
    };
    write("this is no Python");
    python.await_log("the previous version goes on");
    assert_eq!(server.page("/"), "version 1");
    write(&VERSION.replace('1', "2"));
    python.await_log("reloaded");
    assert!(wait::until(LIMIT, || python.workers().len() == 2));
    for _ in 0..5 {
        assert_eq!(server.page("/"), "version 2");
    }
}

#[test]
fn a_reload_takes_the_new_version_if_it_can_be_loaded() {
    versions(&[], |python| python.signal(Signal::HUP));
}

#[test]
fn a_reload_works_with_preload() {
    versions(&["--preload"], |python| python.signal(Signal::HUP));
}

#[test]
fn changed_files_are_noticed() {
    versions(&["--reload"], |_| {});
}

#[test]
fn what_cannot_be_started_says_why() {
    for (application, options, why) in [
        ("missing:application", &[][..], "No module named 'missing'"),
        ("conformance:missing", &[], "has no 'missing'"),
        ("conformance:missing", &["--preload"], "has no 'missing'"),
        ("conformance:FOLDER", &[], "is not callable"),
        ("a b", &[], "is not of the form module:application"),
        (APPLICATION, &["--bind", "fd:0"], "descriptor 0 is not a listening socket"),
        (APPLICATION, &["--user", "nobody-of-that-name"], "nobody-of-that-name"),
    ] {
        let site = Site::new();
        site.write_at(site.outside("conformance.py"), include_bytes!("python/conformance.py"));
        let python = Python::spawn(site, application, options, Stdio::null());
        let (status, log) = python.end();
        assert!(!status.success() && log.contains(why), "{application} {options:?}: {log}");
    }
}

#[test]
fn a_listener_may_be_descriptor_0() {
    let site = Site::new();
    site.write_at(site.outside("conformance.py"), include_bytes!("python/conformance.py"));
    let path = site.outside("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(&path, everyone).unwrap();
    let stdin = Stdio::from(std::os::fd::OwnedFd::from(listener));
    let python = Python::spawn(site, APPLICATION, &["--bind", "fd:0", "--workers", "1"], stdin);
    python.await_log("ready: ");
    assert_eq!(python.front(&[]).page("/hello"), "hello");
}

#[test]
fn asgi_applications_share_an_event_loop() {
    let site = Site::new();
    site.write_at(site.outside("coroutines.py"), COROUTINES_PY);
    let file = pattern(9, 300_000);
    site.write_at(site.outside("a"), &file);
    let options = ["--workers", "1", "--threads", "4", "--user", "www-data"];
    let python = Python::start_in(site, COROUTINES, &options);
    let server = python.front(&[]);
    assert_eq!(server.page("/hello"), "hello");
    let request = Request::get("/scope?a=%C3%A9").header("X-Own", "field");
    let scope = "['http', '1.1', 'GET', 'http', '/scope', b'/scope', b'a=%C3%A9', '', b'field', '127.0.0.1']";
    assert_eq!(server.ask(&request).text(), scope);
    let over_http2 = Http2::connect(server.clear_addr()).ask(&request).text();
    assert_eq!(over_http2, scope.replacen("'1.1'", "'2'", 1));
    let mut client = server.connect();
    client
        .send("POST /framing HTTP/1.1\r\nHost: example.test\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send("3\r\nabc\r\n0\r\n\r\n");
    assert_eq!(client.response("POST").text(), "[(b'content-length', b'3')]");
    for n in [0, 1, 70_000, 3 * MB] {
        let page = server.get(&format!("/made?n={n}&piece=50000"));
        assert!(page.expect(200) == made(n), "{n}");
        let echo = Request::post("/echo", "text/plain", made(n));
        assert!(server.ask(&echo).expect(200) == made(n), "{n}");
    }
    let pages = std::thread::scope(|scope| {
        let server = &server;
        let ask = |who| scope.spawn(move || server_page(server, who));
        [ask("first"), ask("second")].map(|thread| thread.join().unwrap())
    });
    assert_eq!(pages, ["first", "second"]);
    assert!(server.get("/path?name=a").expect(200) == file);
    assert_eq!(from_files(&server, "/path?name=a"), 300_000);
    for name in ["first", "started", "silent", "type", "path"] {
        assert_eq!(server.get(&format!("/fail_{name}")).status(), 500, "{name}");
    }
    for name in ["middle", "cancelled", "exit", "open"] {
        for n in [1, 1_000_000] {
            let target = format!("/fail_{name}?n={n}");
            assert!(server.connect().try_ask(&Request::get(&target)).is_err(), "{target}");
        }
    }
    assert_eq!(server.get("/late_path?name=a").expect(200), [b"first ", &file[..]].concat());
    assert_eq!(server.page("/fail_after"), "whole");
    python.await_log("LookupError: after the end");
    let mut client = server.connect();
    client.send(Request::get("/gone").bytes());
    client.head().unwrap();
    drop(client);
    assert!(wait::until(LIMIT, || python.site.outside("gone").exists()));
    let stopped = python.site.outside("shutdown");
    python.signal(Signal::TERM);
    assert!(wait::until(LIMIT, || stopped.exists()), "{}", python.log());
    let (status, log) = python.end();
    // One traceback: the task that went on behind its response.
    assert!(status.success() && log.matches("Traceback").count() == 1, "{log}");
}

/// As uvicorn sends it: a stream of events has begun before there is an event.
#[test]
fn the_head_of_an_asgi_response_does_not_wait_for_the_body() {
    let site = Site::new();
    site.write_at(site.outside("coroutines.py"), COROUTINES_PY);
    let python = Python::start_in(site, COROUTINES, &["--workers", "1", "--threads", "1"]);
    let server = python.front(&[]);
    let pipe = python.site.fifo("../pipe");
    let answer = |method: &str, target: &str| {
        let mut client = server.connect();
        client.send(Request::new(method, target).bytes());
        let head = client.head().unwrap();
        pipe.release();
        client.body_of(head, method).map(|response| response.body)
    };
    assert_eq!(answer("GET", "/late?body=late").unwrap(), b"late");
    assert_eq!(answer("GET", "/late?body=").unwrap(), b"");
    assert_eq!(answer("HEAD", "/late?body=late").unwrap(), b"");
    assert!(answer("GET", "/late").is_err(), "a body without an end");
    // A body that comes at once leaves together with its head.
    assert_eq!(server.get("/hello").header("Content-Length"), Some("5"));
}

/// The client has its response, and its connection and the thread are free, while the application
/// goes on working.
#[test]
fn what_an_asgi_application_does_behind_its_response_holds_nothing_up() {
    let site = Site::new();
    site.write_at(site.outside("coroutines.py"), COROUTINES_PY);
    let python = Python::start_in(site, COROUTINES, &["--workers", "1", "--threads", "1"]);
    let server = python.front(&[]);
    let exists = |name: &str| python.site.outside(name).exists();
    for n in [1, 100_000] {
        let target = format!("/behind?n={n}&until=go&note=ended{n}");
        assert_eq!(server.page(&target), "whole".repeat(n));
        assert!(!exists(&format!("ended{n}")));
    }
    python.site.write_at(python.site.outside("go"), "");
    for name in ["ended1", "ended100000"] {
        assert!(wait::until(LIMIT, || exists(name)), "{}", python.log());
    }
    // A process that is told to end waits for it.
    assert_eq!(server.page("/behind?n=1&until=stop&note=last"), "whole");
    python.signal(Signal::TERM);
    python.site.write_at(python.site.outside("stop"), "");
    let (status, log) = python.end();
    assert!(status.success() && log.contains("ended behind: last"), "{log}");
}

/// An application with one thread must learn that its client has left, or it could not answer other
/// clients.
#[test]
fn asgi_applications_learn_that_their_client_has_left() {
    let site = Site::new();
    site.write_at(site.outside("coroutines.py"), COROUTINES_PY);
    let python = Python::start_in(site, COROUTINES, &["--workers", "1", "--threads", "1"]);
    let server = python.front(&[]);
    let ways = ["/listens?", "/listens?n=1&", "/listens?n=1000000&", "/streams?"];
    for (number, way) in ways.into_iter().enumerate() {
        let await_note = |name: String| {
            let noted = wait::until(LIMIT, || python.site.outside(&name).exists());
            assert!(noted, "{way}: {name}: {}", python.log());
        };
        let mut client = server.connect();
        client.send(Request::get(&format!("{way}note=left{number}")).bytes());
        await_note(format!("left{number} begun"));
        drop(client);
        await_note(format!("left{number}"));
        assert_eq!(server.page("/hello"), "hello");
    }
    assert!(!python.log().contains("Traceback"), "{}", python.log());
}

/// The module is loaded before the fork, without an event loop; each process starts and ends the
/// application in a loop of its own.
#[test]
fn asgi_processes_are_preloaded_replaced_and_reloaded() {
    let site = Site::new();
    let module = site.write_at(site.outside("coroutines.py"), COROUTINES_PY);
    let options = ["--preload", "--workers", "1", "--threads", "2", "--max-requests", "5"];
    let python = Python::start_in(site, COROUTINES, &options);
    let server = python.front(&[]);
    let stopped = python.site.outside("shutdown");
    let mut seen = Vec::new();
    for _ in 0..20 {
        let pid = server.page("/pid");
        if seen.last() != Some(&pid) {
            seen.push(pid);
        }
        assert_eq!(server.page("/loaded"), python.pid().to_string());
    }
    assert!(seen.len() >= 4, "{seen:?}");
    assert!(stopped.exists(), "no process has ended its lifespan");
    let changed = COROUTINES_PY.replace("b\"hello\"", "b\"version 2\"");
    std::fs::write(&module, changed).unwrap();
    python.signal(Signal::HUP);
    python.await_log("reloaded");
    // The old process may still take a request that comes before its signal.
    assert!(wait::until(LIMIT, || server.page("/hello") == "version 2"));
    python.signal(Signal::TERM);
    let (status, log) = python.end();
    assert!(status.success() && !log.contains("Traceback"), "{log}");
}

/// A process without an event loop would answer nothing.
#[test]
fn a_process_whose_event_loop_ends_is_replaced() {
    let site = Site::new();
    site.write_at(site.outside("coroutines.py"), COROUTINES_PY);
    let python = Python::start_in(site, COROUTINES, &["--workers", "1"]);
    let server = python.front(&[]);
    let before = server.page("/pid");
    assert!(server.connect().try_ask(&Request::get("/loop")).is_err());
    python.await_log("SystemExit: a task wants to end");
    python.await_log("has ended with status 5");
    assert_ne!(server.page("/pid"), before);
}

fn server_page(server: &Server, who: &str) -> String {
    server.page(&format!("/meet?who={who}"))
}
