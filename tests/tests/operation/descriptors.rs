//! A small limit of open files is divided, and exhausting it harms no response.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, getuid, prlimit};
use sendoff_tests::{Client, Http2, LIMIT, Request, Server, Site, pattern, processes, wait};

/// A client that has received nothing for this long has not been accepted.
const SILENCE: Duration = Duration::from_secs(1);

/// Slow clients together get a gigabyte.
const SLOW_LIMIT: Duration = Duration::from_secs(180);

/// A server with at most `descriptors` open files in each process.
fn limited(site: &Site, options: &[&str], descriptors: u32) -> Server {
    match Server::try_start_limited(site.root(), options, descriptors) {
        Ok(server) => server,
        Err(failed) => panic!("sendoff did not start with {descriptors} descriptors: {failed:#?}"),
    }
}

/// 64 clients call `ask` together for each number below `requests`. Each of the server's 32 workers
/// has two links.
fn from_64_clients(
    site: &Site,
    descriptors: u32,
    requests: usize,
    ask: impl Fn(&mut Client, usize) + Sync,
) {
    let server = limited(site, &["--workers", "32", "--threads", "2"], descriptors);
    let asked = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                let mut client = server.connect();
                loop {
                    let turn = asked.fetch_add(1, Ordering::Relaxed);
                    if turn >= requests {
                        return;
                    }
                    ask(&mut client, turn);
                }
            });
        }
    });
    let log = server.log();
    assert!(!log.contains("broken worker"), "{log}");
    assert_eq!(server.workers().len(), 32);
}

/// 64 clients request 128 files through 32 workers with two links each, on which 8,192 files could
/// be open.
fn hand_files_over(descriptors: u32) {
    const FILES: usize = 128;
    let site = Site::with("file.php", "<?php echo file_get_contents('f' . $_GET['n']);");
    let files: Vec<_> = (0..FILES).map(|n| pattern(n as u64, 100_000 + 800 * n)).collect();
    for (number, contents) in files.iter().enumerate() {
        site.write(&format!("f{number}"), contents);
    }
    from_64_clients(&site, descriptors, 2000, |client, turn| {
        let number = turn * 7 % FILES;
        let response = client.ask(&Request::get(&format!("/file.php?n={number}")));
        assert!(response.expect(200) == files[number], "file {number}");
    });
}

#[test]
fn many_workers_with_many_files_under_4096_descriptors() {
    hand_files_over(4096);
}

#[test]
fn many_workers_with_many_files_under_1024_descriptors() {
    hand_files_over(1024);
}

/// Each page consists of 60 files, and the 64 links together could need several times the limit.
fn hand_pages_of_files_over(descriptors: u32) {
    const FILES: usize = 120;
    let site = Site::with(
        "page.php",
        "<?php for ($n = 0; $n < 60; $n++) echo file_get_contents('f' . ($_GET['n'] + 2 * $n) % 120);",
    );
    let files: Vec<_> = (0..FILES).map(|n| pattern(n as u64, 66_000 + n)).collect();
    for (number, contents) in files.iter().enumerate() {
        site.write(&format!("f{number}"), contents);
    }
    from_64_clients(&site, descriptors, 300, |client, first| {
        let response = client.ask(&Request::get(&format!("/page.php?n={first}")));
        let numbers = (0..60).map(|n| (first + 2 * n) % FILES);
        let expected: Vec<_> = numbers.map(|n| &*files[n]).collect();
        assert!(response.expect(200) == expected.concat(), "page {first}");
    });
}

#[test]
fn pages_of_many_files_under_1024_descriptors() {
    hand_pages_of_files_over(1024);
}

#[test]
fn the_connection_that_is_idle_longest_makes_room_for_a_new_one() {
    let site = Site::with("ok.php", "<?php echo 'ok';");
    let server = limited(&site, &[], 256);
    let mut idle = Vec::new();
    for _ in 0..300 {
        let mut client = server.connect();
        assert_eq!(client.ask(&Request::get("/ok.php")).text(), "ok");
        idle.push(client);
    }
    let left = processes::connections(server.front());
    assert!((16..256).contains(&left), "{left}");
    assert!(idle[0].is_closed());
    let last = idle.last_mut().unwrap();
    assert_eq!(last.ask(&Request::get("/ok.php")).text(), "ok");
}

#[test]
fn where_no_connection_is_idle_new_ones_wait_for_the_end_of_one() {
    let site = Site::with("ok.php", "<?php echo 'ok';");
    site.write("big", pattern(1, 8_000_000));
    let server = limited(&site, &[], 256);
    let mut busy = Vec::new();
    let mut waiting = loop {
        let mut client = Client::connect_narrow(server.addr(), 4096);
        client.send(Request::get("/big").bytes());
        if !wait::until(SILENCE, || !client.is_silent()) {
            break client;
        }
        assert!(busy.len() < 256);
        busy.push(client);
    };
    // Most descriptors that listeners and workers left were used.
    assert!(busy.len() >= 128, "{}", busy.len());
    drop(busy.pop());
    assert!(waiting.response("GET").expect(200) == pattern(1, 8_000_000));
    assert!(!server.log().contains("ERROR"), "{}", server.log());
}

#[test]
fn a_limit_that_is_too_small_is_an_error_that_says_so() {
    let site = Site::with("ok.php", "<?php echo 'ok';");
    for descriptors in [256, 64] {
        assert_eq!(limited(&site, &[], descriptors).page("/ok.php"), "ok");
    }
    let many = ["--workers", "32", "--threads", "2"];
    let Err(failed) = Server::try_start_limited(site.root(), &many, 100) else {
        panic!("it started")
    };
    assert!(failed.code.is_some_and(|code| code != 0), "{failed:?}");
    assert_eq!(failed.stderr.lines().count(), 1, "{failed:?}");
    assert!(failed.stderr.contains("a limit of 100 open files is too small"), "{failed:?}");
}

/// The page can neither go to a file nor stay in memory: its worker waits, as behind every server.
#[test]
fn a_slow_client_gets_its_page_where_no_spool_can_be_made() {
    let site = Site::with(
        "big.php",
        "<?php echo 'first'; ob_flush(); flush(); file_get_contents('pipe');
         echo str_repeat('0123456789', 400000);",
    );
    let pipe = site.fifo("pipe");
    // Only a process of the same user may be limited.
    let as_us: &[&str] = if getuid().is_root() { &["--user", "root"] } else { &[] };
    let server = Server::start(site.root(), &[&["--delivery", "relay"], as_us].concat());
    let mut client = Client::connect_narrow(server.addr(), 4096);
    client.send(Request::get("/big.php").bytes());
    let head = client.head().unwrap();
    assert_eq!(client.chunk(), b"first");
    let pid = Pid::from_raw(i32::try_from(server.front()).unwrap());
    let none = Rlimit { current: Some(3), ..getrlimit(Resource::Nofile) };
    let before = prlimit(pid, Resource::Nofile, none).unwrap();
    pipe.release();
    // The client reads nothing for longer than the front waits before it spools.
    assert!(!wait::until(SILENCE, || server.log().contains("cut short")), "{}", server.log());
    assert!(client.body_of(head, "GET").unwrap().body == b"0123456789".repeat(400_000));
    prlimit(pid, Resource::Nofile, before).unwrap();
}

/// Only a process of the same user may be limited.
fn as_us() -> &'static [&'static str] {
    if getuid().is_root() { &["--user", "root"] } else { &[] }
}

/// A client that has requested `big` and read only a little of it, so that its connection stays
/// open.
fn busy(server: &Server) -> Client {
    let mut client = Client::connect_narrow(server.addr(), 4096);
    client.send(Request::get("/big").bytes());
    client.head().unwrap();
    client
}

/// The front reads the response of another worker meanwhile, and loses no worker.
#[test]
fn a_file_that_is_handed_over_waits_for_a_descriptor() {
    const PAGE: &str = "<?php echo 'first'; ob_flush(); flush(); file_get_contents($_GET['pipe']);";
    let site = Site::with("file.php", &format!("{PAGE} echo file_get_contents('file');"));
    site.write("bytes.php", format!("{PAGE} echo 'ok';"));
    let contents = pattern(2, 1_000_000);
    site.write("file", &contents);
    site.write("big", pattern(1, 8_000_000));
    let pipes = ["one", "other"].map(|name| site.fifo(name));
    let options = [&["--workers", "2", "--delivery", "file"], as_us()].concat();
    let server = limited(&site, &options, 256);
    let workers = server.workers();
    // Their connections are more than half of the limit.
    let _busy: Vec<_> = (0..120).map(|_| busy(&server)).collect();
    let ask = |target: &str| {
        let mut client = server.connect();
        client.send(Request::get(target).bytes());
        let head = client.head().unwrap();
        assert_eq!(client.chunk(), b"first");
        (client, head)
    };
    let (mut client, head) = ask("/file.php?pipe=one");
    let (mut other, others_head) = ask("/bytes.php?pipe=other");
    let pid = Pid::from_raw(i32::try_from(server.front()).unwrap());
    let none = Rlimit { current: Some(3), maximum: Some(256) };
    let before = prlimit(pid, Resource::Nofile, none).unwrap();
    let [pipe, others_pipe] = pipes;
    pipe.release();
    assert!(!wait::until(2 * SILENCE, || !client.is_silent()), "{}", server.log());
    others_pipe.release();
    assert_eq!(other.body_of(others_head, "GET").unwrap().body, b"ok");
    prlimit(pid, Resource::Nofile, before).unwrap();
    assert!(client.body_of(head, "GET").unwrap().body == contents);
    let log = server.log();
    assert!(!log.contains("broken worker"), "{log}");
    assert_eq!(log.matches("a higher limit of open files").count(), 1, "{log}");
    assert_eq!(server.workers(), workers);
}

/// They were kept after a request, and can be opened anew.
#[test]
fn idle_connections_make_room_sooner_than_those_without_a_first_request() {
    let site = Site::with("ok.php", "<?php echo 'ok';");
    let server = limited(&site, &[], 256);
    let mut new: Vec<_> = (0..40).map(|_| server.connect()).collect();
    let mut kept = Vec::new();
    for _ in 0..100 {
        let mut client = server.connect();
        assert_eq!(client.ask(&Request::get("/ok.php")).text(), "ok");
        kept.push(client);
    }
    for client in &mut new {
        assert_eq!(client.ask(&Request::get("/ok.php")).text(), "ok");
    }
    assert!(kept[0].is_closed());
}

#[test]
fn a_connection_that_cannot_be_accepted_is_one_line_of_the_log() {
    let site = Site::with("ok.php", "<?php echo 'ok';");
    let server = limited(&site, as_us(), 256);
    let pid = Pid::from_raw(i32::try_from(server.front()).unwrap());
    let none = Rlimit { current: Some(3), maximum: Some(256) };
    let before = prlimit(pid, Resource::Nofile, none).unwrap();
    let mut client = server.connect();
    client.send(Request::get("/ok.php").bytes());
    assert!(!wait::until(SILENCE, || !client.is_silent()));
    prlimit(pid, Resource::Nofile, before).unwrap();
    assert_eq!(client.response("GET").text(), "ok");
    let log = server.log();
    assert_eq!(log.matches("a higher limit of open files").count(), 1, "{log}");
}

/// All clients ask before the first one reads, and read slowly: together they need more descriptors
/// than there are. (Each asks as soon as it is connected: on a busy machine, connections that stay
/// silent for a second make room for others.)
fn serve_slow_clients(descriptors: u32, clients: usize, options: &[&str]) {
    const FILES: usize = 100;
    let contents = pattern(7, 1_000_000);
    let site = Site::with("file.php", "<?php echo file_get_contents('f' . random_int(0, 99));");
    for number in 0..FILES {
        site.write(&format!("f{number}"), &contents);
    }
    let server = limited(&site, options, descriptors);
    let workers = server.workers();
    let request = Request::get("/file.php").header("Connection", "close").bytes();
    let ask = |_| {
        let mut client = Client::connect_narrow(server.addr(), 16 * 1024);
        client.send(&request);
        client
    };
    let mut open: Vec<_> = (0..clients).map(ask).collect();
    let (mut most, mut others) = (0, Vec::new());
    let are_served = wait::until(SLOW_LIMIT, || {
        most = most.max(processes::descriptors(server.front()).len());
        open.retain_mut(|client| {
            let is_open = client.read_some(10_000);
            if !is_open {
                match client.try_response("GET") {
                    Ok(got) if got.body == contents => {}
                    Ok(got) => others.push(format!("{} {}", got.status(), got.body.len())),
                    Err(error) => others.push(format!("{error:?}")),
                }
            }
            is_open
        });
        open.is_empty()
    });
    let log = server.log();
    assert!(are_served && others.is_empty(), "{}, {others:?}: {log}", open.len());
    assert!(!log.contains("broken worker"), "{log}");
    assert_eq!(server.workers(), workers);
    assert!(most * 32 < 31 * descriptors as usize, "{most} descriptors");
}

/// Clients with many streams that read nothing, each of which holds a file. Other clients find room.
#[test]
fn streams_leave_descriptors_to_other_clients() {
    const DESCRIPTORS: u32 = 512;
    let site = Site::with("small.txt", "small");
    for number in 0..600 {
        site.write(&format!("f{number}"), pattern(8, 100_000));
    }
    let server = limited(&site, &[], DESCRIPTORS);
    let mut held: Vec<_> = (0..8)
        .map(|client| {
            let mut stalled = Http2::connect(server.addr());
            let numbers = client * 75..client * 75 + 75;
            stalled.begin_all(numbers.map(|number| Request::get(&format!("/f{number}"))));
            stalled
        })
        .collect();
    let used = || processes::descriptors(server.front()).len();
    let is_scarce = || used() * 8 >= DESCRIPTORS as usize * 5;
    assert!(wait::until(LIMIT, is_scarce), "{} descriptors", used());
    assert!(used() * 8 < DESCRIPTORS as usize * 7, "{} descriptors", used());
    for _ in 0..20 {
        assert_eq!(server.page("/small.txt"), "small");
    }
    // Streams that waited are answered when others end.
    for stalled in &mut held {
        for response in stalled.end_all() {
            assert_eq!(response.expect(200), pattern(8, 100_000));
        }
    }
}

#[test]
fn slow_clients_under_256_descriptors() {
    serve_slow_clients(256, 250, &[]);
}

#[test]
fn slow_clients_under_1024_descriptors() {
    serve_slow_clients(1024, 900, &["--workers", "32", "--threads", "2"]);
}
