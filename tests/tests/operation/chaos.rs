//! Workers killed at random under load: no wrong byte, no hang, no growing memory.

use rustix::process::Signal;
use sendoff_tests::{
    Broken, Client, LIMIT, Progress, Request, Server, Site, pattern, processes, wait,
};
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};

const CLIENTS: u64 = 8;

/// The load and the rate of kills.
struct Storm {
    requests: u64,
    /// Number of requests per killed worker. Every third worker is stopped first, and killed when
    /// the next one is due.
    per_kill: u64,
    mode: Mode,
}

/// The way in which responses leave, and the kind of worker that makes them.
#[derive(Clone, Copy)]
enum Mode {
    /// A delivery mode.
    Delivery(&'static str),
    /// Workers that boot once, in worker mode.
    Booted,
}

impl Storm {
    fn writes_to_clients(&self) -> bool {
        matches!(self.mode, Mode::Booted | Mode::Delivery("direct" | "auto"))
    }

    fn name(&self) -> &'static str {
        match self.mode {
            Mode::Delivery(name) => name,
            Mode::Booted => "worker mode",
        }
    }
}

/// In worker mode one script includes all pages, and keeps a file from its first request on. (Files
/// that a script reads before that are no lazy strings: the worker does not know yet that files may
/// be handed over.)
const RUNNER: &str = "<?php ignore_user_abort(true); \
    $run = static function () { static $kept; $kept ??= file_get_contents('file'); include __DIR__ . $_SERVER['PATH_INFO']; }; \
    while (sendoff_handle_request($run)) {}";

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
    site.write("run.php", RUNNER);
    site.write("kept.php", "<?php echo 'n=', $_GET['n'], ' ', $kept;");
    site.write(
        "session.php",
        "<?php session_start(); $_SESSION['n'] ??= $_GET['n']; echo 'n=', $_SESSION['n'], ' ', strlen($kept);",
    );
    site.write(
        "upload.php",
        "<?php echo $_POST['note'], ' ', $_FILES['file']['size'], file_get_contents($_FILES['file']['tmp_name']);",
    );
    site.write("file", pattern(1, 200_000));
    site
}

/// As [`exchange`], in worker mode; some requests use the file that the script keeps, sessions and
/// uploads.
fn booted_exchange(number: u64, file: &[u8]) -> (Request, Vec<u8>) {
    let get = |page: &str| Request::get(&format!("/run.php/{page}?n={number}"));
    match number % 9 {
        0 => (get("kept.php"), [format!("n={number} ").as_bytes(), file].concat()),
        4 => (
            get("session.php").header("Cookie", &format!("PHPSESSID=user{number}")),
            format!("n={number} {}", file.len()).into_bytes(),
        ),
        8 => {
            let body = pattern(number, usize::try_from(number * 7919 % 300_000).unwrap());
            let told = [format!("a note {}", body.len()).as_bytes(), &body].concat();
            (Request::upload("/run.php/upload.php", "file", "a", &body), told)
        }
        _ => exchange(number, "/run.php", file),
    }
}

/// A request, and the only correct body with status 200.
fn exchange(number: u64, before: &str, file: &[u8]) -> (Request, Vec<u8>) {
    let get = |page: &str| Request::get(&format!("{before}/{page}?n={number}"));
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
            (Request::post(&format!("{before}/echo.php"), "text/plain", body.clone()), body)
        }
    }
}

/// Sends requests and checks the responses. Returns the number of failures that a worker's death
/// explains.
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
        let (request, expected) = match storm.mode {
            Mode::Booted => booted_exchange(number, file),
            Mode::Delivery(_) => exchange(number, "", file),
        };
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
            // The worker had written the whole previous response and died before it could report
            // that: the connection is closed after it.
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
        // Compares start times: a list of children may lack running children (proc_pid_task(5)).
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
    let &Storm { requests: total, per_kill, mode } = storm;
    let name = storm.name();
    let site = site();
    let script = site.path("run.php").display().to_string();
    let uploads = site.folder("uploads");
    let (in_uploads, in_sessions) = (
        format!("upload_tmp_dir={}", uploads.display()),
        format!("session.save_path={}", site.folder("sessions").display()),
    );
    let more = match mode {
        Mode::Delivery(delivery) => ["--delivery", delivery],
        Mode::Booted => ["--php-worker", &script],
    };
    let options = ["--threads", "2", "--php-ini", &in_uploads, "--php-ini", &in_sessions];
    let server = Server::start(site.root(), &[&options[..], &more].concat());
    let file = pattern(1, 200_000);
    let run = |total| {
        let next = AtomicU64::new(0);
        let progress = Progress::new(total, &format!("requests, {name},"));
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
    let mappings = || fs::read_to_string(format!("/proc/{front}/maps")).unwrap().lines().count();
    // Uploads that were sent back: handed-over files that are gone are kept for up to a minute.
    let is_kept = |target: &String| target.contains("/uploads/") && target.ends_with(" (deleted)");
    let count = || processes::descriptors(front).iter().filter(|target| !is_kept(target)).count();
    let at_first = count();
    // A first, shorter run allocates the memory that the server needs in any case.
    let (kills_at_first, _) = run(total / 10);
    let memory = processes::private_memory(front);
    // Waits for the links of all four workers: some workers have just been killed.
    assert!(wait::until(LIMIT, || count() >= at_first), "{} of {at_first}", count());
    let descriptors = count().max(at_first);
    let mapped = mappings();
    let (kills, lost) = run(total);
    println!("{name}: {total} requests, {kills} workers killed, {lost} requests lost");
    // A worker dies with the one request it has.
    assert!(lost <= kills, "{lost} requests lost with {kills} workers");
    assert_eq!(server.front(), front, "the front itself must not fall");
    assert!(wait::until(LIMIT, || server.workers().len() == 4), "{:?}", server.workers());
    let fewer = wait::until(LIMIT, || count() <= descriptors + 8);
    assert!(fewer, "{descriptors} descriptors became {:#?}", processes::descriptors(front));
    assert!(mappings() <= mapped + 64, "{mapped} mappings became {}", mappings());
    let left: Vec<_> = fs::read_dir(&uploads).unwrap().map(|entry| entry.unwrap().path()).collect();
    // PHP's temporary file of an upload stays if its process is killed, as under php-fpm, also if the
    // response has left.
    assert!(left.len() as u64 <= kills_at_first + kills, "{left:?}");
    expect_leases_of_the_living(&server, &site, mode);
    let grown = processes::private_memory(front).saturating_sub(memory);
    assert!(grown < 16 << 20, "the front grew by {} KB", grown >> 10);
}

/// Expects that all leases on the site's file belong to running workers. In worker mode, workers
/// that have served a request keep the file.
fn expect_leases_of_the_living(server: &Server, site: &Site, mode: Mode) {
    let inode = format!(":{}", fs::metadata(site.path("file")).unwrap().ino());
    let holders = || -> HashSet<u32> {
        let locks = fs::read_to_string("/proc/locks").unwrap();
        let fields = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let leases = fields.filter(|f| f.get(1) == Some(&"LEASE") && f[5].ends_with(&inode));
        leases.map(|lease| lease[4].parse().unwrap()).collect()
    };
    let are_right = || {
        let living = server.workers().into_iter().collect::<HashSet<_>>();
        let holders = holders();
        holders.is_subset(&living) && (matches!(mode, Mode::Delivery(_)) || !holders.is_empty())
    };
    assert!(wait::until(LIMIT, are_right), "{:?}, {:?}", holders(), server.workers());
}

#[test]
fn two_thousand_requests() {
    chaos(&Storm { requests: 2_000, per_kill: 100, mode: Mode::Delivery("auto") });
}

#[test]
fn two_thousand_requests_in_worker_mode() {
    chaos(&Storm { requests: 2_000, per_kill: 100, mode: Mode::Booted });
}

#[test]
#[ignore = "heavy: make test-heavy"]
fn a_hundred_thousand_requests() {
    chaos(&Storm { requests: 100_000, per_kill: 100, mode: Mode::Delivery("auto") });
}

#[test]
#[ignore = "heavy: make test-heavy"]
fn ten_thousand_kills() {
    for delivery in ["relay", "region", "direct", "auto"] {
        chaos(&Storm { requests: 25_000, per_kill: 10, mode: Mode::Delivery(delivery) });
    }
}

#[test]
#[ignore = "heavy: make test-heavy"]
fn ten_thousand_kills_in_worker_mode() {
    chaos(&Storm { requests: 100_000, per_kill: 10, mode: Mode::Booted });
}
