//! Reloads and upgrades under requests of every kind: each request that was sent is answered, and
//! logged once.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;
use sendoff_tests::{
    Client, LIMIT, Progress, Request, Server, Site, load, pattern, processes, sendoff, wait,
};

/// Pauses between two requests of a client that keeps its connection. The connection is mostly
/// idle, and the server closes it during a pause.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(2), Duration::from_millis(20), Duration::from_millis(300)];

/// Bytes per second of a slow client. Its file takes longer than an upgrade.
const SLOW_RATE: usize = 1_000_000;
const SLOW_SIZE: usize = 4_000_000;

/// State that all clients share.
struct Load {
    server: Server,
    expected: Vec<(&'static str, Vec<u8>)>,
    slow: Vec<u8>,
    stop: AtomicBool,
    answered: AtomicUsize,
    /// Connections that were closed while their clients had nothing to ask; they connect again.
    closed_idle: AtomicUsize,
}

/// Stops the clients when its thread panics.
struct Stop<'l>(&'l AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Relaxed);
        }
    }
}

/// The process ids of successive servers. Servers that still run at the end are killed, also when
/// the thread panics.
struct Servers(Vec<u32>);

impl Drop for Servers {
    fn drop(&mut self) {
        for pid in self.0.iter().filter(|pid| processes::runs(**pid)) {
            processes::signal(*pid, Signal::KILL);
        }
    }
}

impl Load {
    /// Runs a client. If it fails, all other clients stop as well.
    fn run(&self, client: impl FnOnce()) {
        let _stop = Stop(&self.stop);
        client();
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Relaxed)
    }

    fn ask(&self, client: &mut Client, (target, body): &(&str, Vec<u8>), who: &str) -> bool {
        let response = match client.try_ask(&Request::get(target)) {
            Ok(response) => response,
            Err(broken) => panic!("{who} lost GET {target}: {broken:?}\n{}", self.server.log()),
        };
        assert!(response.expect(200) == body, "{who}: {target} has other bytes");
        self.answered.fetch_add(1, Relaxed);
        !response.head.closes()
    }

    /// Asks on a connection for as long as the server keeps it. A request that was not sent before
    /// the server closed is no loss.
    fn keep(&self, pause: Duration, who: &str) {
        let mut client = self.server.connect();
        for page in self.expected.iter().cycle() {
            if !self.goes_on() {
                return;
            }
            if !client.is_silent() {
                self.closed_idle.fetch_add(1, Relaxed);
                client = self.server.connect();
            }
            if !self.ask(&mut client, page, who) {
                client = self.server.connect();
            }
            // The pace of the client; no event is awaited here.
            sleep(pause);
        }
    }

    /// Asks on a connection of its own each time.
    fn connect_anew(&self) {
        for page in self.expected.iter().cycle() {
            if !self.goes_on() {
                return;
            }
            self.ask(&mut self.server.connect(), page, "a new connection");
        }
    }

    /// Reads a file and a page slowly, one after the other.
    fn read_slowly(&self) {
        for target in ["/slow.bin", "/slow.php"].into_iter().cycle() {
            if !self.goes_on() {
                return;
            }
            let (addr, request) = (self.server.addr(), Request::get(target));
            load::read_slowly(addr, 2, &request, &self.slow, SLOW_RATE);
            self.answered.fetch_add(2, Relaxed);
        }
    }

    /// Waits until further requests have been answered, whatever has just changed.
    fn await_more(&self) {
        let before = self.answered.load(Relaxed);
        let more = || self.answered.load(Relaxed) > before + 50;
        let come = wait::until(LIMIT, || more() || !self.goes_on());
        assert!(come && self.goes_on(), "no more answers\n{}", self.server.log());
    }
}

fn config(site: &Site, memory: usize) -> PathBuf {
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 2\naccess_log = '{}'\n\
         [[pool]]\nname = 'www'\nworkers = 4\nphp_value.memory_limit = '{memory}M'\n\
         [[site]]\nroot = 'root'\n",
        site.outside("access.log").display()
    );
    site.write_at(site.outside("sendoff.toml"), text)
}

/// A command to the server that has taken over last.
fn command(site: &Site, load: &Load, command: &str) -> String {
    let port = load.server.addr().port().to_string();
    sendoff(site.root(), &[command, "--listen", &port]).unwrap()
}

fn reload(site: &Site, load: &Load, number: usize) {
    // Every second one changes the pool, so that its workers are replaced.
    let changed = number % 2 == 1;
    config(site, 128 + number / 2 + usize::from(changed));
    let said = command(site, load, "reload");
    let expected = if changed { "reloaded, with new workers in 1 pool\n" } else { "reloaded\n" };
    assert_eq!(said, expected);
}

/// The process id of the new server.
fn upgrade(site: &Site, load: &Load) -> u32 {
    let said = command(site, load, "upgrade");
    let rest = said.strip_prefix("upgraded: process ").unwrap_or_else(|| panic!("{said}"));
    rest.split(' ').next().unwrap().parse().unwrap()
}

/// A reload is followed by an upgrade every `reloads / upgrades` times.
fn lose_nothing(reloads: usize, upgrades: usize) {
    let site = Site::waiting();
    let (small, large) = (pattern(1, 2_000), pattern(2, 300_000));
    let slow = pattern(3, SLOW_SIZE);
    for (name, content) in [("small.bin", &small), ("large.bin", &large), ("slow.bin", &slow)] {
        site.write(name, content);
    }
    site.write("read.php", "<?php echo file_get_contents('large.bin');");
    site.write("slow.php", "<?php echo file_get_contents('slow.bin');");
    let file = config(&site, 128);
    let server = Server::try_run_with(&file, site.root(), 4, 2).unwrap();
    let expected = vec![
        ("/small.bin", small),
        ("/ok.php", b"ok".to_vec()),
        ("/large.bin", large.clone()),
        ("/read.php", large),
    ];
    let load = Load {
        server,
        expected,
        slow,
        stop: AtomicBool::new(false),
        answered: AtomicUsize::new(0),
        closed_idle: AtomicUsize::new(0),
    };
    let progress = Progress::new((reloads + upgrades) as u64, "changes");
    let mut servers = Servers(vec![load.server.pid()]);
    std::thread::scope(|scope| {
        let _stop = Stop(&load.stop);
        for _ in 0..2 {
            scope.spawn(|| load.run(|| load.keep(Duration::ZERO, "a busy connection")));
            scope.spawn(|| load.run(|| load.connect_anew()));
        }
        for pause in PAUSES.into_iter().cycle().take(3 * PAUSES.len()) {
            let load = &load;
            let who = format!("a connection idle for {pause:?}");
            scope.spawn(move || load.run(|| load.keep(pause, &who)));
        }
        scope.spawn(|| load.run(|| load.read_slowly()));
        load.await_more();
        for number in 0..reloads {
            reload(&site, &load, number);
            progress.advance();
            load.await_more();
            if (number + 1) % (reloads / upgrades) == 0 {
                servers.0.push(upgrade(&site, &load));
                progress.advance();
                load.await_more();
            }
        }
        load.stop.store(true, Relaxed);
    });
    let Load { server, answered, closed_idle, .. } = load;
    let (answered, closed_idle) = (answered.into_inner(), closed_idle.into_inner());
    eprintln!("{answered} requests answered, {closed_idle} idle connections closed");
    let (last, old) = servers.0.split_last().unwrap();
    let ended = || !old.iter().any(|old| processes::runs(*old));
    assert!(wait::until(LIMIT, ended), "{old:?}: {}", server.log());
    processes::signal(*last, Signal::TERM);
    assert!(wait::until(LIMIT, || !processes::runs(*last)));
    let (status, said) = server.await_end();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(!said.contains("ERROR") && !said.contains("WARN"), "{said}");
    let logged = fs::read_to_string(site.outside("access.log")).unwrap();
    assert_eq!(logged.lines().count(), answered);
    assert!(logged.lines().all(|line| line.contains(" 200 ")));
}

#[test]
fn reloads_and_upgrades_at_full_load_lose_no_request() {
    lose_nothing(4, 2);
}

#[test]
#[ignore = "heavy: 50 reloads and 10 upgrades at full load"]
fn fifty_reloads_and_ten_upgrades_at_full_load_lose_no_request() {
    lose_nothing(50, 10);
}
