//! `--workers auto`: as many PHP workers as requests need, and no more for long.

use rustix::process::Signal;
use sendoff_tests::{
    Client, LIMIT, Progress, Request, Server, Site, dies_with_us, pattern, processes, wait,
};
use std::path::Path;
use std::time::Duration;

const OPTIONS: [&str; 4] = ["--workers", "auto", "--worker-idle-timeout", "0.3"];

fn site() -> Site {
    let site = Site::with("hello.php", "<?php echo getmypid();");
    site.write("wait.php", "<?php file_get_contents($_GET['pipe']); echo $_GET['pipe'];");
    site
}

/// Makes this number of scripts wait at the same time, each for its own pipe, and then continue.
fn all_at_once(site: &Site, server: &Server, scripts: usize) {
    let pipes: Vec<_> = (0..scripts).map(|number| site.fifo(&format!("pipe{number}"))).collect();
    let mut clients: Vec<Client> = (0..scripts)
        .map(|number| {
            let mut client = Client::connect(server.addr());
            client.send(format!("GET /wait.php?pipe=pipe{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
            client
        })
        .collect();
    let arrived = wait::until(LIMIT, || server.workers().len() >= scripts);
    assert!(arrived, "{} workers for {scripts} scripts", server.workers().len());
    // No script was released yet: all of them must be at work at once, the last one too.
    for (number, (pipe, client)) in pipes.iter().zip(&mut clients).enumerate().rev() {
        pipe.release();
        assert_eq!(client.response("GET").text(), format!("pipe{number}"));
    }
}

/// A master has descriptors for each of its workers, which keep the limit of the server.
#[test]
fn a_low_limit_of_open_files_allows_many_workers() {
    let site = site();
    site.write("limit.php", "<?php echo posix_getrlimit()['soft openfiles'];");
    let text = "listen = '127.0.0.1:0'\n[[pool]]\nname = 'www'\nworkers = 150\n\
                [[site]]\npool = 'www'\nroot = '.'\n";
    let config = site.write("sendoff.toml", text);
    let mut command = dies_with_us(Path::new("prlimit"), "KILL");
    command.arg("--nofile=300:");
    let server = Server::try_run_by(command, &config, site.root(), 150).unwrap();
    assert_eq!(server.page("/limit.php"), "300");
}

/// True if the number of workers falls to `workers` and stays there for 0.5 s.
fn shrinks_to(server: &Server, workers: usize) -> bool {
    let few = || server.workers().len() == workers;
    wait::until(LIMIT, few) && !wait::until(Duration::from_millis(500), || !few())
}

#[test]
fn workers_come_when_requests_wait_and_go_when_they_do_not() {
    let site = site();
    let server = Server::start(site.root(), &OPTIONS);
    let fewest = server.workers().len();
    all_at_once(&site, &server, fewest * 3);
    assert!(shrinks_to(&server, fewest), "{} are left", server.workers().len());
    assert!(!server.page("/hello.php").is_empty());
}

#[test]
fn a_worker_that_died_is_replaced_and_a_new_master_learns_how_many_are_wanted() {
    let site = site();
    let server = Server::start(site.root(), &OPTIONS);
    let fewest = server.workers().len();
    let dead = server.workers()[0];
    processes::signal(dead, Signal::KILL);
    let replaced = || {
        let workers = server.workers();
        workers.len() == fewest && !workers.contains(&dead)
    };
    assert!(wait::until(LIMIT, replaced), "{:?}", server.workers());
    let orphans = server.workers();
    processes::signal(server.php_master(), Signal::KILL);
    // A worker that the end of its master has not yet reached would take a request with it.
    assert!(wait::until(LIMIT, || !orphans.iter().any(|pid| processes::runs(*pid))));
    assert!(wait::until(LIMIT, || Client::connect(server.addr())
        .ask(&Request::get("/hello.php"))
        .status()
        == 200));
    all_at_once(&site, &server, fewest + 3);
    assert!(shrinks_to(&server, fewest), "{} are left", server.workers().len());
}

#[test]
fn a_front_that_is_started_again_goes_on_with_the_workers_there_are() {
    let site = site();
    let server = Server::start(site.root(), &OPTIONS);
    let fewest = server.workers().len();
    let front = server.front();
    processes::signal(front, Signal::KILL);
    assert!(wait::until(LIMIT, || server.front() != front));
    all_at_once(&site, &server, fewest + 2);
    assert!(shrinks_to(&server, fewest), "{} are left", server.workers().len());
}

/// Files, memory and bytes that a worker has handed over outlive the worker, for a slow client; so
/// does the guarantee that a file is sent as the script read it.
#[test]
#[ignore = "heavy: make test-heavy; the writer of the file waits for the clients"]
fn a_worker_that_is_let_go_owes_its_last_client_nothing() {
    let (file, text) = (pattern(1, 1 << 20), "made ".repeat(60_000));
    for delivery in ["region", "direct"] {
        let _progress = Progress::new(0, &format!("workers that are let go, {delivery}"));
        let site = site();
        site.write("file", &file);
        site.write(
            "page.php",
            "<?php $s = str_repeat('made ', 60000); echo $s, file_get_contents('file'), $s;",
        );
        let server =
            Server::start(site.root(), &[&OPTIONS[..], &["--delivery", delivery]].concat());
        let fewest = server.workers().len();
        let mut slow: Vec<Client> = (0..fewest)
            .map(|_| {
                let mut client = Client::connect_narrow(server.addr(), 32 * 1024);
                client.send(Request::get("/page.php").bytes());
                client
            })
            .collect();
        all_at_once(&site, &server, fewest + 3);
        assert!(shrinks_to(&server, fewest), "{} are left", server.workers().len());
        std::fs::write(site.path("file"), "other").unwrap();
        let expected = [text.as_bytes(), &file, text.as_bytes()].concat();
        for client in &mut slow {
            let response = client.response("GET");
            assert!(response.expect(200) == expected, "{delivery}: {}", response.body.len());
        }
    }
}

/// Ends children of a worker at once. They die by the signal, and the worker notices nothing.
const CHILDREN: &str = r#"<?php
$children = $signals = [];
for ($i = 0; $i < 30; $i++) {
    $children[$i] = proc_open(['/bin/sleep', '5'], [], $pipes);
    proc_terminate($children[$i], (int)($_GET['signal'] ?? 15));
}
foreach ($children as $child) {
    do {
        $state = proc_get_status($child);
    } while ($state['running']);
    $signals[] = $state['termsig'];
}
echo implode(',', array_unique($signals));"#;

#[test]
fn signals_to_children_that_have_just_been_started_are_the_childrens() {
    let site = site();
    site.write("children.php", CHILDREN);
    site.write(
        "worker.php",
        "<?php while (sendoff_handle_request(function () { include 'children.php'; })) {}",
    );
    let script = site.path("worker.php");
    let in_worker_mode = ["--workers", "1", "--php-worker", script.to_str().unwrap()];
    for options in [&["--workers", "1"][..], &in_worker_mode] {
        let server = Server::start(site.root(), options);
        let page = if options.len() > 2 { "/" } else { "/children.php" };
        server.page(page);
        let before = server.workers();
        // SIGTERM; the signal that ends a stuck script; the signals of crashes.
        for signal in [15, 34, 11, 6] {
            let target = format!("{page}?signal={signal}");
            assert_eq!(server.page(&target), signal.to_string());
        }
        assert_eq!(server.workers(), before, "{options:?}");
        let log = server.log();
        assert!(!log.contains("is ended") && !log.contains("crashes"), "{log}");
    }
}

/// A shell may have files open that the site's scripts must not read.
#[test]
fn no_process_inherits_descriptors_of_the_shell() {
    let site = site();
    site.write(
        "open.php",
        "<?php foreach (scandir('/proc/self/fd') as $fd) echo @readlink(\"/proc/self/fd/$fd\"), \"\\n\";",
    );
    let path = site.write("of-the-shell", "secret");
    let file = std::fs::File::open(&path).unwrap();
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
    let server = Server::start(site.root(), &["--workers", "1"]);
    let files = server.page("/open.php");
    assert!(!files.contains("of-the-shell") && files.contains("socket:"), "{files}");
    let of_front = std::fs::read_dir(format!("/proc/{}/fd", server.front())).unwrap();
    let mut of_front = of_front.flat_map(|entry| std::fs::read_link(entry.unwrap().path()));
    assert!(!of_front.any(|target| target.ends_with("of-the-shell")));
}
