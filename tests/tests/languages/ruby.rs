//! The Ruby gem: Rack applications behind the real front, compared with Puma.

mod application;
mod fragments;
mod open_files;
mod redmine;
mod sites;
mod sockets;
mod storm;

use std::os::unix::net::UnixListener;
use std::process::Command;

use application::{Application, Puma, test_application};
use rustix::process::Signal;
use sendoff_tests::{
    Broken, Client, Request, Response, Server, Site, Stock, assert_same, overwrite, pattern,
    processes, repository, wait,
};

use crate::{delivery, stops, valgrind};

/// Body sizes around every threshold: of a handover, of a message, of the client's socket.
const SIZES: [usize; 9] = [0, 1, 16_383, 16_384, 32_768, 65_537, 200_000, 1_000_000, (4 << 20) + 1];

fn started(options: &[&str]) -> (Site, Application, Server) {
    let site = Site::new();
    let application = Application::start(&site, &test_application(), options);
    let server = front(&site, &application, &[]);
    (site, application, server)
}

fn front(site: &Site, application: &Application, options: &[&str]) -> Server {
    let route = application.route("/");
    let mut server = Server::start(site.root(), &[&["--fastcgi", &route], options].concat());
    server.expect_linked_processes(1000);
    server
}

fn line(request: &Request) -> String {
    String::from_utf8_lossy(&request.bytes()).lines().next().unwrap().to_owned()
}

/// The requests to the test's application, except those for files.
fn requests() -> Vec<Request> {
    let mut all: Vec<Request> = [
        "/",
        "/env?a=1&b[]=%20",
        "/env/a%20b/%C3%A4%2f;x=1?",
        "/headers",
        "/status/204",
        "/status/304",
        "/status/207",
        "/status/404",
        "/log",
    ]
    .map(Request::get)
    .into();
    all.push(Request::get("/env").header("X-Some", "thing").header("Cookie", "a=b"));
    all.push(Request::new("OPTIONS", "/env"));
    for body in [0, 1, 100, 131_072, 131_073, 1_000_000] {
        all.push(Request::post("/echo", "application/octet-stream", pattern(1, body)));
    }
    for kind in ["array", "string", "each", "length"] {
        all.extend(SIZES.map(|size| Request::get(&format!("/{kind}/{size}"))));
        all.push(Request::new("HEAD", &format!("/{kind}/100000")));
        all.push(Request::get(&format!("/{kind}/100000")).http10());
    }
    all
}

fn file_requests(site: &Site) -> Vec<Request> {
    let mut all = vec![Request::get("/files/nothing")];
    for size in SIZES {
        site.write(&format!("{size}.bin"), pattern(size as u64, size));
        let target = format!("/files/{size}.bin");
        all.extend(["GET", "HEAD", "OPTIONS"].map(|method| Request::new(method, &target)));
    }
    let large = "/files/1000000.bin";
    for range in
        ["bytes=0-99", "bytes=-5000", "bytes=500000-", "bytes=0-1,5-70000", "bytes=2000000-"]
    {
        all.push(Request::get(large).header("Range", range));
    }
    all
}

#[test]
fn every_response_is_pumas() {
    for lint in [false, true] {
        let site = Site::new();
        let lint = |command: &mut Command| {
            if lint {
                command.env("LINT", "1");
            }
        };
        let application = Application::start_with(&site, &test_application(), &[], lint);
        let puma = Puma::start(&site, &test_application(), lint);
        let server = front(&site, &application, &[]);
        for request in requests().into_iter().chain(file_requests(&site)) {
            let theirs = Client::connect(puma.addr()).ask(&request);
            assert_same(&line(&request), &theirs, &server.ask(&request));
        }
        assert!(!puma.log().contains("LintError"), "{}", puma.log());
        assert!(!server.log().contains("LintError"), "{}", server.log());
        server.await_log("a line in two pieces");
    }
}

#[test]
#[ignore = "heavy: every request of the comparison with Puma, in five modes"]
fn the_same_bytes_in_every_delivery_mode() {
    let site = Site::new();
    let application = Application::start(&site, &test_application(), &[]);
    let requests = [requests(), file_requests(&site)].concat();
    let relayed = front(&site, &application, &["--delivery", "relay"]);
    let expected: Vec<Response> = requests.iter().map(|request| relayed.ask(request)).collect();
    for mode in ["auto", "direct", "region", "file"] {
        let server = front(&site, &application, &["--delivery", mode]);
        for (request, expected) in requests.iter().zip(&expected) {
            let what = format!("{mode}: {}", line(request));
            assert_same(&what, expected, &server.ask(request));
        }
    }
}

/// Rack::Files and every other body that names its file.
#[test]
fn files_are_handed_over() {
    let (site, application, server) = started(&["workers=1"]);
    site.write("60.bin", pattern(1, 60_000));
    // The first response to a front says that the application knows the channel.
    server.page("/pid");
    let explained = server.explain("/path/1000000", &[]).unwrap();
    assert!(explained.contains("1000000  file, sendfile"), "{explained}");
    let place = explained.split_once("config.ru:").expect("the line of the application").1;
    assert!(place.starts_with(|first: char| first.is_ascii_digit()), "{explained}");
    // The front sends files of this size from memory.
    let explained = server.explain("/files/60.bin", &[]).unwrap();
    assert!(explained.contains("it hands over files"), "{explained}");
    let explained = server.explain("/array/60000", &[]).unwrap();
    assert!(explained.contains("did not in this response"), "{explained}");
    // Rack::Files answers with one range of the file, also inside of a wrapper that waits for
    // close().
    site.write("1m.bin", pattern(5, 1_000_000));
    for path in ["/files/1m.bin", "/proxied/1m.bin"] {
        let explained = server.explain(path, &["-H", "Range: bytes=1000-500999"]).unwrap();
        assert!(explained.contains("500000  file, sendfile"), "{explained}");
    }
    let explained = server.explain("/files/1m.bin", &["-H", "Range: bytes=0-1,5-70000"]).unwrap();
    assert!(!explained.contains("file, sendfile"), "{explained}");
    // The lease is kept for the next response, and given up when the file is overwritten.
    let (held, changed) = (pattern(1, 60_000), pattern(2, 60_000));
    assert!(server.get("/files/60.bin").expect(200) == held);
    let holds = || {
        let worker = application.workers()[0];
        processes::descriptors(worker).iter().any(|file| file.ends_with("/60.bin"))
    };
    assert!(holds());
    overwrite(&site.path("60.bin"), &changed);
    assert!(server.get("/files/60.bin").expect(200) == changed);
    assert_eq!(server.get("/gone").expect(200), b"from each");
    assert_eq!(server.get("/wrong-size").expect(200), b"from each");
}

/// The client gets the version that the application sent, however slowly it reads.
#[test]
fn a_file_may_change_while_it_is_sent() {
    let (site, _application, server) = started(&[]);
    let (old, new) = (pattern(1, 8 << 20), pattern(2, 8 << 20));
    site.write("large.bin", &old);
    assert!(server.get("/files/large.bin").expect(200) == old);
    let mut client = Client::connect_narrow(server.addr(), 8192);
    client.send(Request::get("/files/large.bin").bytes());
    let head = client.head().unwrap();
    overwrite(&site.path("large.bin"), &new);
    assert!(client.body_of(head, "GET").unwrap().body == old);
    assert!(server.get("/files/large.bin").expect(200) == new);
}

#[test]
fn a_chunked_request_has_the_length_of_its_body() {
    let (_site, _application, server) = started(&[]);
    let mut client = server.connect();
    client.send("POST /env HTTP/1.1\r\nHost: example.test\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send("3\r\nabc\r\n0\r\n\r\n");
    let page = client.response("POST").text();
    assert!(page.contains("CONTENT_LENGTH=\"3\"") && !page.contains("TRANSFER"), "{page}");
}

#[test]
fn bodies_of_rack_3_and_chunked_ones() {
    let (_site, _application, server) = started(&[]);
    let arrays = server.get("/arrays");
    assert_eq!(arrays.head.all("X-Many").collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(server.page("/streaming"), "first second");
    assert_eq!(server.page("/hijack"), "first second");
    for size in SIZES {
        let plain = server.get(&format!("/array/{size}"));
        assert!(server.get(&format!("/chunked/{size}")).expect(200) == plain.body, "{size}");
    }
}

#[test]
fn what_raises_before_the_head_is_a_500_and_later_a_cut() {
    let (site, _application, server) = started(&[]);
    assert_eq!(server.get("/raise").status(), 500);
    server.await_log("a mistake in the application");
    assert_eq!(server.get("/bad-header").status(), 500);
    for target in ["/each-raise", "/length-raise"] {
        for http_10 in [false, true] {
            let request = Request::get(target);
            let request = if http_10 { request.http10() } else { request };
            let mut client = server.connect();
            match client.try_ask(&request) {
                Err(Broken::Cut(part)) => assert_eq!(part.body, b"begun"),
                // Only a reset tells an HTTP/1.0 client without a length.
                Err(_) if http_10 => {}
                Ok(response) if http_10 && target == "/each-raise" => {
                    assert_eq!(response.body, b"begun");
                }
                other => panic!("{target}: {other:?}"),
            }
        }
        assert_eq!(std::fs::read_to_string(site.path(&target[1..])).unwrap(), "closed");
    }
    // A thread that the application ends costs its own request.
    let ended = server.connect().try_ask(&Request::post("/kill", "text/plain", "x"));
    assert!(ended.is_err() || ended.unwrap().status() == 502);
    assert_eq!(server.page("/array/3"), "\0\u{1}\u{2}");
}

#[test]
fn a_file_that_becomes_shorter_cuts_its_response() {
    let (site, application, _server) = started(&["workers=1"]);
    let contents = pattern(4, 8 << 20);
    let path = site.write("short.bin", &contents);
    let socket = application.socket();
    delivery::a_file_that_becomes_shorter(socket, "/unannounced/short.bin", &path, &contents);
}

/// Pages of each kind of body in the test's application, and a file.
fn pages(site: &Site, size: usize) -> Vec<delivery::Page> {
    let file = pattern(6, size);
    site.write("sent.bin", &file);
    let row: Vec<u8> = (0..=255).cycle().take(size).collect();
    let mut pages: Vec<_> = ["array", "string", "each", "length"]
        .iter()
        .flat_map(|kind| [size, 100, 70_000].map(|n| (format!("/{kind}/{n}"), row[..n].to_vec())))
        .collect();
    pages.push(("/files/sent.bin".to_owned(), file));
    pages
}

#[test]
fn delivery_is_the_same_in_every_mode() {
    let site = Site::new();
    let application = Application::start(&site, &test_application(), &["workers=2"]);
    let pages = pages(&site, 3 << 20);
    for mode in delivery::MODES {
        let server = front(&site, &application, &["--delivery", mode]);
        delivery::kept_and_pipelined_connections(&server, &pages);
        delivery::the_same_over_http2(&server, &pages);
        for page in
            pages.iter().filter(|(page, _)| page.starts_with("/each/3") || page.contains("sent"))
        {
            delivery::clients_that_leave_in_the_middle(&server, page);
        }
    }
}

#[test]
#[ignore = "heavy: 1,000 slow clients in every mode"]
fn a_thousand_slow_clients_hold_no_thread() {
    let site = Site::new();
    let application = Application::start(&site, &test_application(), &["workers=2"]);
    let pages = pages(&site, 1 << 20);
    for mode in delivery::MODES {
        let server = front(&site, &application, &["--delivery", mode, "--send-timeout", "600"]);
        delivery::a_thousand_slow_clients(&server, &pages, "/pid");
    }
}

#[test]
#[ignore = "heavy: Ruby under valgrind"]
fn valgrind_finds_nothing_in_the_extension() {
    let (site, reports) = (Site::new(), Site::new());
    let file = pattern(1, 300_000);
    site.write("a.bin", &file);
    let application = Application::start_under_valgrind(&site, &test_application(), reports.root());
    for mode in delivery::MODES {
        let server = front(&site, &application, &["--delivery", mode]);
        for page in ["/", "/env?a=1", "/headers", "/log", "/streaming", "/raise", "/bad-header"] {
            server.get(page);
        }
        for kind in ["array", "string", "each", "length", "chunked"] {
            for size in [0, 70_000, 1_000_000] {
                server.get(&format!("/{kind}/{size}")).expect(200);
            }
        }
        for path in ["/files/a.bin", "/proxied/a.bin", "/unannounced/a.bin"] {
            server.get(path).expect(200);
            server.ask(&Request::get(path).header("Range", "bytes=1000-200000"));
        }
        for page in ["/each-raise", "/length-raise"] {
            assert!(server.connect().try_ask(&Request::get(page)).is_err(), "{page}");
        }
        let _killed = server.connect().try_ask(&Request::post("/kill", "text/plain", "x"));
        let echo = Request::post("/echo", "application/octet-stream", pattern(2, 500_000));
        server.ask(&echo).expect(200);
        let mut client = server.connect();
        client.send(Request::get("/endless").bytes());
        client.read(100_000);
        drop(client);
        assert!(server.get("/files/a.bin").expect(200) == file);
    }
    processes::signal(application.pid(), Signal::TERM);
    assert!(application.end().success());
    let findings = valgrind::findings(reports.root(), "/native.so");
    assert!(findings.is_empty(), "{}", findings.join("\n\n"));
}

#[test]
fn yielded_pieces_arrive_at_once() {
    let (site, _application, server) = started(&[]);
    let go = site.fifo("go");
    let mut client = server.connect();
    client.send(Request::get("/wait").bytes());
    let head = client.head().unwrap();
    assert_eq!(head.header("Transfer-Encoding"), Some("chunked"));
    assert_eq!(client.chunk(), b"first ");
    go.release();
    assert_eq!(client.chunk(), b"go");
    assert_eq!(client.chunk(), b"");
}

/// As Puma sends it: a stream of events has begun before there is an event.
#[test]
fn the_head_of_a_stream_does_not_wait_for_its_first_piece() {
    let (site, _application, server) = started(&[]);
    let go = site.fifo("go");
    for page in ["/late", "/late-call", "/late-hijack"] {
        let mut client = server.connect();
        client.send(Request::get(page).bytes());
        let head = client.head().unwrap();
        go.release();
        assert_eq!(client.body_of(head, "GET").unwrap().body, b"go", "{page}");
    }
}

#[test]
fn the_body_of_a_client_that_has_gone_is_closed() {
    let (site, _application, server) = started(&[]);
    // Server-sent events are found out by the next one.
    for name in ["endless", "events"] {
        let mut client = server.connect();
        client.send(Request::get(&format!("/{name}")).bytes());
        client.head().unwrap();
        drop(client);
        wait::for_some("close", || std::fs::read(site.path(name)).ok());
    }
    assert_eq!(server.page("/finished"), "ok");
    wait::for_some("rack.response_finished", || {
        std::fs::read(site.path("finished")).ok().filter(|status| status == b"200")
    });
}

/// Puma ends the response, then calls `close`.
#[test]
fn a_response_is_whole_before_its_body_is_closed() {
    let (site, application, server) = started(&["workers=2", "threads=1"]);
    let go = site.fifo("go");
    for (kind, body) in [
        ("each", b"begunend".to_vec()),
        ("length", b"begunend".to_vec()),
        ("array", b"begunend".to_vec()),
        ("proxy", b"begunend".to_vec()),
        ("file", server.get("/array/100000").body),
    ] {
        let page = |way: &str| format!("/close/{kind}/{way}");
        assert!(server.get(&page("raise")).expect(200) == body, "{kind}");
        assert_eq!(server.ask(&Request::new("HEAD", &page("raise"))).status(), 200, "{kind}");
        // The process dies behind the response.
        assert!(server.get(&page("exit")).expect(200) == body, "{kind}");
        let mut client = server.connect();
        client.send(Request::get(&page("wait")).bytes());
        let head = client.head().unwrap();
        assert!(client.body_of(head, "GET").unwrap().body == body, "{kind}");
        // Another request meanwhile goes to the other process.
        assert_eq!(server.page("/array/3"), "\0\u{1}\u{2}");
        go.release();
        wait::for_some("close", || std::fs::read(site.path("waited")).ok());
        std::fs::remove_file(site.path("waited")).unwrap();
    }
    // The request has ended for the front, so the exception is in the application's log.
    application.await_log("in close (RuntimeError)");
    assert!(!server.log().contains("cut short"), "{}", server.log());
    match server.connect().try_ask(&Request::get("/close/fails/raise")) {
        Err(Broken::Cut(part)) => assert_eq!(part.body, b"begun"),
        other => panic!("{other:?}"),
    }
    server.await_log("in each (RuntimeError)");
}

#[test]
fn workers_that_die_are_replaced() {
    let (_site, application, server) = started(&["workers=2", "threads=1"]);
    wait::for_some("two workers", || (application.workers().len() == 2).then_some(()));
    for _ in 0..3 {
        let victim = application.workers()[0];
        processes::signal(victim, Signal::KILL);
        wait::for_some("another worker", || {
            let workers = application.workers();
            (workers.len() == 2 && !workers.contains(&victim)).then_some(())
        });
    }
    application.await_log("has ended (pid ");
    server.page("/pid").parse::<u32>().unwrap();
}

#[test]
fn a_child_of_the_application_answers_nothing() {
    let (_site, application, server) = started(&["workers=1", "threads=1"]);
    let worker = server.page("/pid");
    for _ in 0..3 {
        assert_eq!(server.page("/fork/exit"), "the child ended with 7");
        assert_eq!(server.page("/fork/raise"), "the child ended with 1");
        assert_eq!(server.page("/fork/return"), "the child ended with 0");
        for signal in ["TERM", "INT", "QUIT"] {
            let ended = server.page(&format!("/signal/{signal}"));
            assert_eq!(ended, format!("the child was ended by SIG{signal}"));
        }
    }
    application.await_log("in the child");
    assert_eq!(server.page("/pid"), worker);
    assert_eq!(processes::descendants(worker.parse().unwrap()), [0; 0]);
}

/// A process that has been given a request could work, so the next one starts at once.
#[test]
fn a_page_that_ends_its_process_makes_no_other_page_wait() {
    let (_site, application, server) = started(&["workers=1", "threads=1"]);
    for _ in 0..4 {
        assert_eq!(server.ask(&Request::post("/exit", "text/plain", "")).status(), 502);
        server.page("/pid");
    }
    application.await_log("exit 9), another one starts");
    assert!(!application.log().contains("another one starts in"), "{}", application.log());
}

#[test]
fn sigterm_lets_requests_end() {
    for workers in ["workers=0", "workers=2"] {
        let (site, application, server) = started(&[workers]);
        let go = site.fifo("go");
        let mut client = server.connect();
        client.send(Request::get("/wait").bytes());
        let head = client.head().unwrap();
        assert_eq!(client.chunk(), b"first ");
        let _another_thread_waits_for_a_request = server.page("/pid");
        processes::signal(application.pid(), Signal::TERM);
        // The listening socket is removed when all have ended, so the request is still open.
        assert!(application.socket().exists());
        go.release();
        let rest = client.body_of(head, "GET").unwrap().body;
        assert_eq!(rest, b"go");
        let socket = application.socket().to_owned();
        assert!(application.end().success(), "{workers}");
        assert!(!socket.exists(), "{workers}");
    }
}

#[test]
fn stops_of_workers_cost_no_request() {
    let (_site, application, server) = started(&["workers=2", "threads=3"]);
    stops::cost_no_request(&server, "/arrays", "Rack 3", 40, |number| {
        let signal = [Signal::TERM, Signal::INT, Signal::QUIT][number % 3];
        let worker = wait::for_some("a worker", || {
            application.workers().into_iter().filter(|pid| processes::runs(*pid)).nth(number % 2)
        });
        processes::signal(worker, signal);
    });
}

/// The next server has the same listening socket.
#[test]
fn a_stop_of_the_server_costs_no_request() {
    let site = Site::new();
    let path = site.outside("shared.sock");
    let listener = UnixListener::bind(&path).unwrap();
    application::open_to_all(&path);
    let start = || {
        let listener = listener.try_clone().unwrap().into();
        Application::start_on(&site, &test_application(), listener, &["workers=2"])
    };
    let route = format!("/=unix:{}", path.display());
    let mut running = start();
    let mut server = Server::start(site.root(), &["--fastcgi", &route]);
    server.expect_linked_processes(1000);
    stops::cost_no_request(&server, "/arrays", "Rack 3", 6, |_| {
        let stopped = std::mem::replace(&mut running, start());
        processes::signal(stopped.pid(), Signal::TERM);
        assert!(stopped.end().success());
    });
}

/// As a supervisor starts it.
#[test]
fn a_listener_on_descriptor_0_is_used() {
    let site = Site::new();
    let path = site.outside("given.sock");
    let listener = UnixListener::bind(&path).unwrap();
    application::open_to_all(&path);
    let mut command = application::rack("rackup", &site);
    command.args(["-s", "sendoff", "-E", "production", "-O", "workers=1"]);
    let mut child = command
        .arg(test_application())
        .stdin(std::os::fd::OwnedFd::from(listener))
        .spawn()
        .unwrap();
    let server =
        Server::start(site.root(), &["--fastcgi", &format!("/app=unix:{}", path.display())]);
    let page = server.page("/app/env/x%20y");
    assert!(
        page.contains("SCRIPT_NAME=\"/app\"") && page.contains("PATH_INFO=\"/env/x%20y\""),
        "{page}"
    );
    processes::signal(child.id(), Signal::TERM);
    assert!(child.wait().unwrap().success());
    assert!(path.exists());
}

#[test]
fn every_wait_can_be_interrupted() {
    let site = Site::new();
    let script = repository::root().join("languages/ruby/tests/interrupts.rb");
    let mut command = application::rack("ruby", &site);
    let output = command.arg(script).arg(site.outside("waits.sock")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(text == "done\n" && output.status.success(), "{text}{errors}");
}

/// Requests of nginx announce nothing, and get every body as bytes.
#[test]
fn behind_nginx() {
    let site = Site::new();
    let application = Application::start(&site, &test_application(), &[]);
    let puma = Puma::start(&site, &test_application(), |_| {});
    let location = format!(
        "location / {{ include /etc/nginx/fastcgi_params; fastcgi_param SCRIPT_NAME ''; \
         fastcgi_param PATH_INFO $fastcgi_script_name; fastcgi_pass unix:{}; }}",
        application.socket().display()
    );
    let nginx = Stock::nginx(site.root(), "", &location);
    for request in requests().into_iter().chain(file_requests(&site)) {
        let theirs = Client::connect(puma.addr()).ask(&request);
        let ours = nginx.ask(&request);
        assert!(ours.header("X-Sendoff").is_none());
        assert_same(&line(&request), &theirs, &ours);
    }
}
