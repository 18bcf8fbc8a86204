//! Spans on their way to the collector: away, busy, refusing, slow, replaced; the end of the server.

use std::fs;

use rustix::process::Signal;
use sendoff_tests::{Answers, Collector, LIMIT, Request, Server, Site, wait};

use super::{TRACE, config, serve, traceparent};

fn site() -> Site {
    Site::with("a.txt", "static")
}

/// Makes a request whose trace is `TRACE`.
fn ask(server: &Server) {
    let asked = Request::get("/a.txt").header("traceparent", &traceparent());
    assert_eq!(server.ask(&asked).text(), "static");
}

/// Waits until a metric of spans has this value.
fn await_count(server: &Server, outcome: &str, count: u32) {
    let line = format!("sendoff_trace_spans_total{{outcome=\"{outcome}\"}} {count}");
    let is_there =
        || server.page("/metrics").lines().any(|known| known.trim_end_matches(".0") == line);
    assert!(wait::until(LIMIT, is_there), "{line}: {}", server.page("/metrics"));
}

#[test]
fn a_collector_that_comes_later_gets_the_spans() {
    let site = site();
    let socket = site.outside("otel.sock");
    let server = serve(&site, &Collector::url_of(&socket), "headers = { X-Key = 'secret' }", "");
    ask(&server);
    server.await_log("spans cannot be sent");
    let collector = Collector::at(&socket, Answers::Ok);
    assert_eq!(collector.await_trace(TRACE, 1)[0].name, "GET");
    let head = &collector.heads()[0];
    for line in [
        "POST /v1/traces HTTP/1.1\r\n",
        "\r\ncontent-type: application/json\r\n",
        "\r\nX-Key: secret\r\n",
    ] {
        assert!(head.contains(line), "{head}");
    }
}

#[test]
fn a_busy_collector_is_asked_again_and_a_refusal_is_final() {
    let collector = Collector::start(Answers::Status(503));
    let site = site();
    let server = serve(&site, collector.url(), "", "[[site.route]]\npath = '/none'\ndeny = true\n");
    ask(&server);
    collector.await_request(1);
    collector.answer(Answers::Ok);
    collector.await_trace(TRACE, 1);
    await_count(&server, "rejected", 0);
    collector.answer(Answers::Status(500));
    let before = collector.heads().len();
    ask(&server);
    // Requests for the metrics are traced, too.
    collector.await_request(before + 1);
    server.await_log("it answered with 500");
    let is_counted = || {
        let metrics = server.page("/metrics");
        !metrics.contains("outcome=\"rejected\"} 0") && metrics.contains("outcome=\"rejected\"}")
    };
    assert!(wait::until(LIMIT, is_counted));
    assert_eq!(collector.spans().iter().filter(|span| span.trace == TRACE).count(), 1);
}

#[test]
fn a_collector_that_never_answers_delays_neither_clients_nor_the_end() {
    let collector = Collector::start(Answers::Nothing);
    let site = site();
    let server = serve(&site, collector.url(), "", "");
    ask(&server);
    collector.await_request(1);
    (0..100).for_each(|_| ask(&server));
    let began = std::time::Instant::now();
    server.signal(Signal::TERM);
    let (status, log) = server.await_end();
    assert!(status.success(), "{log}");
    // The last spans have 5 s.
    assert!(began.elapsed() < LIMIT / 2, "{:?}", began.elapsed());
}

#[test]
fn the_end_of_the_server_sends_the_last_spans() {
    let collector = Collector::start(Answers::Ok);
    let site = site();
    let server = serve(&site, collector.url(), "", "");
    ask(&server);
    server.signal(Signal::TERM);
    let (status, log) = server.await_end();
    assert!(status.success(), "{log}");
    let spans = collector.spans();
    assert!(spans.iter().any(|span| span.trace == TRACE), "{spans:#?}");
}

#[test]
fn a_reload_changes_the_collector() {
    let [first, second] = [(); 2].map(|()| Collector::start(Answers::Ok));
    let site = site();
    let server = serve(&site, first.url(), "", "");
    ask(&server);
    first.await_trace(TRACE, 1);
    let file = site.outside("sendoff.toml");
    fs::write(&file, config(second.url(), "service_name = 'other'", "")).unwrap();
    server.command(&["reload"]).unwrap();
    ask(&server);
    assert_eq!(second.await_trace(TRACE, 1)[0].service, "other");
    fs::write(&file, without_traces(&config(second.url(), "", ""))).unwrap();
    server.command(&["reload"]).unwrap();
    assert!(!server.page("/metrics").contains("outcome=\"sent\""));
}

#[test]
fn a_server_without_traces_begins_to_send_them_after_a_reload() {
    let collector = Collector::start(Answers::Ok);
    let site = site();
    let text = config(collector.url(), "", "");
    let file = site.write_at(site.outside("sendoff.toml"), without_traces(&text));
    let server = Server::try_run(&file, site.root(), 2).unwrap();
    ask(&server);
    fs::write(&file, &text).unwrap();
    server.command(&["reload"]).unwrap();
    ask(&server);
    let is_sent = || {
        let metrics = server.page("/metrics");
        metrics.contains("outcome=\"sent\"} ") && !metrics.contains("outcome=\"sent\"} 0")
    };
    assert!(wait::until(LIMIT, is_sent), "{}", server.page("/metrics"));
    assert_eq!(collector.spans().iter().filter(|span| span.trace == TRACE).count(), 1);
    // The thread and its descriptors go with the section.
    fs::write(&file, without_traces(&text)).unwrap();
    server.command(&["reload"]).unwrap();
}

/// The configuration without its section about traces.
fn without_traces(config: &str) -> String {
    let (before, after) = config.split_once("[traces]").unwrap();
    format!("{before}[[pool]]{}", after.split_once("[[pool]]").unwrap().1)
}
