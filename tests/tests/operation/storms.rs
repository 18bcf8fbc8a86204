//! Reloads and commands that come in storms, and configurations that are meant to do harm.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use sendoff_tests::{LIMIT, Request, Server, Site, processes, wait};

fn write(site: &Site, text: &str) -> std::path::PathBuf {
    let text = format!("listen = '127.0.0.1:0'\nthreads = 1\n{text}");
    site.write_at(site.outside("sendoff.toml"), text)
}

#[test]
fn a_hundred_reloads_at_a_time_disturb_no_request() {
    let site = Site::waiting();
    let text = "[[pool]]\nworkers = 2\n[[site]]\nroot = 'root'\n";
    let server = Server::try_run(&write(&site, text), site.root(), 2).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut client = server.connect();
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(client.ask(&Request::get("/ok.php")).text(), "ok");
            }
        });
        let reloading: Vec<_> = (0..100)
            .map(|turn| {
                if turn % 10 == 0 {
                    server.signal([Signal::HUP, Signal::USR1, Signal::USR2][turn / 10 % 3]);
                }
                scope.spawn(|| server.command(&["reload"]))
            })
            .collect();
        for reloading in reloading {
            let said = reloading.join().unwrap().unwrap();
            assert!(said.starts_with("reloaded"), "{said}");
        }
        stop.store(true, Ordering::Relaxed);
        asking.join().unwrap();
    });
    assert!(wait::until(LIMIT, || server.workers().len() == 2), "{:?}", server.workers());
}

#[test]
fn reloads_of_a_server_that_ends_change_nothing() {
    let site = Site::waiting();
    let pipe = site.fifo("pipe");
    let text = "[[pool]]\nworkers = 2\n[[site]]\nroot = 'root'\n";
    let server = Server::try_run(&write(&site, text), site.root(), 2).unwrap();
    let mut client = server.connect();
    client.send(Request::get("/wait.php").bytes());
    let head = client.head().unwrap();
    server.signal(Signal::TERM);
    assert!(wait::until(LIMIT, || std::net::TcpStream::connect(server.addr()).is_err()));
    for signal in [Signal::HUP, Signal::USR1, Signal::USR2, Signal::HUP] {
        server.signal(signal);
    }
    let said = server.command(&["reload"]).unwrap_err();
    assert!(said.contains("the server is ending"), "{said}");
    pipe.release();
    assert_eq!(client.body_of(head, "GET").unwrap().body, b"first last");
    let (status, log) = server.await_end();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(!log.contains("reloaded"), "{log}");
}

#[test]
fn a_pool_that_cannot_start_changes_nothing_and_leaves_no_process() {
    let site = Site::waiting();
    let good = "[[pool]]\nname = 'a'\nworkers = 1\n[[site]]\nroot = 'root'\n";
    let config = write(&site, good);
    let server = Server::try_run(&config, site.root(), 1).unwrap();
    let processes = || processes::descendants(server.pid());
    let before = processes();
    for bad in ["php_value.memory_limit = 'lots'", "php_value.post_max_size = 'lots'"] {
        let two = "[[site]]\nhosts = 'b.test'\nroot = 'root'\npool = 'b'\n";
        write(
            &site,
            &format!("[[pool]]\nname = 'b'\nworkers = 1\n{bad}\n{good}{two}")
                .replace("[[site]]\nroot", "[[site]]\npool = 'a'\nroot"),
        );
        let said = server.command(&["reload"]).unwrap_err();
        assert!(said.contains("a PHP master with the new settings does not start"), "{said}");
        assert_eq!(server.page("/ok.php"), "ok");
        assert!(wait::until(LIMIT, || processes() == before), "{:?}", processes());
    }
}

#[test]
fn five_hundred_pools_are_reloaded_together() {
    const COUNT: usize = 500;
    let site = Site::waiting();
    let pools = (0..COUNT).map(|n| {
        format!(
            "[[pool]]\nname = 'p{n}'\nworkers = 'ondemand'\nworker_idle_timeout = '500ms'\n\
             [[site]]\nhosts = 's{n}.test'\nroot = 'root'\npool = 'p{n}'\n"
        )
    });
    let config = write(&site, &pools.collect::<String>());
    let server = Server::try_run(&config, site.root(), 0).unwrap();
    let ask = |host: &str| server.ask(&Request::get("/ok.php").header("Host", host)).text();
    assert_eq!(ask("s499.test"), "ok");
    server.signal(Signal::USR2);
    server.await_log("reloaded, with new workers in 500 pools");
    assert_eq!((ask("s0.test"), ask("s499.test")), ("ok".to_owned(), "ok".to_owned()));
    let status = server.command(&["status"]).unwrap();
    assert!(status.contains("and 468 pools with fewer requests"), "{status}");
}

#[test]
fn a_full_disk_costs_log_lines_and_no_request() {
    let site = Site::waiting();
    std::os::unix::fs::symlink("/dev/full", site.outside("full.log")).unwrap();
    let log = site.outside("full.log");
    let server = Server::start(site.root(), &["--access-log", log.to_str().unwrap()]);
    let mut client = server.connect();
    for _ in 0..2000 {
        assert_eq!(client.ask(&Request::get("/a.txt")).text(), "static");
    }
    server.await_log("an access log cannot be written, lines are lost");
    assert!(server.log().lines().count() < 20, "{}", server.log());
    // When there is room again, lines are written.
    std::fs::remove_file(&log).unwrap();
    server.command(&["reopen"]).unwrap();
    assert_eq!(server.page("/a.txt"), "static");
    let written =
        |log: &Path| std::fs::read_to_string(log).is_ok_and(|text| text.contains("GET /a.txt"));
    assert!(wait::until(LIMIT, || written(&log)));
}

#[test]
fn a_site_that_was_removed_is_closed() {
    let site = Site::waiting();
    site.write_at(site.outside("other/a.txt"), "other");
    let sites = "[[site]]\nroot = 'root'\nhosts = 'a.test'\n";
    let config = write(&site, &format!("{sites}[[site]]\nroot = 'other'\nhosts = 'b.test'\n"));
    let server = Server::try_run(&config, site.root(), 4).unwrap();
    let mut idle = server.connect();
    assert_eq!(idle.ask(&Request::get("/a.txt").header("Host", "b.test")).text(), "other");
    let folder = site.outside("other").display().to_string();
    let open = || {
        let all = processes::descriptors(server.front()).into_iter();
        all.filter(|target| target.starts_with(&folder)).count()
    };
    assert!(open() > 0);
    write(&site, sites);
    assert_eq!(server.command(&["reload"]).unwrap(), "reloaded\n");
    assert!(wait::until(LIMIT, || open() == 0), "{}", open());
    assert_eq!(idle.ask(&Request::get("/a.txt").header("Host", "a.test")).text(), "static");
}
