//! Workers killed at random under load: no wrong byte, no hang, no growing memory.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

use rustix::process::Signal;
use sendoff_tests::{
    Broken, Client, LIMIT, Progress, Request, Server, Site, pattern, processes, wait,
};
use std::sync::atomic::{AtomicU64, Ordering};

const CLIENTS: u64 = 8;

/// The load and the rate of kills.
struct Storm {
    requests: u64,
    /// One worker is killed per this number of requests; every third one is stopped first, and killed when the next is due.
    per_kill: u64,
    delivery: &'static str,
}

impl Storm {
    fn writes_to_clients(&self) -> bool {
        matches!(self.delivery, "direct" | "auto")
    }
}

fn site() -> Site {
    let site = Site::with("n.php", "<?php echo 'n=', $_GET['n'];");
    site.write("echo.php", "<?php echo file_get_contents('php://input');");
    site.write(
        "file.php",
        "<?php echo 'n=', $_GET['n'], ' '; echo file_get_contents('file'); echo ' end';",
    );
    site.write(
        "made.php",
        "<?php for ($i = 0; $i < 100; $i++) echo str_repeat(chr(65 + $_GET['n'] % 26), 1000);",
    );
    site.write("large.php", "<?php echo str_repeat(chr(65 + $_GET['n'] % 26), 1500000);");
    site.write("file", pattern(1, 200_000));
    site
}

/// A request, and the only correct body with status 200.
fn exchange(number: u64, file: &[u8]) -> (Request, Vec<u8>) {
    let get = |page: &str| Request::get(&format!("/{page}?n={number}"));
    match number % 5 {
        0 | 1 => (get("n.php"), format!("n={number}").into_bytes()),
        2 => (get("file.php"), [format!("n={number} ").as_bytes(), file, b" end"].concat()),
        3 => {
            let letter = b'A' + u8::try_from(number % 26).unwrap();
            match number % 40 {
                3 => (get("large.php"), vec![letter; 1_500_000]),
                _ => (get("made.php"), vec![letter; 100_000]),
            }
        }
        _ => {
            let length = usize::try_from(number * 7919 % 150_000).unwrap();
            let body = pattern(number, length);
            (Request::post("/echo.php", "text/plain", body.clone()), body)
        }
    }
}

/// Sends requests and checks the responses; returns the number of requests that failed in a way that a worker's death explains.
fn client(
    server: &Server,
    (next, progress): (&AtomicU64, &Progress),
    storm: &Storm,
    total: u64,
    file: &[u8],
) -> u64 {
    let mut connection = server.connect();
    let mut lost = 0;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= total {
            return lost;
        }
        let (request, expected) = exchange(number, file);
        progress.advance();
        let closes = match connection.try_ask(&request) {
            Ok(response) if response.status() == 502 => {
                lost += 1;
                response.head.closes()
            }
            Ok(response) => {
                assert!(response.expect(200) == expected, "request {number}: wrong bytes");
                response.head.closes()
            }
            Err(Broken::Cut(part)) => {
                assert!(
                    expected.starts_with(&part.body),
                    "request {number}: wrong bytes before the cut"
                );
                lost += 1;
                true
            }
            // The worker had written the whole response before and died before it could say so: the connection is closed
            // behind it.
            Err(Broken::Closed) if storm.writes_to_clients() => {
                lost += 1;
                true
            }
            Err(broken) => panic!("request {number}: {broken:?}"),
        };
        if closes {
            connection = Client::connect(server.addr());
        }
    }
}

/// Kills workers while requests are sent; returns the number of killed workers.
fn killer(server: &Server, next: &AtomicU64, total: u64, per_kill: u64) -> u64 {
    let mut kills = 0;
    let mut stopped: Option<(u32, Option<u64>)> = None;
    loop {
        let due = (kills + 1) * per_kill;
        wait::until(LIMIT, || next.load(Ordering::Relaxed) >= due.min(total));
        // By its start time: a list of children may lack some that are there (proc_pid_task(5)).
        let is_same = |&(victim, started): &(u32, _)| processes::started(victim) == started;
        if let Some((victim, _)) = stopped.take().filter(is_same) {
            processes::signal(victim, Signal::KILL);
        }
        if due >= total {
            return kills;
        }
        let workers = server.workers();
        let chosen = usize::try_from(kills * 31 % 7).unwrap() % workers.len().max(1);
        if let Some(&victim) = workers.get(chosen) {
            if kills % 3 == 2 {
                processes::signal(victim, Signal::STOP);
                stopped = Some((victim, processes::started(victim)));
            } else {
                processes::signal(victim, Signal::KILL);
            }
        }
        kills += 1;
    }
}

fn chaos(storm: &Storm) {
    let &Storm { requests: total, per_kill, delivery } = storm;
    let site = site();
    let options = ["--threads", "2", "--delivery", delivery];
    let server = Server::start(site.root(), &options);
    let file = pattern(1, 200_000);
    let run = |total| {
        let next = AtomicU64::new(0);
        let progress = Progress::new(total, &format!("requests, {delivery},"));
        std::thread::scope(|scope| {
            let killer = scope.spawn(|| killer(&server, &next, total, per_kill));
            let clients: Vec<_> = (0..CLIENTS)
                .map(|_| scope.spawn(|| client(&server, (&next, &progress), storm, total, &file)))
                .collect();
            let lost: u64 = clients.into_iter().map(|client| client.join().unwrap()).sum();
            (killer.join().unwrap(), lost)
        })
    };
    let front = server.front();
    let at_first = processes::descriptors(front).len();
    // A first, shorter run allocates what the server needs in any case.
    run(total / 10);
    let memory = processes::private_memory(front);
    // Those of four workers: some have just been killed.
    let count = || processes::descriptors(front).len();
    assert!(wait::until(LIMIT, || count() >= at_first), "{} of {at_first}", count());
    let descriptors = count().max(at_first);
    let (kills, lost) = run(total);
    println!("{delivery}: {total} requests, {kills} workers killed, {lost} requests lost");
    // A worker dies with the one request it has.
    assert!(lost <= kills, "{lost} requests lost with {kills} workers");
    assert_eq!(server.front(), front, "the front itself must not fall");
    assert!(wait::until(LIMIT, || server.workers().len() == 4), "{:?}", server.workers());
    let fewer = wait::until(LIMIT, || count() <= descriptors + 8);
    assert!(fewer, "{descriptors} descriptors became {:#?}", processes::descriptors(front));
    let grown = processes::private_memory(front).saturating_sub(memory);
    assert!(grown < 16 << 20, "the front grew by {} KB", grown >> 10);
}

#[test]
fn two_thousand_requests() {
    chaos(&Storm { requests: 2_000, per_kill: 100, delivery: "auto" });
}

#[test]
#[ignore = "heavy: make test-heavy"]
fn a_hundred_thousand_requests() {
    chaos(&Storm { requests: 100_000, per_kill: 100, delivery: "auto" });
}

#[test]
#[ignore = "heavy: make test-heavy"]
fn ten_thousand_kills() {
    for delivery in ["relay", "region", "direct", "auto"] {
        chaos(&Storm { requests: 25_000, per_kill: 10, delivery });
    }
}
