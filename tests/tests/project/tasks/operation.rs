//! Operation.

use std::fs;
use std::os::unix::fs::symlink;

use sendoff_tests::{Answers, Client, Collector, LIMIT, Request, wait};

use super::Shown;
use super::machine::Machine;

pub(super) const TASKS: &[Shown] = &[
    ("See the client's address behind Cloudflare", cloudflare),
    ("See the client's address behind a load balancer", load_balancer),
    ("Write the access log as JSON", json),
    ("Answer health checks of a load balancer", health),
    ("Give metrics to Prometheus", metrics),
    ("Send traces to OpenTelemetry", traces),
    ("Show a maintenance page", maintenance),
    ("Let only the office in during maintenance", office_alone),
    ("Deploy by a symbolic link", deploy),
];

#[test]
fn operation() {
    super::run(TASKS);
}

const CLIENT: &str = "<?php echo $_SERVER['REMOTE_ADDR'];";

fn cloudflare(machine: Machine) {
    let run = machine.with("a.php", CLIENT).start();
    let forwarded = |request: Request| {
        request.header("X-Forwarded-For", "6.6.6.6").header("CF-Connecting-IP", "192.0.2.7")
    };
    assert_eq!(run.ask("http://example.org/a.php", forwarded).text(), "192.0.2.7");
}

fn load_balancer(machine: Machine) {
    let run = machine.with("a.php", CLIENT).start();
    let mut client = Client::connect(run.server.clear_addr());
    client.send("PROXY TCP4 192.0.2.7 192.0.2.1 4000 80\r\n");
    assert_eq!(client.ask(&Request::get("/a.php")).text(), "192.0.2.7");
}

fn json(machine: Machine) {
    let run = machine.with("a.txt", "text").start();
    assert_eq!(run.text("http://example.org/a.txt?b=1"), "text");
    let log = run.machine.path("/var/log/sendoff/access.log");
    let line = wait::for_some("a line of the log", || {
        fs::read_to_string(&log).ok().filter(|text| text.ends_with('\n'))
    });
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["uri"], &line["status"]), (&"/a.txt?b=1".into(), &200.into()));
}

fn health(machine: Machine) {
    let run = machine.with("a.txt", "text").start();
    assert_eq!(run.command().trim_end(), "ready");
    assert_eq!(run.text("http://example.org/a.txt"), "text");
    let mut client = run.server.connect();
    run.server.signal(rustix::process::Signal::TERM);
    let left = wait::until(LIMIT, || client.ask(&Request::get("/ready")).status() == 503);
    assert!(left, "still ready");
    drop(client);
    // The second signal skips the delay.
    run.server.signal(rustix::process::Signal::TERM);
    let (status, log) = run.server.await_end();
    assert!(status.success(), "{log}");
}

fn metrics(machine: Machine) {
    let run = machine
        .with_value("\"127.0.0.1\", \"::1\", \"127.0.0.0/8\"", "\"127.0.0.1\"")
        .with("a.txt", "text")
        .start();
    assert_eq!(run.text("http://example.org/a.txt"), "text");
    let text = run.text("http://example.org/metrics");
    assert!(text.contains("\nsendoff_connections{state=\"busy\"} 1.0\n"), "{text}");
    assert_eq!(run.get_from_the_office("/metrics").status(), 403);
}

fn traces(machine: Machine) {
    let collector = Collector::start(Answers::Ok);
    let machine = machine
        .with_value("http://127.0.0.1:4318/v1/traces", collector.url())
        .with_value("sample = 0.1", "sample = 1.0");
    let run = machine.with("a.txt", "text").start();
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    run.ask("http://example.org/a.txt", |request| request.header("traceparent", &parent));
    let span = collector.await_trace(trace, 1).remove(0);
    assert_eq!((&*span.name, &*span.service), ("GET", "shop"));
}

fn maintenance(machine: Machine) {
    let machine = machine.with("index.html", "open").with("maintenance.html", "back soon");
    let run = machine.start();
    assert_eq!(run.text("http://example.org/"), "open");
    let file = run.machine.write("/run/example.maintenance", "");
    let closed = wait::for_some("the maintenance", || {
        Some(run.get("http://example.org/")).filter(|response| response.status() == 503)
    });
    assert_eq!(closed.text(), "back soon");
    fs::remove_file(file).unwrap();
    let opened = wait::until(LIMIT, || run.status("http://example.org/") == 200);
    assert!(opened, "still closed");
}

fn office_alone(machine: Machine) {
    let run = machine.with("a.txt", "text").start();
    assert_eq!(run.get_from_the_office("/a.txt").text(), "text");
    let response = run.get("http://example.org/a.txt");
    assert_eq!((response.status(), response.text()), (503, "We are back at noon.\n".to_owned()));
}

fn deploy(machine: Machine) {
    for release in ["42", "43"] {
        machine.write(&format!("/srv/app/releases/{release}/public/index.html"), release);
    }
    fs::remove_dir_all(machine.path("/srv/app/current")).unwrap();
    switch_to(&machine, "42");
    let run = machine.start();
    assert_eq!(run.text("http://example.org/"), "42");
    switch_to(&run.machine, "43");
    assert_eq!(run.text("http://example.org/"), "43");
}

/// Replaces the link in one step, as `ln -sfn` and `mv -T` do.
fn switch_to(machine: &Machine, release: &str) {
    let new = machine.path("/srv/app/new");
    symlink(machine.path(&format!("/srv/app/releases/{release}")), &new).unwrap();
    fs::rename(new, machine.path("/srv/app/current")).unwrap();
}
