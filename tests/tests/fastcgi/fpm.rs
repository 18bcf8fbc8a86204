//! Stock php-fpm with processes that come and go behind our front.

use sendoff_tests::{Client, Fifo, Fpm, LIMIT, Request, Server, Site, processes, wait};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::process::Signal;

/// The most processes that a pool here may have.
const MOST: usize = 8;

const ONDEMAND: &str = "pm = ondemand
pm.max_children = 8
pm.process_idle_timeout = 1s";

const DYNAMIC: &str = "pm = dynamic
pm.max_children = 8
pm.start_servers = 1
pm.min_spare_servers = 1
pm.max_spare_servers = 2";

/// A site whose script logs each request, so that a request that runs twice is noticed.
fn site() -> Site {
    let site = Site::with(
        "run.php",
        r#"<?php
file_put_contents('ran', "$_SERVER[REQUEST_METHOD] $_GET[n]\n", FILE_APPEND | LOCK_EX);
usleep(1000);
echo $_SERVER['REQUEST_METHOD'], ' ', $_GET['n'];
"#,
    );
    site.write("wait.php", "<?php file_get_contents($_GET['go']); echo 'went';");
    site
}

fn request(method: &str, n: &str) -> Request {
    match method {
        "POST" => Request::post(&format!("/run.php?n={n}"), "text/plain", "x"),
        _ => Request::get(&format!("/run.php?n={n}")),
    }
}

/// Sends a request, and expects its response.
fn ask(client: &mut Client, method: &str, n: &str) {
    let response = client.ask(&request(method, n));
    assert_eq!(response.expect(200), format!("{method} {n}").as_bytes());
}

/// Every request has run, and each `POST` once.
fn assert_run(site: &Site, asked: &[(&str, String)]) {
    let ran = std::fs::read_to_string(site.path("ran")).unwrap();
    let mut times = HashMap::new();
    for line in ran.lines() {
        *times.entry(line).or_insert(0) += 1;
    }
    for (method, n) in asked {
        let times = times.remove(&*format!("{method} {n}")).unwrap_or(0);
        assert!(
            times == 1 || (times > 1 && *method == "GET"),
            "{method} {n} was run {times} times"
        );
    }
    assert!(times.is_empty(), "nobody asked for {times:?}");
}

/// Every third is a `POST`.
fn requests(name: &str, count: usize) -> Vec<(&'static str, String)> {
    let method = |i| if i % 3 == 2 { "POST" } else { "GET" };
    (0..count).map(|i| (method(i), format!("{name}.{i}"))).collect()
}

/// Sixteen clients at once, while `meanwhile` runs. Returns their requests.
fn many(server: &Server, name: &str, meanwhile: impl FnOnce()) -> Vec<(&'static str, String)> {
    let addr = server.addr();
    let clients: Vec<_> = (0..16)
        .map(|number| {
            let asked = requests(&format!("{name}.{number}"), 60);
            std::thread::spawn(move || {
                let mut client = Client::connect(addr);
                asked.iter().for_each(|(method, n)| ask(&mut client, method, n));
                asked
            })
        })
        .collect();
    meanwhile();
    clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
}

/// Keeps the maximum number of processes busy at the same time.
fn grow(fpm: &Fpm, server: &Server, go: &[Fifo]) {
    let mut clients: Vec<_> = (0..MOST)
        .map(|n| {
            let mut client = server.connect();
            client.send(Request::get(&format!("/wait.php?go=go{n}")).bytes());
            client
        })
        .collect();
    assert!(wait::until(LIMIT, || fpm.running().len() == MOST), "{:?}", fpm.running());
    for (client, go) in clients.iter_mut().zip(go) {
        go.release();
        assert_eq!(client.response("GET").expect(200), b"went");
    }
}

fn grows_and_shrinks(pool: &str, start: fn(&Path, &str) -> Fpm) {
    let site = site();
    let go: Vec<_> = (0..MOST).map(|n| site.fifo(&format!("go{n}"))).collect();
    let fpm = start(site.root(), pool);
    let server = Server::start(site.root(), &["--fastcgi", &fpm.php(), "--threads", "2"]);
    let mut asked = Vec::new();
    for round in ["first", "second"] {
        // On demand there may be fewer processes: php-fpm overlooks some of several simultaneous
        // connections until it has a free process, behind any web server.
        if pool == DYNAMIC {
            grow(&fpm, &server, &go);
        }
        asked.extend(many(&server, round, || {
            assert!(wait::until(LIMIT, || fpm.running().len() > 1), "{:?}", fpm.running());
        }));
        if round == "second" {
            break;
        }
        // Then a few, each when a process has just ended.
        let mut client = server.connect();
        for number in 0.. {
            let before = fpm.running();
            if before.len() <= 2 {
                break;
            }
            let ended = || before.iter().any(|process| !processes::runs(*process));
            assert!(wait::until(LIMIT, ended), "{before:?} stay");
            let few = requests(&format!("few{number}"), 3);
            few.iter().for_each(|(method, n)| ask(&mut client, method, n));
            asked.extend(few);
        }
    }
    assert_run(&site, &asked);
}

#[test]
fn processes_come_when_they_are_needed_and_go_when_they_are_not() {
    let starts: [fn(&Path, &str) -> Fpm; 2] = [Fpm::start, Fpm::start_tcp];
    // At once: php-fpm looks once a second.
    let threads: Vec<_> = [ONDEMAND, DYNAMIC]
        .into_iter()
        .flat_map(|pool| starts.map(|start| (pool, start)))
        .map(|(pool, start)| std::thread::spawn(move || grows_and_shrinks(pool, start)))
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Processes at work, and processes that wait on a kept connection, end after they have answered.
#[test]
fn all_processes_are_replaced_while_many_ask() {
    let site = site();
    for start in [Fpm::start, Fpm::start_tcp] {
        let pool = "[global]\nprocess_control_timeout = 20s";
        let fpm = start(site.root(), pool);
        let server = Server::start(site.root(), &["--fastcgi", &fpm.php(), "--threads", "2"]);
        let asked = many(&server, "many", || {
            let before = fpm.running();
            fpm.reload();
            let ended = || before.iter().all(|process| !processes::runs(*process));
            assert!(wait::until(LIMIT, ended), "{before:?} stay");
        });
        assert_run(&site, &asked);
        std::fs::remove_file(site.path("ran")).unwrap();
    }
}

/// A process with a kept connection dies before it has read the request: an idempotent request is
/// repeated.
#[test]
fn a_process_that_ends_before_it_reads_costs_nothing() {
    let site = site();
    site.write("pid.php", "<?php echo getmypid();");
    for start in [Fpm::start, Fpm::start_tcp] {
        let fpm = start(site.root(), "pm.max_children = 2");
        let server = Server::start(site.root(), &["--fastcgi", &fpm.php()]);
        let mut asked = Vec::new();
        for round in 0..10 {
            let process = server.page("/pid.php").parse().unwrap();
            // The stopped process does not read from its connection.
            processes::signal(process, Signal::STOP);
            let (method, n) = (["GET", "POST"][round % 2], round.to_string());
            let mut client = server.connect();
            client.send(request(method, &n).bytes());
            let has_come = || processes::unread(process) > 0;
            // A POST must not be sent twice, so it takes a new connection, to the other process.
            let came = method == "POST" || wait::until(LIMIT, has_come);
            assert!(came, "nothing was sent on the connection kept");
            processes::signal(process, Signal::KILL);
            assert_eq!(client.response(method).expect(200), format!("{method} {n}").as_bytes());
            asked.push((method, n));
        }
        assert_run(&site, &asked);
        std::fs::remove_file(site.path("ran")).unwrap();
    }
}

/// The way in which processes of php-fpm have ended.
#[derive(PartialEq, Eq)]
enum Ended {
    /// They were allowed to finish their requests.
    Reloaded,
    /// One was killed, perhaps at work.
    Killed,
}

/// Ends processes of php-fpm while `CLIENTS` request scripts of 1 and 30 ms, and expects all
/// answers, but for one per round that `end` kills a process in. Returns their number.
fn all_are_answered(server: &Server, rounds: usize, mut end: impl FnMut(usize) -> Ended) -> usize {
    const CLIENTS: usize = 10;
    let stop = AtomicBool::new(false);
    let (answered, cost) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let mut killed = 0;
    std::thread::scope(|scope| {
        for n in 0..CLIENTS {
            let (stop, answered, cost) = (&stop, &answered, &cost);
            scope.spawn(move || {
                let mut client = Client::connect(server.addr());
                let target = format!("/sleep.php?ms={}", [1, 30][n % 2]);
                while !stop.load(Ordering::Relaxed) {
                    let response = client.ask(&Request::get(&target));
                    match response.status() {
                        200 => answered.fetch_add(1, Ordering::Relaxed),
                        502 => cost.fetch_add(1, Ordering::Relaxed),
                        status => panic!("{target}: {status}: {}", response.text()),
                    };
                }
            });
        }
        for round in 0..rounds {
            // Some answers between the rounds, or the test would show nothing.
            let before = answered.load(Ordering::Relaxed);
            let goes_on = || answered.load(Ordering::Relaxed) > before;
            assert!(wait::until(LIMIT, goes_on), "no answer in round {round}");
            killed += usize::from(end(round) == Ended::Killed);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let cost = cost.into_inner();
    assert!(cost <= killed, "{cost} requests were lost by {killed} killed processes");
    answered.into_inner()
}

fn reloads_and_deaths(rounds: usize) {
    let site = site();
    site.write("sleep.php", "<?php usleep($_GET['ms'] * 1000); echo 'slept';");
    for start in [Fpm::start, Fpm::start_tcp] {
        let fpm = start(site.root(), "[global]\nprocess_control_timeout = 20s");
        let server = Server::start(site.root(), &["--fastcgi", &fpm.php(), "--threads", "2"]);
        let answered = all_are_answered(&server, rounds, |round| match round % 3 {
            0 | 1 => {
                fpm.reload();
                Ended::Reloaded
            }
            _ => {
                if let Some(process) = fpm.running().get(round % 4) {
                    processes::signal(*process, Signal::KILL);
                }
                Ended::Killed
            }
        });
        assert!(answered >= rounds);
    }
}

/// A reload costs no idempotent request, and a killed process its own at most.
#[test]
fn reloads_and_deaths_cost_no_other_request() {
    reloads_and_deaths(12);
}

#[test]
#[ignore = "heavy: 100 reloads of php-fpm under load, and 50 processes killed"]
fn a_hundred_reloads_cost_no_other_request() {
    reloads_and_deaths(150);
}

/// A script that kills its process runs once.
#[test]
fn a_script_that_kills_its_process_ends_no_other() {
    let site = Site::with(
        "die.php",
        "<?php file_put_contents('ran', 'x', FILE_APPEND); posix_kill(getmypid(), 9);",
    );
    let fpm = Fpm::start(site.root(), "");
    let server = Server::start(site.root(), &["--fastcgi", &fpm.php()]);
    let ask = || server.get("/die.php").status();
    assert_eq!(ask(), 502);
    // Several at the same time look as if php-fpm was reloaded.
    let statuses = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(statuses, [502; 3]);
    assert_eq!(std::fs::read_to_string(site.path("ran")).unwrap(), "xxxx");
}

/// php-fpm ends a script that is too slow, and its process with it.
#[test]
fn a_script_that_takes_too_long_runs_once() {
    let site =
        Site::with("slow.php", "<?php file_put_contents('ran', 'x', FILE_APPEND); sleep(60);");
    let fpm = Fpm::start(site.root(), "request_terminate_timeout = 1s");
    let server = Server::start(site.root(), &["--fastcgi", &fpm.php()]);
    assert_eq!(server.get("/slow.php").status(), 502);
    assert_eq!(std::fs::read_to_string(site.path("ran")).unwrap(), "x");
}
