//! The choice of the requests that are recorded, and the parents that are taken over.

use sendoff_tests::{Answers, Collector, Request, Site};

use super::{SHOW, TRACE, names, proxy, serve, traceparent};

/// The parts of a `traceparent`: the trace, the span, the flags.
fn parts(shown: &str) -> [&str; 3] {
    let field = shown.split(' ').next().unwrap();
    let parts: Vec<_> = field.split('-').collect();
    let ["00", trace, span, flags] = parts[..] else { panic!("{shown:?}") };
    assert_eq!((trace.len(), span.len()), (32, 16), "{shown:?}");
    [trace, span, flags]
}

fn unsampled() -> String {
    traceparent().replace("-01", "-00")
}

#[test]
fn a_share_decides_unless_a_trusted_proxy_does() {
    let collector = Collector::start(Answers::Ok);
    let site = Site::with("a.php", SHOW);
    let none = serve(&site, collector.url(), "sample = 0", "");
    let asked = |parent: &str| Request::get("/a.php").header("traceparent", parent);
    // Its own trace continues for the application, so that it may record its part.
    let [trace, _, flags] = parts(&none.page("/a.php")).map(str::to_owned);
    assert!(trace != TRACE && flags == "00", "{trace} {flags}");
    let shown = none.ask(&asked(&traceparent())).text();
    let [trace, span, flags] = parts(&shown);
    assert_eq!((trace, flags), (TRACE, "00"), "a client does not decide");
    assert!(!traceparent().contains(span), "{shown}");
    let by_proxy = proxy(&none).ask(&asked(&traceparent())).text();
    assert_eq!(parts(&by_proxy)[2], "01");
    assert_eq!(names(&collector.await_trace(TRACE, 4))[0], "GET");
    assert!(collector.spans().iter().all(|span| span.trace == TRACE), "{:#?}", collector.spans());
    drop(none);
    let site = Site::with("a.php", SHOW);
    let all = serve(&site, collector.url(), "sample = '100%'", "");
    let [by_client, by_proxy] = [all.connect(), proxy(&all)].map(|mut client| {
        let shown = client.ask(&asked(&unsampled())).text();
        parts(&shown)[2].to_owned()
    });
    assert_eq!((&*by_client, &*by_proxy), ("01", "00"));
}

#[test]
fn a_bad_parent_begins_another_trace() {
    let collector = Collector::start(Answers::Ok);
    let site = Site::with("a.php", SHOW);
    let server = serve(&site, collector.url(), "", "");
    for bad in ["", "00", &traceparent().to_uppercase(), &format!("{}-more", traceparent())] {
        let asked = Request::get("/a.php").header("traceparent", bad).header("tracestate", "v=1");
        let shown = server.ask(&asked).text();
        let [trace, span, flags] = parts(&shown);
        assert!(shown.ends_with("-01 ") && trace != TRACE && flags == "01", "{bad}: {shown}");
        let spans = collector.await_trace(trace, 4);
        assert_eq!((&*spans[0].parent, &*spans[0].state), ("", ""), "{bad}");
        assert_eq!(spans[2].id, span, "{bad}");
    }
    let twice = Request::get("/a.php")
        .header("traceparent", &traceparent())
        .header("traceparent", &traceparent())
        .header("tracestate", "v=1");
    let shown = server.ask(&twice).text();
    assert!(shown.ends_with(' ') && parts(&shown)[0] != TRACE, "{shown}");
}

#[test]
fn a_client_cannot_take_the_fields_away() {
    let collector = Collector::start(Answers::Ok);
    let site = Site::with("a.php", SHOW);
    let server = serve(&site, collector.url(), "", "");
    let asked = Request::get("/a.php")
        .header("traceparent", &traceparent())
        .header("tracestate", "v=1")
        .header("Connection", "traceparent, tracestate");
    let shown = server.ask(&asked).text();
    assert!(parts(&shown)[0] == TRACE && shown.ends_with(" v=1"), "{shown}");
}

#[test]
fn a_long_state_is_passed_on_but_not_kept() {
    let collector = Collector::start(Answers::Ok);
    let site = Site::with("a.php", SHOW);
    let server = serve(&site, collector.url(), "", "");
    let long = format!("v={}", "x".repeat(8000));
    let asked = Request::get("/a.php").header("traceparent", &traceparent());
    let shown = server.ask(&asked.header("tracestate", &long)).text();
    assert!(shown.ends_with(&format!(" {long}")), "{shown}");
    assert!(collector.await_trace(TRACE, 4).iter().all(|span| span.state.is_empty()));
}

#[test]
fn without_traces_the_fields_pass_unchanged() {
    let site = Site::with("a.php", SHOW);
    let server = sendoff_tests::Server::start(site.root(), &[]);
    let asked = Request::get("/a.php").header("traceparent", "any").header("tracestate", "v=1");
    assert_eq!(server.ask(&asked).text(), "any v=1");
    assert_eq!(server.page("/a.php"), " ");
}

#[test]
fn the_number_of_recorded_requests_is_limited() {
    let collector = Collector::start(Answers::Ok);
    let site = Site::with("a.php", SHOW);
    let server = serve(&site, collector.url(), "limit = 1", "");
    let mut client = server.connect();
    let asked = Request::get("/a.php").header("traceparent", &traceparent());
    let flags = |client: &mut sendoff_tests::Client| {
        let shown = client.ask(&asked).text();
        parts(&shown)[2] == "01"
    };
    let began = std::time::Instant::now();
    let recorded = (0..200).filter(|_| flags(&mut client)).count() as u64;
    assert!((1..=1 + began.elapsed().as_secs()).contains(&recorded), "{recorded}");
    let metrics = server.page("/metrics");
    let limited = metrics.split("sendoff_limits_reached_total{limit=\"traces\"} ").nth(1).unwrap();
    let limited: u64 = limited.lines().next().unwrap().parse().unwrap();
    // The request for the metrics is limited, too, unless a second has begun.
    assert!((200 - recorded..=201 - recorded).contains(&limited), "{recorded} {limited}");
}
