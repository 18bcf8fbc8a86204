//! Traces of requests (docs/traces.md): their spans, and the fields between callers and callees.

mod callees;
mod delivery;
mod otelcol;
mod sampling;

use sendoff_tests::{
    Answers, Client, Collector, Http2, Http3, LIMIT, Request, Server, Site, Span, wait,
};

pub(crate) const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// The field of a caller that records its span.
pub(crate) fn traceparent() -> String {
    format!("00-{TRACE}-{CALLER}-01")
}

/// A script that shows the field that it gets.
const SHOW: &str =
    "<?php echo $_SERVER['HTTP_TRACEPARENT'] ?? '', ' ', $_SERVER['HTTP_TRACESTATE'] ?? '';";

/// A server whose spans go to a collector. `traces`: further keys of the section; `more`: keys and
/// sections behind it.
pub(crate) fn serve(site: &Site, url: &str, traces: &str, more: &str) -> Server {
    let config = site.write_at(site.outside("sendoff.toml"), config(url, traces, more));
    Server::try_run(&config, site.root(), 2).unwrap_or_else(|failed| panic!("{failed:#?}"))
}

pub(crate) fn config(url: &str, traces: &str, more: &str) -> String {
    format!(
        "listen = ['127.0.0.1:0', '127.0.0.1:0 tls h3']\nthreads = 1\n\
         trusted_proxies = '127.0.0.9'\npage_cache_folder = 'pages'\naccess_log = 'access.log'\n\
         access_log_format = '$trace_id $span_id $status $request_uri'\n\
         [traces]\nendpoint = '{url}'\n{traces}\n[[pool]]\nname = 'www'\nworkers = 2\n\
         [[site]]\nname = 'shop'\nroot = 'root'\ntls = 'self-signed'\nhttps_redirect = false\n\
         [[site.route]]\npath = '/metrics'\nallow_from = '127.0.0.1'\nmetrics = true\n{more}\n"
    )
}

/// A client from the address of a trusted proxy.
pub(crate) fn proxy(server: &Server) -> Client {
    Client::connect_from(server.clear_addr(), "127.0.0.9".parse().unwrap())
}

/// The names of spans.
pub(crate) fn names(spans: &[Span]) -> Vec<&str> {
    spans.iter().map(|span| &*span.name).collect()
}

#[test]
fn a_php_request_is_four_spans_with_the_callers_span_as_parent() {
    let collector = Collector::start(Answers::Ok);
    let site = Site::with("a.php", SHOW);
    let server = serve(&site, collector.url(), "service_name = 'front'", "");
    let asked = Request::get("/a.php?b=1").header("traceparent", &traceparent());
    let asked = asked.header("tracestate", "v=1").header("tracestate", "w=2");
    let shown = server.ask(&asked.header("User-Agent", "tester")).text();
    let spans = collector.await_trace(TRACE, 4);
    assert_eq!(names(&spans), ["GET", "queue", "worker", "delivery"], "{spans:#?}");
    let [whole, queue, worker, delivery] = &spans[..] else { unreachable!() };
    assert_eq!((&*whole.parent, whole.kind), (CALLER, 2));
    for part in [queue, worker, delivery] {
        assert_eq!(part.parent, whole.id);
        assert!(whole.start <= part.start && part.end <= whole.end, "{spans:#?}");
    }
    assert_eq!((queue.end, worker.end), (worker.start, delivery.start));
    assert_eq!(shown, format!("00-{TRACE}-{}-01 v=1, w=2", worker.id));
    for (name, value) in [
        ("http.request.method", "GET"),
        ("url.path", "/a.php"),
        ("url.scheme", "http"),
        ("server.address", "example.test"),
        ("server.port", &server.clear_addr().port().to_string()),
        ("client.address", "127.0.0.1"),
        ("network.protocol.version", "1.1"),
        ("user_agent.original", "tester"),
        ("http.response.status_code", "200"),
        ("http.response.body.size", &shown.len().to_string()),
        ("sendoff.site", "shop"),
        ("error.type", ""),
    ] {
        assert_eq!(whole.get(name), value, "{name}");
    }
    assert!(!whole.is_error && whole.state == "v=1,w=2" && whole.service == "front", "{whole:#?}");
    assert_eq!((worker.get("sendoff.pool"), worker.kind), ("www", 3));
    assert!(server.workers().contains(&worker.get("process.pid").parse().unwrap()));
    let log = site.outside("access.log");
    let line = format!("{TRACE} {} 200 /a.php?b=1\n", whole.id);
    let is_logged = || std::fs::read_to_string(&log).is_ok_and(|text| text == line);
    assert!(wait::until(LIMIT, is_logged), "{:?}", std::fs::read_to_string(&log));
}

#[test]
fn files_errors_and_kept_pages_have_no_call() {
    let collector = Collector::start(Answers::Ok);
    let site = Site::with("a.txt", "static");
    site.write("kept.php", "<?php header('Cache-Control: max-age=60'); echo 'page';");
    site.write("bad.php", "<?php http_response_code(503); echo 'no';");
    let server = serve(
        &site,
        collector.url(),
        "",
        "[[site.route]]\npath = '/kept.php'\npage_cache = 'http'\n",
    );
    let mut client = server.connect();
    let mut number = 0;
    let mut ask = |target: &str| {
        number += 1;
        let trace = format!("{number:032x}");
        let parent = format!("00-{trace}-{CALLER}-01");
        let response = client.ask(&Request::get(target).header("traceparent", &parent));
        (response, trace)
    };
    let ((_, file), (_, missing)) = (ask("/a.txt"), ask("/missing.txt"));
    let (made, miss) = ask("/kept.php");
    let kept = wait::for_some("a kept page", || {
        let (response, trace) = ask("/kept.php");
        assert_eq!(response.text(), made.text());
        response.header("cache-status").is_some_and(|hit| hit.contains("hit")).then_some(trace)
    });
    let (_, bad) = ask("/bad.php");
    assert_eq!(collector.await_trace(&file, 1)[0].get("http.response.body.size"), "6");
    let missing = &collector.await_trace(&missing, 1)[0];
    assert_eq!((missing.get("http.response.status_code"), missing.is_error), ("404", false));
    assert_eq!(names(&collector.await_trace(&miss, 4))[2], "worker");
    let kept = collector.await_trace(&kept, 1);
    assert_eq!((names(&kept), kept[0].get("http.route")), (vec!["GET /kept.php"], "/kept.php"));
    let bad = &collector.await_trace(&bad, 4)[0];
    assert_eq!((bad.get("error.type"), bad.is_error), ("503", true));
}

#[test]
fn a_client_that_leaves_is_an_error_of_its_span() {
    let collector = Collector::start(Answers::Ok);
    let site = Site::waiting();
    site.write("silent.php", "<?php touch('begun'); file_get_contents('quiet'); echo 'late';");
    let (pipe, quiet) = (site.fifo("pipe"), site.fifo("quiet"));
    let server = serve(&site, collector.url(), "", "");
    let other = TRACE.replace('4', "5");
    let ask = |target: &str, trace: &str| {
        let mut client = server.connect();
        let parent = format!("00-{trace}-{CALLER}-01");
        client.send(Request::get(target).header("traceparent", &parent).bytes());
        client
    };
    let mut begun = ask("/wait.php", TRACE);
    assert_eq!(begun.head().unwrap().status, 200);
    drop(begun);
    let waiting = ask("/silent.php", &other);
    assert!(wait::until(LIMIT, || site.path("begun").exists()));
    // Behind this answer the event loop knows that a worker has the request.
    assert_eq!(server.get("/missing").status(), 404);
    drop(waiting);
    let cut = &collector.await_trace(TRACE, 4)[0];
    let status = cut.get("http.response.status_code");
    assert_eq!((cut.get("error.type"), status, cut.is_error), ("response_cut", "200", true));
    let left = &collector.await_trace(&other, 3)[0];
    let status = left.get("http.response.status_code");
    assert_eq!((left.get("error.type"), status, left.is_error), ("client_left", "", true));
    for script in [pipe, quiet] {
        script.release();
    }
}

#[test]
fn every_version_of_http_is_traced() {
    let collector = Collector::start(Answers::Ok);
    let site = Site::with("a.php", SHOW);
    let server = serve(&site, collector.url(), "", "");
    let asked = |trace: char| {
        let parent = format!("00-{}-{CALLER}-01", String::from(trace).repeat(32));
        Request::get("/a.php").header("traceparent", &parent)
    };
    let over_http2 = Http2::connect(server.clear_addr()).ask(&asked('2')).text();
    let mut http3 = Http3::connect(server.tls_addr().unwrap(), "localhost");
    let over_http3 = http3.ask(&asked('3')).text();
    for (trace, shown, version) in [("2", over_http2, "2"), ("3", over_http3, "3")] {
        let spans = collector.await_trace(&trace.repeat(32), 4);
        assert_eq!(names(&spans), ["GET", "queue", "worker", "delivery"], "{spans:#?}");
        assert_eq!(spans[0].get("network.protocol.version"), version);
        assert!(shown.contains(&spans[2].id), "{shown}");
    }
}

#[test]
fn explain_names_the_trace() {
    let collector = Collector::start(Answers::Ok);
    let site = Site::with("a.php", SHOW);
    let server = serve(&site, collector.url(), "", "");
    let options = ["--header", &format!("traceparent: {}", traceparent())];
    let table = server.explain("/a.php", &options).unwrap();
    let spans = collector.await_trace(TRACE, 4);
    let line = format!("\ntrace {TRACE}, span {}, recorded\n", spans[0].id);
    assert!(table.contains(&line), "{table}");
}
