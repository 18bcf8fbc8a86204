//! The metrics (`metrics = true` in a route), as Prometheus reads them.

use std::collections::BTreeMap;

use sendoff_tests::{Client, LIMIT, Request, Server, Site, wait};

/// A server with two event loops, a pool of two workers, and the metrics on a site of their own.
fn run(site: &Site) -> Server {
    let config = "listen = '127.0.0.1:0'\nthreads = 2\n\
        [[pool]]\nname = 'www'\nworkers = 2\n\
        [[site]]\nhosts = 'a.test'\nroot = 'root'\n\
        [[site]]\nhosts = 'metrics.test'\nroot = 'root'\n\
        [[site.route]]\npath = '/metrics'\nallow_from = '127.0.0.1'\nmetrics = true\n\
        [[site.route]]\npath = '/hidden'\ndeny_from = '127.0.0.1'\nmetrics = true\n";
    let config = site.write_at(site.outside("sendoff.toml"), config);
    Server::try_run_with(&config, site.root(), 2, 2).unwrap()
}

/// The values of the text format, by name and labels.
struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    fn of(server: &Server) -> Self {
        let asked = Request::get("/metrics").header("Host", "metrics.test");
        let response = server.ask(&asked);
        response.expect(200);
        let kind = response.header("content-type").unwrap();
        assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
        let text = response.text();
        assert!(!text.contains("# EOF"), "{text}");
        let values = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        });
        Self(values.collect())
    }

    /// `None`: there is no such value.
    fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Waits until a value is as expected: a response is counted when its last byte has left.
    fn expect(server: &Server, name: &str, expected: f64) -> Self {
        let mut metrics = Self::of(server);
        let is_there = wait::until(LIMIT, || {
            metrics = Self::of(server);
            metrics.get(name) == Some(expected)
        });
        assert!(is_there, "{name} is not {expected}: {:#?}", metrics.0);
        metrics
    }
}

/// A client of the site whose figures are looked at.
fn ask(client: &mut Client, target: &str) -> u16 {
    client.ask(&Request::get(target).header("Host", "a.test")).status()
}

#[test]
fn requests_and_bytes_are_counted_by_site_pool_and_mode_over_all_event_loops() {
    let site = Site::with("hello.php", "hello");
    site.write("file.php", "<?php readfile('big');");
    site.write("big", vec![b'x'; 100_000]);
    site.write("a.txt", "static");
    let server = run(&site);
    // The kernel gives connections to both event loops.
    for _ in 0..10 {
        let mut client = server.connect();
        assert_eq!(ask(&mut client, "/hello.php"), 200);
        assert_eq!(ask(&mut client, "/file.php"), 200);
        assert_eq!(ask(&mut client, "/a.txt"), 200);
        assert_eq!(ask(&mut client, "/missing.txt"), 404);
    }
    let name = "sendoff_site_request_duration_seconds_count{site=\"a.test\"}";
    let metrics = Metrics::expect(&server, name, 40.0);
    for (name, expected) in [
        ("sendoff_site_responses_total{site=\"a.test\",code=\"200\"}", 30.0),
        ("sendoff_site_responses_total{site=\"a.test\",code=\"404\"}", 10.0),
        ("sendoff_site_requests_total{site=\"a.test\",mode=\"server\"}", 20.0),
        ("sendoff_site_requests_total{site=\"a.test\",mode=\"relay\"}", 10.0),
        ("sendoff_site_requests_total{site=\"a.test\",mode=\"file\"}", 10.0),
        ("sendoff_site_handed_over_bytes_total{site=\"a.test\",mode=\"file\"}", 1_000_000.0),
        ("sendoff_pool_requests_total{pool=\"www\",mode=\"relay\"}", 10.0),
        ("sendoff_pool_copied_bytes_total{pool=\"www\",mode=\"relay\"}", 50.0),
        ("sendoff_pool_handed_over_bytes_total{pool=\"www\",mode=\"file\"}", 1_000_000.0),
        ("sendoff_pool_queue_duration_seconds_count{pool=\"www\"}", 20.0),
        ("sendoff_pool_service_duration_seconds_count{pool=\"www\"}", 20.0),
        ("sendoff_pool_service_duration_seconds_bucket{le=\"+Inf\",pool=\"www\"}", 20.0),
        ("sendoff_pool_workers{pool=\"www\",state=\"idle\"}", 2.0),
        ("sendoff_pool_workers{pool=\"www\",state=\"busy\"}", 0.0),
        ("sendoff_pool_waiting_requests{pool=\"www\"}", 0.0),
        ("sendoff_snapshot_cuts_total", 0.0),
        ("sendoff_access_log_dropped_lines_total", 0.0),
    ] {
        assert_eq!(metrics.get(name), Some(expected), "{name}: {:#?}", metrics.0);
    }
    let service = metrics.get("sendoff_pool_service_duration_seconds_sum{pool=\"www\"}").unwrap();
    let whole = metrics.get("sendoff_site_request_duration_seconds_sum{site=\"a.test\"}").unwrap();
    assert!(0.0 < service && service < whole, "{service} of {whole} s");
}

#[test]
fn a_reader_that_prefers_openmetrics_gets_it() {
    let site = Site::with("a.txt", "static");
    let server = run(&site);
    let metrics = |accept: &str| {
        let asked = Request::get("/metrics").header("Host", "metrics.test");
        server.ask(&asked.header("Accept", accept))
    };
    // As Prometheus asks.
    let open = metrics(
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
    );
    let kind = open.header("content-type").unwrap();
    assert_eq!(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(open.text().ends_with("# EOF\n"), "{}", open.text());
    assert!(open.text().contains("# TYPE sendoff_limits_reached counter\n"), "{}", open.text());
    for accept in ["text/plain;version=0.0.4", "*/*"] {
        let plain = metrics(accept);
        let kind = plain.header("content-type").unwrap();
        assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8", "{accept}");
        let text = plain.text();
        assert!(text.contains("# TYPE sendoff_limits_reached_total counter\n"), "{text}");
    }
}

#[test]
fn figures_survive_a_reload_and_limits_are_counted() {
    let site = Site::with("a.txt", "static");
    site.write("writes.php", "<?php readfile('held'); flush(); file_put_contents('held', 'y');");
    site.write("held", vec![b'x'; 100_000]);
    let server = run(&site);
    assert_eq!(ask(&mut server.connect(), "/a.txt"), 200);
    let name = "sendoff_site_responses_total{site=\"a.test\",code=\"200\"}";
    Metrics::expect(&server, name, 1.0);
    assert_eq!(server.command(&["reload"]).unwrap(), "reloaded\n");
    assert_eq!(ask(&mut server.connect(), "/a.txt"), 200);
    Metrics::expect(&server, name, 2.0);
    let mut torn = server.connect();
    torn.send("GET / HTTP/1.1\r\nHost: two words\r\n\r\n");
    assert_eq!(torn.response("GET").status(), 400);
    Metrics::expect(&server, "sendoff_malformed_requests_total", 1.0);
    // The script changes the file that it has handed over.
    assert_eq!(ask(&mut server.connect(), "/writes.php"), 200);
    Metrics::expect(&server, "sendoff_snapshot_recalls_total", 1.0);
}

#[test]
fn who_may_not_ask_sees_no_metrics_and_no_other_site_has_them() {
    let site = Site::with("a.txt", "static");
    let server = run(&site);
    let status =
        |host: &str, target: &str| server.ask(&Request::get(target).header("Host", host)).status();
    assert_eq!(status("metrics.test", "/hidden"), 403);
    assert_eq!(status("a.test", "/metrics"), 404);
    assert_eq!(status("metrics.test", "/metrics"), 200);
}

/// The table in the documents has every metric, and no other.
#[test]
fn every_metric_is_documented() {
    let site = Site::with("hello.php", "hello");
    let server = run(&site);
    assert_eq!(ask(&mut server.connect(), "/hello.php"), 200);
    Metrics::expect(&server, "sendoff_pool_requests_total{pool=\"www\",mode=\"relay\"}", 1.0);
    let asked = Request::get("/metrics").header("Host", "metrics.test");
    let text = server.ask(&asked).text();
    let mut described: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .map(|line| {
            let (name, kind) = line.split_once(' ').unwrap();
            assert!(kind != "counter" || name.ends_with("_total"), "{line}");
            name.to_owned()
        })
        .collect();
    described.sort();
    let document = include_str!("../../../docs/metrics.md");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `sendoff_"));
    let mut listed: Vec<_> =
        rows.map(|row| format!("sendoff_{}", row.split(['`', '{']).next().unwrap())).collect();
    listed.sort();
    assert_eq!(listed, described);
}

const ALERTS: &str = include_str!("../../../packaging/prometheus/sendoff.rules.yml");
const DASHBOARD: &str = include_str!("../../../packaging/grafana/sendoff.json");

/// The expressions of a dashboard.
fn expressions(dashboard: &serde_json::Value) -> Vec<&str> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    targets.map(|target| target["expr"].as_str().unwrap()).collect()
}

#[test]
fn alerts_and_the_dashboard_ask_for_metrics_that_exist() {
    let document = include_str!("../../../docs/metrics.md");
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let asked = [&[ALERTS], &expressions(&dashboard)[..]].concat();
    let is_of_a_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let mut names = 0;
    for text in asked {
        for (at, _) in text.match_indices("sendoff_") {
            let end = text[at..].find(|c| !is_of_a_name(c)).unwrap();
            let (name, selector) = text[at..].split_at(end);
            let name = name.trim_end_matches("_bucket");
            let row = document.lines().find(|line| {
                let rest = line.strip_prefix("| `").and_then(|line| line.strip_prefix(name));
                rest.is_some_and(|rest| rest.starts_with(['`', '{']))
            });
            let row = row.unwrap_or_else(|| panic!("{name} is not in docs/metrics.md"));
            let (_, labels) = row.split_once(name).unwrap();
            let conditions = selector.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            for condition in conditions.iter().flat_map(|(conditions, _)| conditions.split(", ")) {
                let label = condition.split(['=', '!']).next().unwrap();
                // Prometheus adds the instance.
                let exists = labels.split(['{', ',', '}']).any(|known| known == label);
                assert!(exists || label == "instance", "{name} has no label {label}");
            }
            names += 1;
        }
    }
    assert!(names > 25, "{names}");
}

#[test]
#[ignore = "heavy: make test-heavy; Prometheus"]
fn prometheus_reads_the_alerts_and_the_expressions_of_the_dashboard() {
    let promtool = |arguments: &[&str]| {
        let done = std::process::Command::new("promtool").args(arguments).output();
        let done = done.expect("run: tools/install heavy");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/prometheus");
    promtool(&["check", "rules", &format!("{folder}/sendoff.rules.yml")]);
    promtool(&["test", "rules", &format!("{folder}/sendoff.rules.test.yml")]);
    // Rules with the dashboard's expressions, with values for Grafana's variables.
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let rules = expressions(&dashboard).into_iter().zip(0..).map(|(expression, number)| {
        let expression = expression.replace("$__rate_interval", "5m");
        format!("  - record: panel:{number}\n    expr: {expression:?}\n")
    });
    let rules: String = rules.collect();
    assert!(rules.contains("panel:20"), "{rules}");
    let site = Site::new();
    let text = format!("groups:\n- name: dashboard\n  rules:\n{rules}");
    let file = site.write_at(site.outside("dashboard.yml"), text);
    promtool(&["check", "rules", file.to_str().unwrap()]);
}
