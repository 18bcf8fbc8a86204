//! A configuration that is read again while clients are served.

use rustix::process::Signal;
use sendoff_tests::{
    Client, Fifo, LIMIT, Request, Server, Site, pattern, processes, sendoff, wait,
};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const RELOADS: usize = 50;

/// A site whose pool of 4 workers changes from turn to turn.
struct Reloaded {
    site: Site,
    /// Keys at the top of the file.
    top: String,
    turn: usize,
}

impl Reloaded {
    fn new() -> Self {
        let site = Site::waiting();
        site.write("pid.php", "<?php echo getmypid();");
        Self { site, top: "threads = 1\n".to_owned(), turn: 0 }
    }

    fn start(&self) -> Server {
        Server::try_run(&self.write(), self.site.root(), 4).unwrap()
    }

    /// Changes the configuration of the pool.
    fn change_pool(&mut self) {
        self.turn += 1;
        self.write();
    }

    fn write(&self) -> PathBuf {
        let text = format!(
            "listen = '127.0.0.1:0'\n{}[[pool]]\nworkers = 4\nphp_ini = {{ precision = {} }}\n\
             [[site]]\nroot = 'root'\n",
            self.top,
            10 + self.turn
        );
        self.site.write_at(self.site.outside("sendoff.toml"), text)
    }
}

fn reload(server: &Server) -> String {
    server.command(&["reload"]).unwrap()
}

/// Requests everything repeatedly, on one connection that must stay open, until it is told to stop.
fn ask_until(
    stop: &AtomicBool,
    server: &Server,
    asked: &AtomicUsize,
    expected: &[(&str, Vec<u8>)],
) {
    let mut client = server.connect();
    while !stop.load(Ordering::Relaxed) {
        for (target, body) in expected {
            let response = client.ask(&Request::get(target));
            assert!(response.expect(200) == body, "{target} has other bytes");
            assert!(!response.head.closes(), "{target}: the connection is to be closed");
            asked.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// PHP starts in spite of the error, as php-fpm does, so the answer to the reload reports it.
#[test]
fn what_php_says_at_its_start_is_in_the_answer() {
    let site = Site::waiting();
    let file = |setting: &str| {
        let text = format!(
            "listen = '127.0.0.1:0'\n[[pool]]\nworkers = 1\nphp_ini = {{ {setting} }}
            [[site]]\nroot = 'root'\n"
        );
        site.write_at(site.outside("sendoff.toml"), text)
    };
    let server = Server::try_run(&file("precision = 10"), site.root(), 1).unwrap();
    let log = site.outside("php.log").display().to_string();
    for more in [String::new(), format!(", error_log = '{log}'")] {
        file(&format!("extension = 'nosuch.so'{more}"));
        let said = reload(&server);
        let mut lines = said.lines();
        assert_eq!(lines.next(), Some("reloaded, with new workers in 1 pool"));
        let warning = lines.next().unwrap();
        let of_pool =
            warning.starts_with("    pool default: PHP Startup: Unable to load dynamic library");
        assert!(of_pool && warning.contains("nosuch.so"), "{said}");
        assert_eq!((lines.next(), server.page("/ok.php").as_str()), (None, "ok"));
    }
    file("precision = 11");
    assert_eq!(reload(&server), "reloaded, with new workers in 1 pool\n");
}

#[test]
fn fifty_reloads_under_load_lose_no_request_and_close_no_connection() {
    let mut reloaded = Reloaded::new();
    let site = &reloaded.site;
    let (small, large) = (pattern(1, 2_000), pattern(2, 300_000));
    site.write("small.bin", &small);
    site.write("large.bin", &large);
    site.write("read.php", "<?php echo file_get_contents('large.bin');");
    site.write("made.php", "<?php echo str_repeat('abcdefgh', 20000);");
    let expected = [
        ("/small.bin", small),
        ("/ok.php", b"ok".to_vec()),
        ("/large.bin", large.clone()),
        ("/read.php", large),
        ("/made.php", b"abcdefgh".repeat(20_000)),
    ];
    let log = site.outside("access.log");
    reloaded.top = format!("threads = 2\naccess_log = '{}'\n", log.display());
    let server = reloaded.start();
    let (front, first_master) = (server.front(), server.php_master());
    let (stop, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..8).map(|_| scope.spawn(|| ask_until(&stop, &server, &asked, &expected))).collect();
        for number in 0..RELOADS {
            let before = asked.load(Ordering::Relaxed);
            if number % 5 == 4 {
                reloaded.change_pool();
                assert_eq!(reload(&server), "reloaded, with new workers in 1 pool\n");
            } else {
                assert_eq!(reload(&server), "reloaded\n");
            }
            // Every reload has requests under way.
            let goes_on = || asked.load(Ordering::Relaxed) > before + 20;
            assert!(wait::until(LIMIT, goes_on), "{}", server.log());
        }
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
    let asked = asked.load(Ordering::Relaxed);
    assert!(asked >= 1000, "{asked} requests");
    assert_eq!(server.front(), front);
    let alone = || !processes::runs(first_master) && server.workers().len() == 4;
    assert!(wait::until(LIMIT, alone), "masters of earlier configurations end");
    server.signal(Signal::TERM);
    let (status, said) = server.await_end();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(!said.contains("ERROR") && !said.contains("WARN"), "{said}");
    assert_eq!(fs::read_to_string(log).unwrap().lines().count(), asked);
}

#[test]
fn a_pool_that_did_not_change_keeps_its_workers_and_one_that_did_gets_others() {
    let mut reloaded = Reloaded::new();
    let server = reloaded.start();
    let (workers, master) = (server.workers(), server.php_master());
    server.signal(Signal::HUP);
    server.await_log("INFO reloaded");
    assert_eq!((server.workers(), server.php_master()), (workers.clone(), master));
    // The next request on a connection that is open already sees the new configuration, too.
    let mut client = server.connect();
    assert_eq!(client.ask(&Request::get("/ok.php")).text(), "ok");
    reloaded.change_pool();
    reload(&server);
    for text in [client.ask(&Request::get("/pid.php")).text(), server.page("/pid.php")] {
        assert!(!workers.contains(&text.parse().unwrap()), "{text} is one of {workers:?}");
    }
    drop(client);
    server.await_replacement(&workers);
    assert!(wait::until(LIMIT, || !processes::runs(master)), "{}", server.log());
    let status = server.command(&["status"]).unwrap();
    assert!(status.contains("4 workers, 0 busy") && status.contains("s ago\n"), "{status}");
    // Processes that are started again have the new configuration, too.
    for process in [server.front(), server.php_master()] {
        processes::signal(process, Signal::KILL);
        assert!(wait::until(LIMIT, || !processes::runs(process)));
        server.await_page("/ok.php", "ok");
    }
    assert!(wait::until(LIMIT, || server.workers().len() == 4), "{:?}", server.workers());
}

#[test]
fn a_request_under_way_ends_on_its_old_worker() {
    let mut reloaded = Reloaded::new();
    let pipe = reloaded.site.fifo("pipe");
    let server = reloaded.start();
    let master = server.php_master();
    let mut client = server.connect();
    client.send(Request::get("/wait.php").bytes());
    let head = client.head().unwrap();
    reloaded.change_pool();
    reload(&server);
    assert_eq!(server.page("/ok.php"), "ok");
    assert!(processes::runs(master), "it has a worker that is at work");
    pipe.release();
    assert_eq!(client.body_of(head, "GET").unwrap().body, b"first last");
    assert!(wait::until(LIMIT, || !processes::runs(master)), "{}", server.log());
}

#[test]
fn a_configuration_that_cannot_be_used_changes_nothing_and_says_why() {
    let site = Site::waiting();
    let link = site.outside("link");
    symlink(site.root(), &link).unwrap();
    let server = Server::start(site.root(), &["--accel", &format!("/files={}", link.display())]);
    let workers = server.workers();
    fs::remove_file(&link).unwrap();
    let why = format!("not reloaded, nothing has changed: --accel: {}: No such", link.display());
    let said = server.command(&["reload"]).unwrap_err();
    assert!(said.contains(&why) && said.lines().count() == 1, "{said}");
    server.signal(Signal::HUP);
    let logged = || server.log().matches(&why).count() == 2;
    assert!(wait::until(LIMIT, logged), "{}", server.log());
    let status = server.command(&["status"]).unwrap();
    assert!(status.contains("it failed: ") && status.contains("link: No such file"), "{status}");
    assert_eq!((server.page("/ok.php"), server.workers()), ("ok".to_owned(), workers));
}

/// A configuration file with two pools and two sites; `b`: further keys of site b.test.
fn file(max_requests: u32, b: &str) -> String {
    format!(
        "listen = '127.0.0.1:0'\nthreads = 1\n\
         [[pool]]\nname = 'one'\nworkers = 3\n\
         [[pool]]\nname = 'two'\nworkers = 1\nmax_requests = {max_requests}\n\
         [[site]]\nhosts = 'a.test'\nroot = 'root'\npool = 'one'\n\
         [[site]]\nhosts = 'b.test'\nroot = 'root'\npool = 'two'\n{b}"
    )
}

#[test]
fn a_file_is_read_again_with_its_sites_routes_and_pools() {
    let site = Site::with("pid.php", "<?php echo getmypid();");
    let write = |text: &str| site.write_at(site.outside("sendoff.toml"), text);
    let respond = |text: &str| format!("[[site.route]]\npath = '/said'\nrespond = '{text}'\n");
    let config = write(&file(0, &respond("first")));
    let server = Server::try_run(&config, site.root(), 4).unwrap();
    let ask =
        |host: &str, target: &str| server.ask(&Request::get(target).header("Host", host)).text();
    let pid = |host: &str| ask(host, "/pid.php").parse::<u32>().unwrap();
    assert_eq!(ask("b.test", "/said"), "first");
    let before = server.workers();
    write(&file(0, &respond("second")));
    assert_eq!(reload(&server), "reloaded\n");
    assert_eq!((ask("b.test", "/said").as_str(), server.workers()), ("second", before.clone()));
    // A mistake has its place, and the server goes on.
    write(&file(0, "colour = 'red'\n"));
    let said = server.command(&["reload"]).unwrap_err();
    assert!(said.contains("nothing has changed") && said.contains("colour"), "{said}");
    assert_eq!(ask("b.test", "/said"), "second");
    // One of the two pools changes.
    write(&file(1000, &respond("third")));
    assert_eq!(reload(&server), "reloaded, with new workers in 1 pool\n");
    assert_eq!(ask("b.test", "/said"), "third");
    assert!(before.contains(&pid("a.test")) && !before.contains(&pid("b.test")));
    let settled = || server.workers().len() == 4;
    assert!(wait::until(LIMIT, settled), "{:?}", server.workers());
    write(&file(1000, &respond("third")).replace("threads = 1", "threads = 2"));
    let said = server.command(&["reload"]).unwrap_err();
    assert!(said.contains("the number of threads cannot be changed"), "{said}");
    assert_eq!(ask("b.test", "/said"), "third");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root: it gives a folder to another user")]
fn another_user_needs_a_restart_as_root() {
    let site = Site::waiting();
    let server = Server::start(site.root(), &[]);
    std::os::unix::fs::chown(site.root(), Some(1), Some(1)).unwrap();
    let said = server.command(&["reload"]).unwrap_err();
    assert!(said.contains("the user cannot be changed without a restart"), "{said}");
    assert_eq!(server.page("/ok.php"), "ok");
}

/// A server that reads a file, and a change of this file with which a reload blocks until a pipe is
/// released.
fn stalling_reload() -> (Site, Server, Fifo) {
    let site = Site::with("ok.php", "<?php echo 'ok';");
    let pipe = site.fifo("pipe");
    let path = site.path("pipe");
    let preload = format!("<?php file_get_contents('{}');", path.display());
    let preload = site.write("preload.php", preload);
    let config = site.write_at(site.outside("sendoff.toml"), file(0, ""));
    let server = Server::try_run(&config, site.root(), 4).unwrap();
    let user = rustix::process::getuid().is_root().then_some("opcache.preload_user = 'www-data'");
    let two = format!(
        "name = 'two'\nphp_value.opcache.preload = '{}'\n{}",
        preload.display(),
        user.map_or_else(String::new, |user| format!("php_value.{user}"))
    );
    site.write_at(config, file(0, "").replace("name = 'two'", &two));
    (site, server, pipe)
}

#[test]
fn commands_are_answered_while_a_reload_runs_and_further_reloads_follow_it_together() {
    let (site, server, pipe) = stalling_reload();
    let status = || server.command(&["status"]).unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| reload(&server));
        assert!(wait::until(LIMIT, || status().contains("reload       running for ")));
        let log = || server.log().matches("reloaded").count();
        assert_eq!(
            (server.command(&["reopen"]).unwrap().as_str(), log()),
            ("there is no log file to open again\n", 0)
        );
        let sockets = || processes::unix_sockets(server.pid());
        // The connection of the last command may still be among them.
        let before = sockets();
        let further: Vec<_> = (0..20).map(|_| scope.spawn(|| reload(&server))).collect();
        assert!(wait::until(LIMIT, || sockets() >= before + 19), "{before}, {}", sockets());
        for _ in 0..20 {
            server.signal(Signal::HUP);
        }
        let port = server.addr().port().to_string();
        assert!(sendoff(site.root(), &["status", "--listen", &port]).is_ok());
        assert_eq!((server.page("/ok.php"), log()), ("ok".to_owned(), 0));
        pipe.release();
        assert_eq!(first.join().unwrap(), "reloaded, with new workers in 1 pool\n");
        for further in further {
            assert_eq!(further.join().unwrap(), "reloaded\n");
        }
        assert!(log() <= 3, "{}", server.log());
    });
    assert!(!status().contains("reload       running"), "{}", status());
}

#[test]
fn a_server_that_reloads_ends_when_it_is_told_to() {
    for how in [&["stop"][..], &["stop", "--now"]] {
        let (_site, server, pipe) = stalling_reload();
        std::thread::scope(|scope| {
            let reloading = scope.spawn(|| server.command(&["reload"]));
            let status = || server.command(&["status"]).unwrap();
            assert!(wait::until(LIMIT, || status().contains("reload       running for ")));
            // PHP preloads in a process of its own, which the master waits for.
            let _held = pipe.hold();
            assert_eq!(server.command(how).unwrap(), "the server has ended\n");
            assert!(wait::until(LIMIT, || !pipe.has_reader()), "the process that preloads is left");
            let said = reloading.join().unwrap().unwrap_err();
            assert!(said.contains("the server has ended instead"), "{said}");
        });
        let (status, log) = server.await_end();
        assert_eq!(status.code(), Some(0), "{log}");
    }
}

#[test]
fn listeners_are_opened_and_closed_by_a_reload() {
    let site = Site::with("ok.php", "<?php echo 'ok ', $_SERVER['SERVER_ADDR'];");
    let socket = site.outside("a.sock");
    let write = |listen: &str, second: &str| {
        let text = format!(
            "listen = {listen}\nthreads = 2\n[[pool]]\nworkers = 4\n\
             [[site]]\nroot = 'root'\n[[site.route]]\npath = '/which'\nrespond = 'first'\n{second}"
        );
        site.write_at(site.outside("sendoff.toml"), text)
    };
    let one = "'127.0.0.1:0'";
    let server = Server::try_run_with(&write(one, ""), site.root(), 4, 2).unwrap();
    let addresses = || -> Vec<String> {
        let status = server.command(&["status"]).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("listens on "));
        line.unwrap().trim().split(", ").map(str::to_owned).collect()
    };
    let ask = |address: &str, target: &str| {
        Client::connect(address.parse().unwrap()).ask(&Request::get(target)).text()
    };
    let first = server.addr().to_string();
    let mut kept = server.connect();
    assert_eq!(kept.ask(&Request::get("/which")).text(), "first");
    // Another address for the same site, one for another site, and a UNIX socket.
    let second = "[[site]]\nlisten = '127.0.0.3:0'\nroot = 'root'\n[[site.route]]\npath = '/which'\nrespond = 'second'\n";
    let unix = format!("'unix:{}'", socket.display());
    write(&format!("[{unix}, '127.0.0.2:0', {one}]"), second);
    assert_eq!(reload(&server), "reloaded\n");
    let all = addresses();
    assert_eq!(all.len(), 4, "{all:?}");
    assert_eq!((all[0].as_str(), &all[2]), (&*format!("unix:{}", socket.display()), &first));
    for _ in 0..10 {
        assert_eq!(ask(&all[1], "/which"), "first");
        assert_eq!(ask(&all[1], "/ok.php"), "ok 127.0.0.2");
        assert_eq!(ask(&all[3], "/which"), "second");
        assert_eq!(ask(&first, "/which"), "first");
    }
    assert_eq!(kept.ask(&Request::get("/which")).text(), "first");
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok());
    // The next front has them too.
    processes::signal(server.front(), Signal::KILL);
    server.await_page("/which", "first");
    assert_eq!(ask(&all[3], "/which"), "second");
    // A taken address changes nothing.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    write(&format!("[{one}, '{}']", taken.local_addr().unwrap()), "");
    let said = server.command(&["reload"]).unwrap_err();
    assert!(said.contains("cannot listen on") && said.contains("in use"), "{said}");
    assert_eq!(addresses(), all);
    let mut idle = Client::connect(all[3].parse().unwrap());
    assert_eq!(idle.ask(&Request::get("/which")).text(), "second");
    write(one, "");
    assert_eq!(reload(&server), "reloaded\n");
    assert_eq!(addresses(), std::slice::from_ref(&first));
    assert!(wait::until(LIMIT, || idle.is_closed()));
    for gone in [&all[1], &all[3]] {
        assert!(std::net::TcpStream::connect(gone).is_err(), "{gone}");
    }
    assert!(!socket.exists());
    assert_eq!(
        (ask(&first, "/which").as_str(), ask(&first, "/ok.php").as_str()),
        ("first", "ok 127.0.0.1")
    );
}
