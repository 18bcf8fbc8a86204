//! Slow clients hold no worker, and little memory.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sendoff_tests::{Client, LIMIT, Request, Server, Site, load, pattern, processes, wait};
use std::time::Duration;

const MB: u64 = 1 << 20;

/// `count` clients request `target` and read nothing; then quick pages are timed; then the clients
/// read everything.
fn hold(site: &Site, target: &str, count: usize, expected: &[u8], memory: u64) {
    let server = Server::start(site.root(), &["--php-ini", "memory_limit=256M"]);
    let before = processes::private_memory(server.front());
    let mut clients: Vec<_> = (0..count)
        .map(|_| {
            let mut client = Client::connect_narrow(server.addr(), 4096);
            client.send(Request::get(target).bytes());
            client
        })
        .collect();
    let times = load::times(server.addr(), 200, &Request::get("/quick.php"));
    let slowest = load::percentile_99(&times);
    assert!(slowest < Duration::from_secs(1), "quick pages took {slowest:?}");
    let held = processes::private_memory(server.front()).saturating_sub(before);
    assert!(held < memory, "the front grew by {} MB", held / MB);
    for client in &mut clients {
        assert!(client.response("GET").expect(200) == expected);
    }
}

fn site() -> Site {
    let site = Site::with("quick.php", "<?php echo 'quick';");
    site.write("big", pattern(1, 1_000_000));
    site.write("file.php", "<?php echo file_get_contents('big');");
    site.write(
        "mixed.php",
        "<?php echo str_repeat('<', 1000), file_get_contents('big'), str_repeat('>', 1000);",
    );
    site.write("made.php", "<?php echo str_repeat('0123456789', 100000);");
    site
}

#[test]
fn two_hundred_clients_with_a_file_each() {
    hold(&site(), "/file.php", 200, &pattern(1, 1_000_000), 40 * MB);
}

#[test]
fn two_hundred_clients_with_a_file_inside_a_page_each() {
    let mut expected = vec![b'<'; 1000];
    expected.extend(pattern(1, 1_000_000));
    expected.extend([b'>'; 1000]);
    hold(&site(), "/mixed.php", 200, &expected, 40 * MB);
}

#[test]
fn two_hundred_clients_with_a_static_file_each() {
    hold(&site(), "/big", 200, &pattern(1, 1_000_000), 40 * MB);
}

#[test]
fn clients_with_generated_pages() {
    // These bytes exist nowhere else, so the front stores them, and the workers are free.
    hold(&site(), "/made.php", 50, &b"0123456789".repeat(100_000), 50 * 2 * MB);
}

/// 1,000 such clients left 340 MB in the front for good.
#[test]
fn memory_that_slow_clients_took_returns_to_the_system() {
    let site = site();
    // More than the kernel takes for a client that does not read.
    site.write(
        "large.php",
        "<?php for ($i = 0; $i < 512; $i++) echo str_repeat('01234567', 1024);",
    );
    let server = Server::start(site.root(), &[]);
    assert_eq!(server.page("/quick.php"), "quick");
    let before = processes::private_memory(server.front());
    let grown = || processes::private_memory(server.front()).saturating_sub(before);
    let clients: Vec<_> = (0..300)
        .map(|_| {
            let mut client = Client::connect_narrow(server.addr(), 4096);
            client.send(Request::get("/large.php").bytes());
            client
        })
        .collect();
    // It waits behind all of them.
    assert_eq!(server.page("/quick.php"), "quick");
    // Bytes that were copied during the wait for a client soon go to the spool.
    let is_small = wait::until(LIMIT, || grown() < 40 * MB);
    assert!(is_small, "{} MB for 300 clients", grown() / MB);
    drop(clients);
    let has_returned = wait::until(LIMIT, || grown() < 20 * MB);
    assert!(has_returned, "{} MB are left", grown() / MB);
}

/// nginx takes 0.5 KB, the kernel some 4 KB for the sockets.
#[test]
fn an_idle_connection_costs_less_than_one_and_a_half_kilobytes() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let site = site();
    let server = Server::start(site.root(), &[]);
    let ask =
        |client: &mut Client| assert!(client.ask(&Request::get("/quick.php")).status() == 200);
    // Buffers that all connections share are there before.
    (0..100).for_each(|_| ask(&mut server.connect()));
    let before = processes::private_memory(server.front());
    let idle: Vec<_> = (0..2000)
        .map(|_| {
            let mut client = server.connect();
            ask(&mut client);
            client
        })
        .collect();
    let each = processes::private_memory(server.front()).saturating_sub(before) / 2000;
    assert!(each < 1536, "{each} bytes");
    drop(idle);
}

#[test]
fn clients_that_send_slowly_hold_no_worker() {
    let site = Site::with("quick.php", "<?php echo 'quick';");
    site.write("in.php", "<?php echo sha1(file_get_contents('php://input'));");
    let server = Server::start(site.root(), &[]);
    let mut clients: Vec<_> = (0..50)
        .map(|_| {
            let mut client = server.connect();
            client.send("POST /in.php HTTP/1.1\r\nHost: h\r\nContent-Length: 200000\r\n\r\n");
            client.send([b'x'; 100_000]);
            client
        })
        .collect();
    let times = load::times(server.addr(), 100, &Request::get("/quick.php"));
    assert!(load::percentile_99(&times) < Duration::from_secs(1));
    for client in &mut clients {
        client.send([b'x'; 100_000]);
    }
    for client in &mut clients {
        assert_eq!(client.response("POST").text(), "62951f943c41cdd326e5ce2b53a779e7916a820d");
    }
}
