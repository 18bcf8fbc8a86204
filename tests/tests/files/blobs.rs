//! Constant strings of PHP programs, stored in the front and then sent by name: the client receives
//! the bytes of the unmodified runtime, even if a worker or the front ends in between.

use rustix::process::Signal;
use sendoff_tests::{Client, LIMIT, Pair, Request, Server, Site, processes, wait};
use std::fs;
use std::net::TcpStream;

/// opcache caches new scripts at once, and checks their time stamps in every request.
const OPCACHE: [&str; 2] = ["opcache.file_update_protection=0", "opcache.revalidate_freq=0"];

/// Text without `<?`, quotes and dollars.
fn text(seed: &str, length: usize) -> String {
    let lines = (0..).map(|n| format!("<p class={seed}>{n}, {}</p>\n", n * 7919 % 10_007));
    let mut text = String::with_capacity(length + 40);
    lines
        .take_while(|line| {
            text.push_str(line);
            text.len() < length
        })
        .for_each(drop);
    text.truncate(length);
    text
}

/// Writes the number of bytes that left as segments into a file, after the script has ended and PHP
/// has flushed its buffers.
const STATS: &str =
    "<?php class Stats { function __destruct() { if (function_exists('sendoff_stats'))
    file_put_contents(__DIR__ . '/stats', sendoff_stats()['handed_over_bytes']); } }
    $stats = new Stats; chdir(__DIR__); $m = $_SERVER['REQUEST_METHOD']; ?>";

fn handed_over(site: &Site) -> usize {
    fs::read_to_string(site.path("stats")).unwrap().parse().unwrap()
}

/// The sizes of the blobs that a process has open.
fn blobs(pid: u32) -> Vec<u64> {
    processes::blobs(pid).into_iter().map(|(_, size)| size).collect()
}

fn start(site: &Site, options: &[&str]) -> Server {
    let ini = OPCACHE.iter().flat_map(|setting| ["--php-ini", setting]);
    let options: Vec<_> = ini.chain(options.iter().copied()).collect();
    Server::start(site.root(), &options)
}

/// Pages with constants: below the threshold, small enough for the front's memory, and larger.
const USES: &[(&str, &str)] = &[
    ("html", "@60000@"),
    ("between", "<?= $m ?>@16384@<?= $m ?>@16383@<?php echo $m ?>@70000@"),
    (
        "twice",
        "<?php const A = '@20000@'; echo A, $m, A; function f($x) { echo $x; } f(A); print A;",
    ),
    ("include", "<?php include 'part.html'; echo $m; require __DIR__ . '/part.html';"),
    ("loop", "<?php for ($i = 0; $i < 20; $i++) { echo $i; include 'part.html'; }"),
    (
        "heredoc",
        "<?php $s = <<<E\n@50000@\nE; echo $s; $s .= 'x'; echo $s, substr($s, 5), strlen($s);",
    ),
    (
        "static",
        "<?php class C { const X = ['@30000@', '@20000@']; } foreach (C::X as $x) echo $x, $m;",
    ),
    ("changed", "<?php $s = '@40000@'; $t = $s; $t[0] = 'X'; echo $t, $s; $t[0] = '<'; echo $t;"),
    ("buffer", "<?php ob_start(); ?>@60000@<?php $x = ob_get_clean(); echo $m, strlen($x), $x;"),
    (
        "callback",
        "<?php ob_start(fn ($b) => strtoupper($b)); ?>@60000@<?php ob_end_flush(); ?>@60000@",
    ),
    (
        "flush",
        "a<?php flush(); ?>@60000@<?php flush(); echo $m; ob_get_level() && ob_flush(); ?>@20000@",
    ),
    ("status", "<?php header('HTTP/1.1 404 Gone'); header('X-A: b'); ?>@60000@"),
    ("length", "<?php header('Content-Length: 60000'); ?>@60000@"),
    ("short", "<?php header('Content-Length: 100'); ?>@60000@"),
    ("exit", "<?php echo $m; exit('@60000@');"),
    ("fatal", "@60000@<?php nope();"),
    ("shutdown", "<?php register_shutdown_function(function () { ?>@60000@<?php }); echo $m;"),
    ("finish", "@60000@<?php fastcgi_finish_request(); ?>@50000@"),
    (
        "levels",
        "<?php echo ob_get_level(), json_encode(ob_get_status(true)); ?>@60000@<?= json_encode(ob_get_status(true)), headers_sent() ?>",
    ),
    (
        "callback-of-headers",
        "<?php header_register_callback(function () { echo 'late'; }); ?>@60000@",
    ),
    (
        "output",
        "<?php $o = fopen('php://output', 'w'); fwrite($o, '@60000@'); echo $m; fputs($o, '@20000@');",
    ),
];

/// `@N@` is text of N bytes.
fn fill_in(page: &str) -> String {
    let mut pieces = page.split('@');
    let mut all = pieces.next().unwrap().to_owned();
    while let (Some(length), Some(rest)) = (pieces.next(), pieces.next()) {
        all.push_str(&text(&format!("n{}", all.len()), length.parse().unwrap()));
        all.push_str(rest);
    }
    all
}

#[test]
fn every_use_of_a_constant_gives_the_bytes_stock_php_gives() {
    let site = Site::new();
    site.write("part.html", text("part", 60_000));
    for (name, page) in USES {
        site.write(&format!("{name}.php"), format!("{STATS}{}", fill_in(page)));
    }
    for more in [
        &["output_buffering=0"][..],
        &["output_buffering=4096", "opcache.jit=tracing", "opcache.jit_buffer_size=32M"],
        &["output_buffering=On"],
        &["opcache.enable=0"],
    ] {
        let ini: Vec<_> = OPCACHE.iter().chain(more).copied().collect();
        let pair = Pair::start(&site, &ini);
        // Four workers take turns; some already know the page, others do not, and the responses
        // must be equal.
        for round in 0..6 {
            for (name, _) in USES {
                let target = format!("/{name}.php");
                match round {
                    4 => pair.same(&Request::new("HEAD", &target)),
                    5 => pair.same(&Request::get(&target).http10()),
                    _ => pair.same_page(&target),
                };
            }
        }
    }
}

#[test]
fn constants_leave_as_segments_with_leases_and_without() {
    let html = text("html", 60_000);
    let site = Site::with("page.php", &format!("{STATS}<?= $m ?>{html}<?php include 'big.html';"));
    let big = text("big", 300_000);
    site.write("big.html", &big);
    let expected = format!("GET{html}{big}");
    for options in [&[][..], &["--snapshot", "copy"], &["--php-ini", "output_buffering=0"]] {
        let options = [&["--workers", "1"], options].concat();
        let server = start(&site, &options);
        for round in 0..4 {
            assert!(server.page("/page.php") == expected, "{options:?}");
            assert_eq!(handed_over(&site), if round == 0 { 0 } else { 360_000 }, "{options:?}");
        }
    }
}

/// When a worker ends, its blobs end, and the front drops its copies.
#[test]
fn whoever_is_killed_the_next_one_learns_again() {
    let html = text("html", 60_000);
    let site = Site::with("page.php", &format!("{STATS}<?= $m ?>{html}"));
    let server = start(&site, &["--workers", "1"]);
    let expected = format!("GET{html}");
    for killed in ["nobody", "worker", "front", "master"] {
        let (worker, front) = (server.workers()[0], server.front());
        match killed {
            "worker" => processes::signal(worker, Signal::KILL),
            "front" => processes::signal(front, Signal::KILL),
            "master" => processes::signal(server.php_master(), Signal::KILL),
            _ => {}
        }
        if killed != "nobody" {
            let replaced = || server.workers().first().is_some_and(|new| *new != worker);
            assert!(wait::until(LIMIT, replaced), "{killed}");
            assert!(wait::until(LIMIT, || TcpStream::connect(server.addr()).is_ok()), "{killed}");
        }
        for round in 0..4 {
            assert!(server.page("/page.php") == expected, "{killed}");
            assert_eq!(handed_over(&site), if round == 0 { 0 } else { 60_000 }, "{killed}");
        }
        assert_eq!(
            (blobs(server.front()), blobs(server.workers()[0])),
            (vec![60_000], vec![60_000])
        );
    }
}

/// The worker drops the blob while a client is still receiving it.
#[test]
fn a_slow_client_gets_all_of_a_blob_that_was_displaced() {
    let html = text("slow", 7_000_000);
    let site = Site::with("slow.php", &format!("{STATS}<?= $m ?>{html}"));
    let many: String =
        (0..64).map(|n| format!("{}<?= $m ?>", text(&format!("m{n}"), 17_000))).collect();
    site.write("many.php", format!("{STATS}{many}"));
    let server = start(&site, &["--workers", "1"]);
    let slow = Request::get("/slow.php");
    for _ in 0..2 {
        assert!(server.ask(&slow).text() == format!("GET{html}"));
    }
    let mut clients: Vec<_> = (0..2).map(|_| Client::connect_narrow(server.addr(), 4096)).collect();
    clients.iter_mut().for_each(|client| client.send(slow.bytes()));
    let has_big = |pid| blobs(pid).contains(&7_000_000);
    let worker = server.workers()[0];
    let begun = clients.iter_mut().map(|client| client.head().unwrap()).collect::<Vec<_>>();
    assert!(has_big(worker) && has_big(server.front()));
    let expected = many.replace("<?= $m ?>", "GET");
    for _ in 0..17 {
        assert!(server.page("/many.php") == expected);
    }
    assert_eq!(handed_over(&site), 64 * 17_000);
    assert!(!has_big(worker), "it was displaced");
    assert!(has_big(server.front()), "the clients are still at it");
    for (client, head) in clients.iter_mut().zip(begun) {
        let response = client.body_of(head, "GET").unwrap();
        assert!(response.text() == format!("GET{html}"));
    }
    assert!(wait::until(LIMIT, || !has_big(server.front())));
    assert_eq!(server.workers(), [worker]);
}

/// After each reset of opcache, other pages of the same length use the addresses of previous pages,
/// in memory that four workers share.
#[test]
fn pages_that_change_places_in_memory_are_not_mixed_up() {
    const PAGES: usize = 12;
    let pages: Vec<_> = (0..PAGES).map(|n| text(&format!("p{n:02}"), 60_000)).collect();
    let site = Site::with("reset.php", "<?php opcache_reset();");
    for (n, page) in pages.iter().enumerate() {
        site.write(&format!("{n}.php"), page);
    }
    let server = start(&site, &["--workers", "4"]);
    std::thread::scope(|scope| {
        for visitor in 1..4 {
            let (server, pages) = (&server, &pages);
            scope.spawn(move || {
                let mut client = server.connect();
                for step in 0..200 {
                    if step % 20 == visitor {
                        assert_eq!(client.ask(&Request::get("/reset.php")).text(), "");
                    }
                    // Each client requests the pages in another order, several times.
                    let n = step / 3 * (2 * visitor + 1) % PAGES;
                    let response = client.ask(&Request::get(&format!("/{n}.php")));
                    assert!(response.text() == pages[n], "page {n}, step {step}");
                }
            });
        }
    });
}
