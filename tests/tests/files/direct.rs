//! Responses that workers write to the client's socket: the same bytes as through the front, in
//! every case of death, delay and cut.

use rustix::process::Signal;
use sendoff_tests::{
    Broken, Client, Framing, LIMIT, Request, Response, Server, Site, Stock, pattern,
};
use sendoff_tests::{difference, processes, wait};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

/// Generates `n` bytes that depend on their position, and sends them in one of several ways.
const PAGE: &str = r#"<?php
    [$n, $how] = [(int) ($_GET['n'] ?? 0), $_GET['how'] ?? 'one'];
    for ($i = 0, $s = ''; strlen($s) < $n; $i++) $s .= str_repeat("$i,", 100);
    $s = substr($s, 0, $n);
    header('X-Page: ' . md5($s));
    if (isset($_GET['status'])) http_response_code((int) $_GET['status']);
    if (isset($_GET['length'])) header('Content-Length: ' . ($n + (int) $_GET['length']));
    if (isset($_GET['wait'])) file_get_contents('pipe');
    switch ($how) {
        case 'one': echo $s; break;
        case 'pieces': foreach (str_split($s, 5000) as $piece) echo $piece; break;
        case 'blocks': foreach (str_split($s, 70001) as $piece) echo $piece; break;
        case 'flush': foreach (str_split($s, 50000) as $piece) { echo $piece; flush(); } break;
        case 'early': echo 'first,'; flush(); echo $s; break;
        case 'logged': echo substr($s, 0, 20000); error_log('noted'); echo substr($s, 20000), 'z'; error_log('too'); break;
        case 'files': echo substr($s, 0, 100000), file_get_contents('big'), $s, file_get_contents('big'), 'end'; break;
        case 'file first': echo file_get_contents('big'), $s; break;
        case 'readfile': echo $s; readfile('big'); echo $s; break;
        case 'ob': ob_start(); echo $s; ob_end_flush(); break;
        case 'finish': echo $s; fastcgi_finish_request(); file_get_contents($_GET['pipe']); break;
    }"#;

fn site() -> Site {
    let site = Site::with("page.php", PAGE);
    site.write("big", pattern(7, 300_000));
    site.write("a.txt", "static");
    site.write(
        "sendfile.php",
        "<?php header('X-Sendfile: ' . __DIR__ . '/big'); echo str_repeat('no', 100000);",
    );
    site.write(
        "ranges.php",
        "<?php header('X-Sendfile2: ' . __DIR__ . '/big 10-99'); header('Content-Length: 90'); echo str_repeat('no', 100000);",
    );
    site.write("field.php", "<?php header('X-Sendoff: 1'); echo str_repeat('field', 100000);");
    site.write("accel.php", "<?php header('X-Accel-Buffering: no'); header('Date: then'); echo str_repeat('accel', 100000);");
    site.write("own.php", "<?php header('Server: mine'); header('date: now'); header('Connection: upgrade'); echo str_repeat('own', 100000);");
    site.write("fatal.php", "<?php echo str_repeat('x', 100000); nothing();");
    site.write("pid.php", "<?php echo getmypid();");
    site
}

fn start(site: &Site, delivery: &str, more: &[&str]) -> Server {
    Server::start(site.root(), &[&["--delivery", delivery], more].concat())
}

/// Everything but the time, headers in their order.
fn seen(response: &Response) -> (u16, String, Vec<(String, String)>) {
    let mut headers = response.head.headers.clone();
    let is_own = |value: &str| ["now", "then"].contains(&value);
    headers.retain(|(name, value)| !name.eq_ignore_ascii_case("Date") || is_own(value));
    (response.head.status, response.head.reason.clone(), headers)
}

#[test]
fn every_response_is_the_same_as_through_the_front() {
    let site = site();
    let (direct, relay) = (start(&site, "direct", &[]), start(&site, "file", &[]));
    let stock = Stock::start(site.root(), &[]);
    let mut targets: Vec<String> = Vec::new();
    for size in [0, 1, 16_000, 16_384, 16_385, 33_000, 65_536, 200_000, 1 << 20, 8 << 20] {
        targets.push(format!("/page.php?n={size}"));
        targets.push(format!("/page.php?length=0&n={size}"));
    }
    for how in
        ["pieces", "blocks", "flush", "early", "logged", "files", "file+first", "readfile", "ob"]
    {
        for size in [10, 150_000, 1_500_000] {
            targets.push(format!("/page.php?how={how}&n={size}"));
        }
    }
    for status in [204, 304, 404, 500] {
        targets.push(format!("/page.php?n=100000&status={status}"));
    }
    // More than was announced.
    targets.push("/page.php?n=100000&length=-5".to_owned());
    targets.push("/page.php?n=1000000&length=-999999&how=blocks".to_owned());
    targets.push("/page.php?n=100000&length=-100000".to_owned());
    for page in ["sendfile", "ranges", "field", "accel", "own", "fatal"] {
        targets.push(format!("/{page}.php"));
    }
    // Pages that nginx answers differently.
    let not_in_stock = ["length=-", "accel", "own", "sendfile", "ranges", "field"];
    let (mut to_direct, mut to_relay) = (direct.connect(), relay.connect());
    for target in &targets {
        for method in ["GET", "HEAD", "POST"] {
            let request = Request::new(method, target);
            let (ours, relayed) = (to_direct.ask(&request), to_relay.ask(&request));
            assert_eq!(seen(&ours), seen(&relayed), "{method} {target}");
            assert!(ours.body == relayed.body, "{method} {target}: bodies differ");
            if method == "GET" && !not_in_stock.iter().any(|part| target.contains(part)) {
                let stock = stock.ask(&request);
                assert_eq!(difference(target, &stock, &ours), None);
            }
        }
        // HTTP/1.0: no chunks.
        for request in
            [Request::get(target), Request::get(target).header("Connection", "keep-alive")]
        {
            let request = request.http10();
            let (ours, relayed) = (direct.ask(&request), relay.ask(&request));
            assert_eq!(seen(&ours), seen(&relayed), "1.0 {target}");
            assert!(ours.body == relayed.body, "1.0 {target}: bodies differ");
        }
    }
}

/// The front is stopped; the client receives everything nevertheless.
#[test]
fn the_worker_needs_no_front_to_write() {
    let site = site();
    let pipe = site.fifo("pipe");
    let server = start(&site, "direct", &["--workers", "1"]);
    for target in [
        "/page.php?wait&n=500000",
        "/page.php?wait&n=500000&length=0",
        "/page.php?wait&n=500000&how=pieces",
    ] {
        let mut client = server.connect();
        client.send(Request::get(target).bytes());
        let worker = server.workers()[0];
        assert!(wait::until(LIMIT, || processes::connections(worker) == 1), "it has the socket");
        processes::signal(server.front(), Signal::STOP);
        pipe.release();
        let response = client.try_response("GET");
        processes::signal(server.front(), Signal::CONT);
        assert_eq!(response.unwrap().body.len(), 500_000);
        // The connection belongs to the front again.
        assert_eq!(client.ask(&Request::get("/a.txt")).text(), "static");
        assert_eq!(processes::connections(worker), 0);
    }
}

fn page(n: usize) -> Vec<u8> {
    let lines = (0..).flat_map(|i: u32| format!("{i},").repeat(100).into_bytes());
    lines.take(n).collect()
}

#[test]
fn connections_live_on_and_requests_may_be_sent_ahead() {
    let site = site();
    let server = start(&site, "direct", &["--workers", "2"]);
    let expected = page(100_000);
    let mut client = server.connect();
    for _ in 0..50 {
        assert!(client.ask(&Request::get("/page.php?n=100000")).expect(200) == expected);
    }
    let targets =
        ["/page.php?n=100000", "/a.txt", "/page.php?n=100000&how=pieces", "/page.php?n=10"];
    let ahead: Vec<u8> =
        targets.iter().cycle().take(20).flat_map(|target| Request::get(target).bytes()).collect();
    client.send(ahead);
    for _ in 0..5 {
        assert!(client.response("GET").expect(200) == expected);
        assert_eq!(client.response("GET").text(), "static");
        assert!(client.response("GET").expect(200) == expected);
        assert!(client.response("GET").expect(200) == &expected[..10]);
    }
    // The last one may go.
    let close = Request::get("/page.php?n=100000").header("Connection", "close");
    assert_eq!(client.ask(&close).header("connection"), Some("close"));
    assert!(client.is_closed());
}

/// Bytes that a slow client does not take go to the front, and the worker is free.
#[test]
fn slow_clients_hold_no_worker() {
    let site = site();
    let server = start(&site, "direct", &["--workers", "1"]);
    for (target, size) in [
        ("/page.php?n=3000000", 3_000_000),
        ("/page.php?n=3000000&length=0", 3_000_000),
        ("/page.php?n=3000000&how=pieces", 3_000_000),
        ("/page.php?n=3000000&how=blocks", 3_000_000),
    ] {
        let expected = page(size);
        for request in [Request::get(target), Request::get(target).http10()] {
            let mut slow = Client::connect_narrow(server.addr(), 4096);
            slow.send(request.bytes());
            let head = slow.head().unwrap();
            let mut taken = 0;
            for _ in 0..3 {
                slow.read_some(1024);
                taken += server.page("/pid.php").parse::<u32>().unwrap().min(1);
            }
            assert_eq!(taken, 3);
            assert!(slow.body_of(head, "GET").unwrap().body == expected, "{target}");
        }
    }
    // A connection that was slow is not lent out again until it has caught up; then it is.
    let mut client = Client::connect_narrow(server.addr(), 4096);
    for _ in 0..4 {
        assert!(client.ask(&Request::get("/page.php?n=3000000")).body == page(3_000_000));
    }
}

#[test]
fn clients_that_leave_cost_nothing() {
    let site = site();
    let server = start(&site, "direct", &["--workers", "2"]);
    let workers = server.workers();
    for (round, how) in (0..60).zip(["one", "pieces", "flush", "files"].iter().cycle()) {
        let mut client = Client::connect_narrow(server.addr(), 8192);
        client.send(Request::get(&format!("/page.php?n=2000000&how={how}")).bytes());
        // Some leave at once, some in the middle; with bytes unread that is a reset.
        let wanted = [0, 1, 300, 5000, 70_000, 1_000_000][round % 6];
        if wanted > 0 {
            client.read(wanted);
        }
    }
    assert!(server.get("/page.php?n=100000").expect(200) == page(100_000));
    assert_eq!(server.workers(), workers);
    let idle = wait::until(LIMIT, || workers.iter().all(|pid| processes::connections(*pid) == 0));
    assert!(idle, "a worker keeps sockets");
}

/// A response is complete or visibly cut, and no other client is affected.
#[test]
fn workers_may_die_at_any_time() {
    let site = site();
    let pipe = site.fifo("pipe");
    site.write(
        "die.php",
        "<?php
        $n = (int) $_GET['n'];
        foreach (str_split(str_repeat('0123456789', 100000), 50000) as $at => $piece) {
            if ($at == $n) posix_kill(getmypid(), 9);
            echo $piece;
        }
        if ($n == 20) posix_kill(getmypid(), 9);",
    );
    let whole = b"0123456789".repeat(100_000);
    let server = start(&site, "direct", &["--workers", "2"]);
    for n in [0, 1, 2, 10, 19, 20] {
        for request in [
            Request::get(&format!("/die.php?n={n}")),
            Request::get(&format!("/die.php?n={n}")).http10(),
        ] {
            let mut client = server.connect();
            client.send(request.bytes());
            match client.head() {
                Ok(head) if n == 0 => {
                    assert_eq!(head.status, 502);
                    client.body_of(head, "GET").unwrap();
                    // Nothing had been sent, so the connection is still usable.
                    if !String::from_utf8_lossy(&request.bytes()).contains("1.0") {
                        assert_eq!(client.ask(&Request::get("/a.txt")).text(), "static");
                    }
                }
                Ok(head) => {
                    assert_eq!(head.status, 200);
                    let framing = head.framing("GET").unwrap();
                    match client.body_of(head, "GET") {
                        Err(Broken::Cut(part)) => assert!(whole.starts_with(&part.body)),
                        Ok(part) if framing == Framing::Close => {
                            assert!(whole.starts_with(&part.body));
                        }
                        other => panic!("{other:?}"),
                    }
                }
                Err(broken) => panic!("{n}: {broken:?}"),
            }
        }
    }
    let large = page(3_000_000);
    // The worker is killed while it holds the socket, before or while it writes.
    for round in 0..20_u64 {
        let mut client = Client::connect_narrow(server.addr(), 16_384);
        client.send(Request::get("/page.php?n=3000000&wait").bytes());
        let mut holder = None;
        let held = || {
            holder = server.workers().into_iter().find(|pid| processes::connections(*pid) == 1);
            holder.is_some()
        };
        assert!(wait::until(LIMIT, held));
        if round > 0 {
            pipe.release();
            client.read_some(usize::try_from(round * round * 500).unwrap());
        }
        processes::signal(holder.unwrap(), Signal::KILL);
        match client.try_response("GET") {
            Ok(response) if round == 0 => assert_eq!(response.status(), 502),
            Ok(response) => assert!(response.status() == 502 || response.body == large),
            Err(Broken::Cut(part)) => assert!(large.starts_with(&part.body)),
            Err(Broken::Malformed(why)) => assert!(why.starts_with("cut head"), "{why}"),
            Err(broken) => panic!("{broken:?}"),
        }
        assert!(server.get("/page.php?n=100000").expect(200) == page(100_000));
    }
}

/// HTTP/1.0 clients know the end of a body by the end of the connection: a cut must look different.
#[test]
fn a_cut_is_a_reset_where_it_could_be_taken_for_the_end() {
    let site = site();
    site.write(
        "cut.php",
        "<?php
        echo str_repeat('x', 100000); flush();
        file_get_contents('pipe');
        posix_kill(getmypid(), 9);",
    );
    let pipe = site.fifo("pipe");
    let server = start(&site, "direct", &["--workers", "1"]);
    let mut client = server.connect();
    client.send(Request::get("/cut.php").http10().bytes());
    client.head().unwrap();
    assert_eq!(client.read(100_000), vec![b'x'; 100_000]);
    pipe.release();
    let error = client.error();
    // TLS has an end of its own, which is missing; a reset may overtake that.
    let is_unfinished = client.is_tls() && error == ErrorKind::UnexpectedEof;
    assert!(error == ErrorKind::ConnectionReset || is_unfinished, "{error:?}");
    server.await_log("a response was cut short");
}

/// A child process that a script left behind also has the socket. Clients must see the end of the
/// connection nevertheless.
#[test]
fn a_child_of_the_script_does_not_keep_the_connection_open() {
    let site = site();
    site.write(
        "fork.php",
        "<?php
        echo str_repeat('x', 100000); flush();
        if (FFI::cdef('int fork(void);')->fork() == 0) { file_get_contents($_GET['pipe']); posix_kill(getmypid(), 9); }
        echo 'end';",
    );
    let pipes = ["one", "two"].map(|name| site.fifo(name));
    let server = start(&site, "direct", &["--workers", "1", "--php-ini", "ffi.enable=1"]);
    let mut client = server.connect();
    let response = client.ask(&Request::get("/fork.php?pipe=one").http10());
    assert_eq!(response.body.len(), 100_003);
    let mut client = server.connect();
    let close = Request::get("/fork.php?pipe=two").header("Connection", "close");
    assert_eq!(client.ask(&close).body.len(), 100_003);
    assert!(client.is_closed());
    pipes.iter().for_each(|pipe| pipe.release());
}

/// Changes the client's socket as any process that has it can: later calls on it block (`fcntl`),
/// and so does the last `close` (`SO_LINGER`).
const HOSTILE: &str = r#"<?php
    $libc = FFI::cdef('int fcntl(int fd, int what, ...); int getpeername(int fd, void *to, unsigned *len);
        int setsockopt(int fd, int level, int name, const void *value, unsigned len);');
    echo str_repeat('x', 100000);
    flush();
    [$linger, $found] = [FFI::new('int[2]'), 0];
    [$linger[0], $linger[1]] = [1, 3600];
    foreach (array_filter(scandir('/proc/self/fd'), 'is_numeric') as $fd) {
        [$to, $len] = [FFI::new('uint16_t[64]'), FFI::new('unsigned[1]')];
        $len[0] = 128;
        if ($libc->getpeername((int) $fd, $to, $len) == 0 && $to[0] == 2) {
            $found += $libc->fcntl((int) $fd, 4, 2) == 0 && $libc->setsockopt((int) $fd, 1, 13, $linger, 8) == 0;
        }
    }
    echo str_repeat("$found", (int) $_GET['n']);"#;

fn others_are_answered(server: &Server) {
    let answer = server.connect().try_ask(&Request::get("/a.txt"));
    assert_eq!(answer.map(|answer| answer.text().to_owned()).ok(), Some("static".into()));
}

/// The client reads nothing, and the socket says that calls may wait.
#[test]
fn no_event_loop_waits_for_a_client_whose_socket_a_worker_has_changed() {
    let site = site();
    site.write("hostile.php", HOSTILE);
    let large = pattern(3, 8 << 20);
    site.write("large", &large);
    let options = ["--workers", "1", "--threads", "1", "--php-ini", "ffi.enable=1"];
    let server = start(&site, "direct", &options);
    let body = |n: usize| [vec![b'x'; 100_000], vec![b'1'; n]].concat();

    // The rest of the same response.
    let mut client = Client::connect_narrow(server.addr(), 4096);
    client.send(Request::get("/hostile.php?n=8000000").bytes());
    let head = client.head().unwrap();
    server.page("/pid.php");
    others_are_answered(&server);
    assert!(client.body_of(head, "GET").unwrap().body == body(8_000_000));

    // Responses after it: a file, and generated bytes.
    for (target, expected) in [("/large", &large), ("/page.php?n=8000000", &page(8_000_000))] {
        let mut client = server.connect();
        assert!(client.ask(&Request::get("/hostile.php?n=5")).body == body(5));
        client.send(Request::get(target).bytes());
        let head = client.head().unwrap();
        others_are_answered(&server);
        assert!(client.body_of(head, "GET").unwrap().body == *expected);
    }
}

/// Has the kernel report each packet that is sent on the client's socket in the socket's error queue
/// (`SO_TIMESTAMPING`), which looks like an error of the socket.
const STAMPS: &str = r#"<?php
    $libc = FFI::cdef('int getpeername(int fd, void *to, unsigned *len);
        int setsockopt(int fd, int level, int name, const void *value, unsigned len);');
    echo str_repeat('x', 100000);
    flush();
    [$flags, $found] = [FFI::new('int[1]'), 0];
    $flags[0] = 1 << 1 | 1 << 4 | 1 << 8 | 1 << 9;
    foreach (array_filter(scandir('/proc/self/fd'), 'is_numeric') as $fd) {
        [$to, $len] = [FFI::new('uint16_t[64]'), FFI::new('unsigned[1]')];
        $len[0] = 128;
        if ($libc->getpeername((int) $fd, $to, $len) == 0 && $to[0] == 2) {
            $found += $libc->setsockopt((int) $fd, 1, 37, $flags, 4) == 0;
        }
    }
    echo str_repeat("$found", (int) $_GET['n']);"#;

/// While a client reads nothing, the front waits for it without using the CPU.
#[test]
fn no_event_loop_is_kept_busy_by_the_errors_that_a_worker_has_ordered() {
    const OBSERVED: Duration = Duration::from_secs(2);
    const MOST: Duration = Duration::from_millis(150);
    let site = site();
    site.write("stamps.php", STAMPS);
    let large = pattern(3, 8 << 20);
    site.write("large", &large);
    let options = ["--workers", "1", "--threads", "1", "--php-ini", "ffi.enable=1"];
    let server = start(&site, "direct", &options);
    let stamped = [&[b'x'; 100_000][..], b"11111"].concat();
    for (target, expected) in [("/large", &large), ("/page.php?n=8000000", &page(8_000_000))] {
        let mut client = Client::connect_narrow(server.addr(), 4096);
        assert!(client.ask(&Request::get("/stamps.php?n=5")).body == stamped);
        client.send(Request::get(target).bytes());
        let head = client.head().unwrap();
        others_are_answered(&server);
        server.page("/pid.php");
        let used = || processes::cpu_time(server.front());
        let before = used();
        let is_busy = wait::until(OBSERVED, || used() > before + MOST);
        assert!(!is_busy, "{target}: the front is busy with a client that reads nothing");
        assert!(client.body_of(head, "GET").unwrap().body == *expected, "{target}");
    }
}

/// Closing the last descriptor of a socket waits for the client if `SO_LINGER` says so.
#[test]
fn no_event_loop_waits_to_close_a_socket_that_a_worker_has_changed() {
    let site = site();
    site.write("hostile.php", HOSTILE);
    let options = ["--workers", "1", "--threads", "1", "--php-ini", "ffi.enable=1"];
    let server = start(&site, "direct", &options);
    let mut client = Client::connect_narrow(server.addr(), 4096);
    let close = Request::get("/hostile.php?n=5").header("Connection", "close");
    client.send(close.bytes());
    client.head().unwrap();
    // It gives the client some time to close first.
    let has_closed = || processes::connections(server.front()) == 0;
    assert!(wait::until(LIMIT, has_closed), "the front has the socket");
    others_are_answered(&server);
}

/// Keeps a copy of the client's socket. A request on another connection makes it use the copy when
/// the pipe is released.
const KEEPER: &str = r#"<?php
    $libc = FFI::cdef('int dup(int fd); int getpeername(int fd, void *to, unsigned *len); int connect(int fd, const void *to, unsigned len);
        long recv(int fd, void *to, size_t n, int flags);');
    switch ($_GET['do']) {
        case 'keep':
            echo str_repeat('x', 100000);
            flush();
            $copies = [];
            foreach (array_filter(scandir('/proc/self/fd'), 'is_numeric') as $fd) {
                [$to, $len] = [FFI::new('uint16_t[64]'), FFI::new('unsigned[1]')];
                $len[0] = 128;
                if ($libc->getpeername((int) $fd, $to, $len) == 0 && $to[0] == 2) $copies[] = $libc->dup((int) $fd);
            }
            echo 'copies:', implode(',', $copies);
            break;
        case 'move':
            file_put_contents('ready', 'x');
            file_get_contents('pipe');
            [$none, $to] = [FFI::new('uint16_t[8]'), FFI::new('uint16_t[8]')];
            [$to[0], $to[1], $to[2], $to[3]] = [2, unpack('v', pack('n', (int) $_GET['port']))[1], 127, 256];
            $libc->connect((int) $_GET['fd'], $none, 16);
            $libc->connect((int) $_GET['fd'], $to, 16);
            file_put_contents('done', 'x');
            break;
        case 'read':
            file_put_contents('ready', 'x');
            file_get_contents('pipe');
            file_put_contents('done', $libc->recv((int) $_GET['fd'], FFI::new('char[1000]'), (int) $_GET['n'], 0));
            break;
    }"#;

fn keeper() -> Site {
    let site = site();
    site.write("keeper.php", KEEPER);
    site.write("ran.php", "<?php file_put_contents('ran', ''); echo $_SERVER['REMOTE_ADDR'];");
    site
}

const KEEPERS: [&str; 6] = ["--workers", "1", "--threads", "1", "--php-ini", "ffi.enable=1"];

/// The descriptors of the client's socket that a script has kept.
fn kept(response: &Response) -> String {
    let text = String::from_utf8_lossy(response.expect(200));
    text.split_once("copies:").map(|(_, kept)| kept.to_owned()).expect("the copies")
}

/// A script takes the client's place at its connection by an end of its own.
#[test]
fn a_request_on_a_connection_that_a_worker_has_connected_elsewhere_is_not_answered() {
    let site = keeper();
    let [ready, pipe, done] = ["ready", "pipe", "done"].map(|name| site.fifo(name));
    let server = start(&site, "direct", &KEEPERS);
    let mut client = Client::connect_from(server.addr(), Ipv4Addr::new(127, 0, 0, 2));
    let copy = kept(&client.ask(&Request::get("/keeper.php?do=keep")));
    let end = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = end.local_addr().unwrap().port();
    let mut other = server.connect();
    other.send(Request::get(&format!("/keeper.php?do=move&fd={copy}&port={port}")).bytes());
    ready.await_script();
    // Otherwise it may see the moment in which the socket is not connected.
    processes::signal(server.front(), Signal::STOP);
    pipe.release();
    done.await_script();
    let (mut end, _) = end.accept().unwrap();
    end.write_all(&Request::get("/ran.php").bytes()).unwrap();
    processes::signal(server.front(), Signal::CONT);
    end.set_read_timeout(Some(LIMIT)).unwrap();
    let mut answer = Vec::new();
    // It ends with a reset if the request was not read.
    let _ended = end.read_to_end(&mut answer);
    assert_eq!(String::from_utf8_lossy(&answer), "");
    assert_eq!(other.response("GET").status(), 200);
    assert!(!site.path("ran").exists(), "the request was answered");
    let worker = server.workers()[0];
    server.await_log(&format!("worker {worker} of pool default"));
    assert!(server.log().contains(&format!("127.0.0.1:{port}")), "{}", server.log());
}

/// A script reads the head of a request, so that the body would be taken for the next request: a
/// proxy checks heads, not bodies.
#[test]
fn what_a_worker_has_left_of_a_request_is_not_taken_for_a_request() {
    let site = keeper();
    let [ready, pipe, done] = ["ready", "pipe", "done"].map(|name| site.fifo(name));
    let server = start(&site, "direct", &KEEPERS);
    let mut client = server.connect();
    let copy = kept(&client.ask(&Request::get("/keeper.php?do=keep")));
    let mut other = server.connect();
    let body = Request::get("/ran.php").bytes();
    let head = format!("POST /a.txt HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    let n = head.len();
    other.send(Request::get(&format!("/keeper.php?do=read&fd={copy}&n={n}")).bytes());
    ready.await_script();
    processes::signal(server.front(), Signal::STOP);
    client.send([head.as_bytes(), &body].concat());
    pipe.release();
    assert_eq!(done.await_script(), n.to_string());
    processes::signal(server.front(), Signal::CONT);
    assert_eq!(other.response("GET").status(), 200);
    let answer = client.try_response("GET").map(|answer| answer.text().to_owned());
    assert!(answer.is_err(), "answered with {answer:?}");
    assert!(!site.path("ran").exists(), "the request was answered");
    server.await_log("has read from it");
}

/// A process that keeps the socket could read later requests, and write into their responses.
#[test]
fn a_connection_on_which_others_may_be_asked_is_lent_only_with_its_last_request() {
    let site = keeper();
    let elsewhere = format!(".other=unix:{}", site.outside("nothing").display());
    let options = [&KEEPERS[..], &["--fastcgi", &elsewhere]].concat();
    let server = start(&site, "direct", &options);
    let mut client = server.connect();
    let keep = Request::get("/keeper.php?do=keep");
    for _ in 0..3 {
        assert_eq!(kept(&client.ask(&keep)), "");
    }
    assert_ne!(kept(&client.ask(&keep.clone().header("Connection", "close"))), "");
    assert!(client.is_closed());
    assert_ne!(kept(&server.ask(&keep.http10())), "");
}

/// A reload brings an application of another party.
#[test]
fn a_connection_that_was_lent_ends_when_others_may_be_asked_on_it() {
    let site = keeper();
    let file = site.outside("sendoff.toml");
    let configure = |routes: &str| {
        let text = format!(
            "listen = '127.0.0.1:0'\nthreads = 1\n\
             [[pool]]\nworkers = 1\nphp_ini = {{ ffi.enable = 'true', opcache.file_update_protection = 0 }}\n\
             [[site]]\nroot = 'root'\ndelivery = 'direct'\n{routes}"
        );
        site.write_at(file.clone(), text);
    };
    configure("");
    let server = Server::try_run(&file, site.root(), 1).unwrap();
    let (mut lent, mut other) = (server.connect(), server.connect());
    assert_ne!(kept(&lent.ask(&Request::get("/keeper.php?do=keep"))), "");
    assert_eq!(other.ask(&Request::get("/a.txt")).text(), "static");
    configure("lua_before = []\n");
    server.command(&["reload"]).unwrap();
    for client in [&mut lent, &mut other] {
        assert_eq!(client.ask(&Request::get("/a.txt")).text(), "static");
    }
    configure("[[site.route]]\nprefix = '/app'\nfastcgi = 'tcp:127.0.0.1:1'\n");
    server.command(&["reload"]).unwrap();
    assert!(lent.is_closed());
    assert_eq!(server.get("/a.txt").text(), "static");
}

#[test]
fn a_response_can_end_before_its_script() {
    let site = site();
    let pipes = ["one", "two"].map(|name| (name, site.fifo(name)));
    let server = start(&site, "direct", &["--workers", "2"]);
    let mut client = server.connect();
    for (name, _) in &pipes {
        let response =
            client.ask(&Request::get(&format!("/page.php?n=200000&how=finish&pipe={name}")));
        assert!(response.expect(200) == page(200_000));
    }
    pipes.iter().for_each(|(_, pipe)| pipe.release());
    assert!(client.ask(&Request::get("/page.php?n=200000")).body == page(200_000));
}

#[test]
fn the_access_log_knows_what_workers_have_sent() {
    let site = site();
    let log = site.outside("access.log");
    let server = start(&site, "direct", &["--access-log", log.to_str().unwrap()]);
    let mut client = server.connect();
    client.ask(&Request::get("/page.php?n=100000&status=404&length=0"));
    client.ask(&Request::get("/page.php?n=100000"));
    client.ask(&Request::get("/a.txt"));
    client.ask(&Request::get("/page.php?n=3000000&length=0"));
    drop(client);
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    assert!(wait::until(LIMIT, || read().lines().count() == 4), "{}", read());
    let ends: Vec<_> =
        read().lines().map(|line| line.split('"').nth(2).unwrap().to_owned()).collect();
    // The size line and the line end of a chunk of 100,000 bytes count, as when the front writes
    // them.
    assert_eq!(ends, [" 404 100000 ", " 200 100014 ", " 200 6 ", " 200 3000000 "]);
}

/// Only the worker knows the status of a response that it writes, and it may die before it has
/// reported it: the log does not blame the client.
#[test]
fn the_access_log_knows_who_has_cut_a_response() {
    let site = site();
    let pipe = site.fifo("pipe");
    site.write(
        "cut.php",
        "<?php echo str_repeat('x', 200000); flush(); file_get_contents('pipe'); posix_kill(getmypid(), 9);",
    );
    let log = site.outside("access.log");
    let server = start(&site, "direct", &["--access-log", log.to_str().unwrap()]);
    let mut client = server.connect();
    client.send(Request::get("/cut.php").bytes());
    let mut received = client.read(200_000);
    pipe.release();
    received.extend(client.rest());
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    assert!(wait::until(LIMIT, || read().lines().count() == 1), "{}", read());
    // The head counts: only the worker knew its length.
    let expected = format!(" 502 {} ", received.len());
    assert_eq!(read().split('"').nth(2), Some(&*expected));
}

/// The log counts the bytes that a client got before it left, also bytes that a worker wrote.
#[test]
fn the_access_log_counts_what_clients_got_before_they_left() {
    let site = site();
    site.write(
        "leave.php",
        "<?php http_response_code(404); header('Content-Length: 80000000');
        for ($i = 0; $i < 800; $i++) { echo str_repeat('x', 100000); flush(); }",
    );
    let log = site.outside("access.log");
    let server = start(&site, "direct", &["--access-log", log.to_str().unwrap()]);
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    for _ in 0..10 {
        let mut client = server.connect();
        client.send(Request::get("/leave.php").bytes());
        client.head().unwrap();
        client.read(100_000);
    }
    assert!(wait::until(LIMIT, || read().lines().count() == 10), "{}", read());
    for line in read().lines() {
        let (status, sent) =
            line.split('"').nth(2).unwrap().trim().split_once(' ').expect("status and bytes");
        assert_eq!(status, "404", "{line}");
        assert!((100_000..80_000_000).contains(&sent.parse().unwrap()), "{line}");
    }
}

/// With `--delivery auto`, a script whose responses were large gets the socket, others do not.
#[test]
fn large_responses_are_learned() {
    let site = site();
    let pipe = site.fifo("pipe");
    let server = start(&site, "auto", &["--workers", "1"]);
    let worker = server.workers()[0];
    site.write(
        "size.php",
        "<?php
        if (isset($_GET['wait'])) { unlink('here'); file_get_contents('pipe'); }
        echo str_repeat('x', (int) $_GET['n']);",
    );
    let lends = |before: &[u32]| {
        for size in before {
            server.get(&format!("/size.php?n={size}"));
        }
        let here = site.write("here", "");
        let mut client = server.connect();
        client.send(Request::get("/size.php?n=1000000&wait").bytes());
        assert!(wait::until(LIMIT, || !here.exists()));
        let lent = processes::connections(worker) == 1;
        pipe.release();
        assert_eq!(client.response("GET").body.len(), 1_000_000);
        lent
    };
    assert!(!lends(&[]));
    assert!(lends(&[]));
    assert!(!lends(&[100; 12]));
    assert!(lends(&[]));
}
