//! The same responses in every delivery mode: the bytes on the wire must not depend on their way.

use sendoff_tests::{
    Broken, Client, Framing, LIMIT, Progress, Request, Response, Server, Site, load, processes,
    wait,
};
use std::time::{Duration, Instant};

const MODES: [&str; 4] = ["relay", "region", "direct", "auto"];

const MB: usize = 1 << 20;

/// `n` bytes in pieces of `piece` (0: in one piece), flushed after each piece with `flush`,
/// announced with `length`.
const MADE: &str = r"<?php
$n = (int) $_GET['n'];
$body = substr(str_repeat('sixty-three bytes and a line feed are what this line is made of' . chr(10), intdiv($n, 64) + 1), 0, $n);
header('X-Test: made');
if (isset($_GET['length'])) header('Content-Length: ' . $n);
if (isset($_GET['status'])) http_response_code((int) $_GET['status']);
$piece = (int) ($_GET['piece'] ?? 0) ?: max(1, $n);
for ($at = 0; $at < $n; $at += $piece) {
    echo substr($body, $at, $piece);
    if (isset($_GET['flush'])) { if (ob_get_level()) ob_flush(); flush(); }
}
if (isset($_GET['file'])) { echo file_get_contents('file'); echo substr($body, 0, 100000); }
if (isset($_GET['fatal'])) undefined_function();
";

fn made(n: usize) -> Vec<u8> {
    let line = b"sixty-three bytes and a line feed are what this line is made of\n";
    line.iter().copied().cycle().take(n).collect()
}

fn site() -> Site {
    let site = Site::with("made.php", MADE);
    site.write("quick.php", "<?php echo 'quick';");
    site.write("file", made(300_000));
    site
}

fn serve(site: &Site, mode: &str, more: &[&str]) -> Server {
    let options = ["--delivery", mode, "--php-ini", "memory_limit=512M"];
    Server::start(site.root(), &[&options[..], more].concat())
}

/// The parts of a response that must be equal: status, fields without the date, framing, body. The
/// framing of a response with a file is left out: where the file is copied, its length is not known
/// early enough.
fn facts(response: &Response, has_file: bool) -> (u16, Vec<(String, String)>, Framing, usize) {
    let mut fields = response.head.headers.clone();
    let differ: &[&str] =
        if has_file { &["date", "content-length", "transfer-encoding"] } else { &["date"] };
    fields.retain(|(name, _)| !differ.iter().any(|other| name.eq_ignore_ascii_case(other)));
    let framing = if has_file { Framing::None } else { response.framing };
    (response.status(), fields, framing, response.body.len())
}

/// Sends the same request to every mode, and expects equal responses with this body.
fn same_everywhere(servers: &[Server], requests: &[(Request, Option<Vec<u8>>)]) {
    for (request, expected) in requests {
        let line = String::from_utf8_lossy(&request.bytes()).lines().next().unwrap().to_owned();
        let first = servers[0].ask(request);
        if let Some(expected) = expected {
            assert!(first.body == *expected, "{line}: {} gets other bytes", MODES[0]);
        }
        for (server, mode) in servers.iter().zip(MODES).skip(1) {
            let response = server.ask(request);
            let has_file = line.contains("file=");
            assert_eq!(facts(&response, has_file), facts(&first, has_file), "{line}: {mode}");
            assert!(response.body == first.body, "{line}: {mode} gets other bytes");
        }
        if !line.contains("HTTP/1.0") {
            for (server, mode) in servers.iter().zip(MODES) {
                same_over_http2(&line, mode, &first, server.http2().try_ask(request));
            }
        }
    }
}

/// Only framing differs there, and the case of names.
fn same_over_http2(line: &str, mode: &str, one: &Response, two: Result<Response, Broken>) {
    let two = two.unwrap_or_else(|broken| panic!("{line}: {mode} over HTTP/2: {broken:?}"));
    let facts = |response: &Response| {
        let own = ["date", "content-length", "transfer-encoding", "connection"];
        let fields = response.head.headers.iter();
        let fields = fields.map(|(name, value)| (name.to_lowercase(), value.clone()));
        let mut fields: Vec<_> = fields.filter(|(name, _)| !own.contains(&&name[..])).collect();
        fields.sort();
        (response.status(), fields)
    };
    assert_eq!(facts(one), facts(&two), "{line}: {mode} over HTTP/2");
    assert!(one.body == two.body, "{line}: {mode} gets other bytes over HTTP/2");
}

#[test]
fn sizes_pieces_and_framing() {
    let site = site();
    let servers = MODES.map(|mode| serve(&site, mode, &[]));
    let mut requests = Vec::new();
    let edges = [0, 1, 4095, 4096, 16_384, 32_768, 65_528, 65_536, 131_072, MB, 5 * MB];
    for n in edges.into_iter().flat_map(|n| [n, n + 1]) {
        for more in
            ["", "&length=1", "&piece=1000", "&piece=20000&length=1", "&piece=70000&flush=1"]
        {
            let target = format!("/made.php?n={n}{more}");
            requests.push((Request::get(&target), Some(made(n))));
        }
        let target = format!("/made.php?n={n}");
        requests.push((Request::new("HEAD", &target), Some(Vec::new())));
        requests.push((Request::get(&target).http10(), Some(made(n))));
    }
    same_everywhere(&servers, &requests);
}

#[test]
fn statuses_errors_and_files_in_between() {
    let site = site();
    for buffering in ["output_buffering=0", "output_buffering=4096", "output_buffering=On"] {
        let servers = MODES.map(|mode| serve(&site, mode, &["--php-ini", buffering]));
        let page = |query: &str| (Request::get(&format!("/made.php?{query}")), None);
        same_everywhere(
            &servers,
            &[
                page("n=200000&status=404"),
                page("n=200000&status=500&length=1"),
                page("n=0&status=204"),
                page("n=100000&status=304"),
                page("n=100&fatal=1"),
                page("n=300000&fatal=1"),
                page("n=300000&file=1"),
                page("n=300000&piece=9999&flush=1&file=1"),
                page("n=10&file=1&length=0"),
                (Request::post("/made.php?n=100000", "text/plain", made(200_000)), None),
            ],
        );
    }
}

/// Responses on one connection come in order, whether the front or a worker writes them.
#[test]
fn kept_and_pipelined_connections() {
    let site = site();
    for mode in MODES {
        let server = serve(&site, mode, &[]);
        let mut client = server.connect();
        let sizes = [100, 200_000, 0, 70_000, 3, 2_000_000, 40_000];
        let get = |n: &usize| Request::get(&format!("/made.php?n={n}")).bytes();
        for _ in 0..4 {
            client.send(sizes.iter().flat_map(get).collect::<Vec<u8>>());
            for n in sizes {
                assert!(client.response("GET").expect(200) == made(n), "{mode}: {n}");
            }
        }
    }
}

/// A client that leaves after any number of bytes loses its own response; all others are complete.
#[test]
fn clients_that_leave_in_the_middle() {
    let site = site();
    for mode in MODES {
        let server = serve(&site, mode, &[]);
        for round in 0..60_usize {
            let mut client = Client::connect_narrow(server.addr(), 16 * 1024);
            client.send(Request::get("/made.php?n=3000000&piece=50000").bytes());
            let mut left = round * round * 300;
            while left > 0 && client.read_some(left) {
                left = left.saturating_sub(16 * 1024);
            }
            drop(client);
            if round % 10 == 0 {
                let page = server.ask(&Request::get("/made.php?n=1000000"));
                assert!(page.expect(200) == made(1_000_000), "{mode}");
            }
        }
    }
}

#[test]
#[ignore = "heavy: make test-heavy"]
fn sixty_four_megabytes() {
    let site = site();
    let servers = MODES.map(|mode| serve(&site, mode, &[]));
    let _progress = Progress::new(0, "pages of 64 MB");
    let n = 64 * MB;
    let body = made(n);
    let pages = ["", "&piece=100000", "&piece=1000000&flush=1", "&length=1"]
        .map(|more| (Request::get(&format!("/made.php?n={n}{more}")), Some(body.clone())));
    same_everywhere(&servers, &pages);
}

/// 1,000 clients read 8 MB each at 1 KB/s from four workers: quick pages stay quick, memory stays
/// small.
#[test]
#[ignore = "heavy: make test-heavy"]
fn a_thousand_slow_clients() {
    const CLIENTS: usize = 1000;
    let site = site();
    let body = made(8 * MB);
    for mode in MODES {
        let server = serve(&site, mode, &["--send-timeout", "600"]);
        let _progress = Progress::new(0, &format!("{CLIENTS} slow clients, {mode}"));
        let before = processes::private_memory(server.front());
        let mut clients: Vec<Client> = Vec::new();
        for _ in 0..CLIENTS {
            let mut client = Client::connect_narrow(server.addr(), 4096);
            client.send(Request::get("/made.php?n=8388608").header("Connection", "close").bytes());
            clients.push(client);
        }
        // Requests are answered in order: when this page comes, all earlier clients have been
        // served.
        let (mut last, since) = (server.connect(), Instant::now());
        last.send(Request::get("/quick.php").bytes());
        assert!(wait::until(6 * LIMIT, || !last.is_silent()), "{mode}: nobody was served");
        assert_eq!(last.response("GET").text(), "quick");
        let served = since.elapsed();
        for _second in 0..3 {
            for client in &mut clients {
                client.read_some(1024);
            }
            let times = load::times(server.addr(), 200, &Request::get("/quick.php"));
            let slowest = load::percentile_99(&times);
            println!(
                "{mode}: all served after {served:?}, then 99 of 100 quick pages in {slowest:?}"
            );
            assert!(slowest < Duration::from_millis(100), "{mode}: quick pages took {slowest:?}");
        }
        let held = processes::private_memory(server.front()).saturating_sub(before);
        println!("{mode}: the front grew by {} MB", held >> 20);
        assert!(held < 400 << 20, "{mode}: the front grew by {} MB", held >> 20);
        for mut client in clients.into_iter().step_by(50) {
            match client.try_response("GET") {
                Ok(response) => assert!(response.expect(200) == body, "{mode}: other bytes"),
                Err(Broken::Cut(part)) => panic!("{mode}: cut after {} bytes", part.body.len()),
                Err(broken) => panic!("{mode}: {broken:?}"),
            }
        }
    }
}
