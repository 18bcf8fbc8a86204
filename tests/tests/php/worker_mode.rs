//! Worker mode over HTTP: the requests that a worker script gets, and their fate when its process
//! ends.

mod memory;
mod opcache;

use rustix::process::Signal;
use sendoff_tests::{LIMIT, Request, Server, Site, processes, wait};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

/// A worker script that shows its request, its process and the number of its requests.
const WORKER: &str = "<?php $n = 0; \
    $say = function () use (&$n) { $n++; echo 'worker ', $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['PATH_INFO'] ?? '', '|', getmypid(); }; \
    if (function_exists('sendoff_handle_request')) { while (sendoff_handle_request($say)) {} } else { $say(); }";

fn site() -> Site {
    let site = Site::with("index.php", WORKER);
    site.write(
        "plain.php",
        "<?php echo 'plain ', $_SERVER['FRANKENPHP_WORKER'] ?? 'no worker', '|', getmypid();",
    );
    site.write("a.txt", "static");
    site
}

fn start(site: &Site, options: &[&str]) -> Server {
    let script = site.path("index.php");
    let script = script.to_str().expect("a path in UTF-8");
    // The workers of other scripts end soon, so that the server is at its end as at its start.
    let usual = ["--php-worker", script, "--worker-idle-timeout", "0.5"];
    Server::start(site.root(), &[&usual, options].concat())
}

/// The text of a page, without the process id.
fn said(server: &Server, target: &str) -> String {
    server.page(target).split('|').next().unwrap_or_default().to_owned()
}

#[test]
fn what_leads_to_no_file_goes_to_the_worker_script() {
    let site = site();
    let server = start(&site, &[]);
    for (target, expected) in [
        ("/", "worker /index.php "),
        ("/no/such/page?a=1", "worker /index.php "),
        ("/index.php", "worker /index.php "),
        ("/index.php/more", "worker /index.php /more"),
        ("/plain.php", "plain no worker"),
        ("/a.txt", "static"),
    ] {
        assert_eq!(said(&server, target), expected, "{target}");
    }
    let pids: HashSet<_> = (0..50).map(|_| server.page("/")).collect();
    assert!(pids.len() <= 4, "{pids:?}");
}

/// A worker script with another name, outside of the root; and a route whose requests each run
/// their script.
#[test]
fn a_configuration_says_what_runs_where() {
    let site = site();
    site.write_at(site.outside("boot.php"), WORKER);
    let config = "listen = '127.0.0.1:0'\nthreads = 1\n\
        [[pool]]\nname = 'app'\nworkers = 2\nphp_worker = 'boot.php'\nworker_idle_timeout = '500ms'\n\
        [[site]]\nroot = 'root'\n\
        [[site.route]]\nprefix = '/usual'\nphp = '/index.php'\n";
    let config = site.write_at(site.outside("sendoff.toml"), config);
    let server = Server::try_run(&config, site.root(), 2).expect("a server");
    for (target, expected) in [
        ("/", "worker /boot.php "),
        ("/page", "worker /boot.php "),
        ("/index.php", "worker /index.php "),
        ("/usual/page", "worker /index.php "),
        ("/plain.php", "plain no worker"),
    ] {
        assert_eq!(said(&server, target), expected, "{target}");
    }
    let status = server.command(&["status"]).expect("a status");
    assert!(status.contains("app-scripts"), "{status}");
}

#[test]
fn a_script_that_does_not_boot_is_answered_for_with_503_until_it_does() {
    let site = site();
    site.write("index.php", "<?php undefined_function();");
    let mut server = start(&site, &["--workers", "1"]);
    server.expect_linked_processes(1);
    for _ in 0..3 {
        server.get("/").expect(503);
    }
    assert_eq!(said(&server, "/plain.php"), "plain no worker");
    for part in
        ["Call to undefined function undefined_function()", "has ended before it called", "503"]
    {
        server.await_log(part);
    }
    site.write("index.php", WORKER);
    let repaired = wait::until(LIMIT, || server.get("/").status() == 200);
    assert!(repaired, "{}", server.log());
}

/// A signal from outside is no failure of the worker script.
#[test]
fn a_request_waits_for_the_next_boot_if_one_is_killed() {
    let site = site();
    let script = format!(
        "<?php if (is_file(__DIR__ . '/slow')) {{ file_get_contents('pipe'); }} ?>{WORKER}"
    );
    site.write("index.php", script);
    let _pipe = site.fifo("pipe");
    let server = start(&site, &["--workers", "1"]);
    let before = server.workers();
    site.write("slow", "");
    processes::signal(before[0], Signal::KILL);
    server.await_replacement(&before);
    let boots = server.workers();
    let mut client = server.connect();
    client.send(Request::get("/").bytes());
    std::fs::remove_file(site.path("slow")).expect("a marker");
    processes::signal(boots[0], Signal::KILL);
    assert!(client.response("GET").text().starts_with("worker /index.php "));
}

#[test]
fn a_reload_boots_again_and_changes_nothing_if_that_fails() {
    let site = site();
    let server = start(
        &site,
        &[
            "--workers",
            "2",
            "--php-ini",
            "opcache.validate_timestamps=1",
            "--php-ini",
            "opcache.revalidate_freq=0",
        ],
    );
    let before = server.page("/");
    site.write("index.php", "<?php undefined_function();");
    let said_why = server.command(&["reload"]).expect_err("it cannot boot");
    assert!(
        said_why.contains("nothing has changed") && said_why.contains("does not start"),
        "{said_why}"
    );
    assert_eq!(server.page("/"), before);
    site.write("index.php", WORKER.replace("'worker '", "'second '"));
    server.command(&["reload"]).expect("a reload");
    assert_eq!(said(&server, "/"), "second /index.php ");
}

#[test]
fn a_changed_file_boots_the_workers_of_developers_again() {
    let site = site();
    let server = start(&site, &["--workers", "2", "--watch"]);
    assert_eq!(said(&server, "/"), "worker /index.php ");
    site.write("index.php", WORKER.replace("'worker '", "'second '"));
    assert!(wait::until(LIMIT, || said(&server, "/") == "second /index.php "), "{}", server.log());
    server.await_log("index.php has changed");
}

/// Each worker takes five requests and grows old, while clients ask on: none of them notices.
#[test]
fn no_request_is_lost_when_workers_are_replaced() {
    let site = site();
    let server = start(&site, &["--workers", "2", "--max-requests", "5"]);
    let pids = ask_from_all_sides(&server, 4, 150, |status| assert_eq!(status, 200));
    assert!(pids.len() >= 60, "{} processes", pids.len());
}

/// Asks with several clients; returns the processes that have answered.
fn ask_from_all_sides(
    server: &Server,
    clients: usize,
    each: usize,
    check: impl Fn(u16) + Sync,
) -> HashSet<String> {
    let asked = std::thread::scope(|scope| {
        let client = || {
            scope.spawn(|| {
                let (mut client, mut pids) = (server.connect(), Vec::new());
                for n in 0..each {
                    let response = client.ask(&Request::get(&format!("/page/{n}")));
                    check(response.status());
                    if response.status() == 200 {
                        let body = response.text();
                        assert!(body.starts_with("worker /index.php |"), "{body}");
                        pids.push(body);
                    }
                }
                pids
            })
        };
        let clients: Vec<_> = (0..clients).map(|_| client()).collect();
        clients.into_iter().map(|client| client.join().expect("a client")).collect::<Vec<_>>()
    });
    asked.into_iter().flatten().collect()
}

fn kill_workers(kills: usize) {
    let site = site();
    let server = start(&site, &["--workers", "4"]);
    let (goes_on, progress) =
        (AtomicBool::new(true), sendoff_tests::Progress::new(kills as u64, "kills"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while goes_on.load(Ordering::Relaxed) {
                // The request of a killed worker is answered with 502.
                ask_from_all_sides(&server, 2, 50, |status| {
                    assert!(matches!(status, 200 | 502), "{status}");
                });
            }
        });
        for _ in 0..kills {
            let answer = server.get("/");
            assert!(matches!(answer.status(), 200 | 502), "{}", answer.status());
            let text = answer.text();
            let Some(pid) = text.split('|').nth(1).and_then(|pid| pid.parse().ok()) else {
                continue;
            };
            // It has another request by now, has none, or has ended.
            processes::signal(pid, Signal::KILL);
            progress.advance();
        }
        goes_on.store(false, Ordering::Relaxed);
    });
    assert!(wait::until(LIMIT, || server.get("/").status() == 200), "{}", server.log());
}

#[test]
fn killed_workers_cost_the_requests_that_they_had() {
    kill_workers(60);
}

#[test]
#[ignore = "heavy: make test-heavy"]
fn ten_thousand_killed_workers_cost_the_requests_that_they_had() {
    kill_workers(10_000);
}

/// A project with a worker script that logs its work after responses to `terminated`.
fn project(worker: &str) -> Site {
    let site = Site::with("index.php", worker);
    site.write("app.php", include_str!("worker_mode/app.php"));
    site.write("terminated", "");
    site
}

fn answers_as_the_application(server: &Server) {
    for n in 1..=30 {
        let request = Request::post(
            &format!("/items/{n}?page={n}"),
            "application/x-www-form-urlencoded",
            format!("name=n{n}"),
        );
        let response = server.ask(&request.header("X-Name", &format!("name {n}")));
        let expected = format!(
            "[\"POST\",\"\\/items\\/{n}?page={n}\",{{\"page\":\"{n}\"}},{{\"name\":\"n{n}\"}},\"name {n}\"]"
        );
        assert_eq!(response.text(), expected);
        let handled = (n - 1) % 10 + 1;
        assert_eq!(response.header("x-handled"), Some(&*handled.to_string()), "{n}");
    }
}

/// Ten requests, as `FRANKENPHP_LOOP_MAX` says; then the next process.
#[test]
fn a_worker_script_in_the_way_of_symfony_runs_unchanged() {
    let site = project(include_str!("worker_mode/symfony.php"));
    let config = "listen = '127.0.0.1:0'\nthreads = 1\n\
        [[pool]]\nworkers = 1\nphp_worker = 'root/index.php'\nenv = { FRANKENPHP_LOOP_MAX = '10' }\n\
        [[site]]\nroot = 'root'\n";
    let config = site.write_at(site.outside("sendoff.toml"), config);
    let server = Server::try_run(&config, site.root(), 1).expect("a server");
    answers_as_the_application(&server);
    let terminated = || std::fs::read_to_string(site.path("terminated")).unwrap_or_default();
    assert!(wait::until(LIMIT, || terminated().lines().count() == 30), "{}", terminated());
    server.get("/?throw=1").expect(500);
    server.await_log("Uncaught LogicException: thrown");
    server.get("/").expect(200);
}

#[test]
fn a_worker_script_in_the_way_of_octane_runs_unchanged() {
    let site = project(include_str!("worker_mode/octane.php"));
    let config = "listen = '127.0.0.1:0'\nthreads = 1\n\
        [[pool]]\nworkers = 1\nphp_worker = 'root/index.php'\nenv = { MAX_REQUESTS = '10' }\n\
        [[site]]\nroot = 'root'\n";
    let config = site.write_at(site.outside("sendoff.toml"), config);
    let server = Server::try_run(&config, site.root(), 1).expect("a server");
    answers_as_the_application(&server);
    let terminated = || std::fs::read_to_string(site.path("terminated")).unwrap_or_default();
    assert!(wait::until(LIMIT, || terminated() == "all\nall\nall\n"), "{}", terminated());
    let failed = server.get("/?throw=1");
    assert_eq!(failed.expect(500), b"Internal Server Error");
    assert_eq!(server.get("/").header("x-handled"), Some("2"));
}
