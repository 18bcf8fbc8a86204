//! Stock php-fpm with `sendoff.so` behind our front, and behind nginx: the bytes that stock php-fpm
//! sends.

use sendoff_config::PHP_VERSION;
use sendoff_tests::{
    Client, Extended, Fpm, Request, Server, Site, Stock, assert_same, extension, pattern, processes,
};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ENV: &str = include_str!("../../scripts/env.php");

/// Ways in which scripts output files.
const USES: &[(&str, &str)] = &[
    ("readfile", "readfile('a');"),
    ("page", "echo 'head'; echo $s; echo 'foot';"),
    ("two", "echo $s, $t, substr($s, 5, 9000), $t;"),
    ("late", "echo str_repeat('x', 20000); echo $s; echo str_repeat('y', 20000);"),
    ("flush", "echo 'a'; flush(); echo $s; flush(); echo 'b'; @ob_flush(); flush(); echo $t;"),
    ("length", "header('Content-Length: ' . strlen($s)); echo $s;"),
    ("short", "header('Content-Length: 50000'); echo $s;"),
    ("pieces", "$f = fopen('a', 'r'); while (!feof($f)) echo fread($f, 8192);"),
    ("status", "http_response_code(404); echo $s;"),
    ("redirect", "header('Location: /elsewhere'); echo $s;"),
    ("none", "http_response_code(204);"),
    ("not-modified", "http_response_code(304); echo $s;"),
    ("empty", ""),
    ("finish", "echo $s, 'x'; var_dump(fastcgi_finish_request()); echo $t; echo 'unseen';"),
    (
        "finish-plain",
        "echo 'x'; fastcgi_finish_request(); echo $t; var_dump(fastcgi_finish_request());",
    ),
    ("finish-first", "fastcgi_finish_request(); echo $t;"),
    ("callback", "ob_start(fn ($b) => strtoupper($b)); echo 'abc', $s; ob_end_flush();"),
    ("header-callback", "header_register_callback(function () { header('X-A: b'); }); echo $s;"),
    ("writing-callback", "header_register_callback(function () { echo 'early'; }); echo $s;"),
    (
        "headers",
        "header('X-A: b'); echo $s; ob_get_level() && ob_flush(); flush(); var_dump(headers_list(), headers_sent());",
    ),
    ("exit", "echo 'x'; exit($s);"),
    ("fatal", "echo $s; nonsense();"),
    ("shutdown", "register_shutdown_function(function () use ($t) { echo $t; }); echo $s;"),
    (
        "session",
        "session_save_path('.'); session_id('abc'); session_start(['use_cookies' => 0]); echo $s;",
    ),
    ("warning", "ini_set('display_errors', '1'); echo $s; echo $nothing;"),
    ("memory", "echo $s; ini_set('memory_limit', '8M'); echo str_repeat('x', 50 << 20);"),
    ("sendfile", "header('X-Sendfile: ' . __DIR__ . '/b'); echo $s;"),
];

/// Scripts that ask for no file, or do so when the response has begun.
const LATE_USES: &[(&str, &str)] = &[
    ("hello", "echo 'hello';"),
    ("hello-status", "http_response_code(404); echo 'hello';"),
    ("hello-callback", "header_register_callback(function () { echo 'early'; }); echo 'x';"),
    ("hello-flush", "echo 'a'; @ob_flush(); flush(); echo 'b';"),
    ("hello-finish", "echo 'a'; fastcgi_finish_request(); echo 'unseen';"),
    ("after-flush", "echo 'a'; @ob_flush(); flush(); readfile('a');"),
    ("shutdown-file", "register_shutdown_function(function () { readfile('a'); }); echo 'x';"),
    (
        "destructor-file",
        "class D { function __destruct() { echo 'y'; @ob_flush(); flush(); readfile('a'); } } $d = new D; echo 'x';",
    ),
    ("buffer-file", "ob_start(fn ($b) => $b . file_get_contents('a')); echo 'x';"),
];

fn site() -> Site {
    let site = Site::with("env.php", ENV);
    site.write("a", pattern(1, 100_000));
    site.write("b", pattern(2, 30_000));
    for (name, code) in USES {
        let read = "$s = file_get_contents('a'); $t = file_get_contents('b');";
        site.write(&format!("{name}.php"), format!("<?php {read} {code}"));
    }
    for (name, code) in LATE_USES {
        site.write(&format!("{name}.php"), format!("<?php {code}"));
    }
    site
}

fn with_buffering(buffering: &str) -> String {
    format!("php_admin_value[output_buffering] = {buffering}")
}

#[test]
fn files_are_handed_over() {
    let extended = Extended::start(site(), &with_buffering("4096"), &["--threads", "2"]);
    let (a, b) = (pattern(1, 100_000), pattern(2, 30_000));
    for (code, handed_over, body) in [
        ("readfile('a');", 100_000, a.clone()),
        ("echo file_get_contents('a'), file_get_contents('b');", 130_000, [&a[..], &b].concat()),
        ("echo 'x'; echo file_get_contents('b'); echo 'y';", 30_000, [b"x", &b[..], b"y"].concat()),
        ("echo 'x'; flush(); readfile('b');", 30_000, [b"x", &b[..]].concat()),
        ("$f = fopen('a', 'r'); while (!feof($f)) echo fread($f, 8192);", 80_000, a.clone()),
    ] {
        let (response, (given, copied)) = extended.counted(code);
        assert_eq!(response.expect(200), body, "{code}");
        assert_eq!(response.header("X-Sendoff"), None);
        assert!(given >= handed_over, "{code}: {given} bytes handed over");
        let head = 500;
        assert!(copied < body.len() as u64 - given + head, "{code}: {copied} bytes copied");
    }
}

/// Sends every request twice: the first time files are read, the second time they are held.
fn compare(stock: &Stock, ask: impl Fn(&Request) -> sendoff_tests::Response) {
    for (name, _) in USES.iter().chain(LATE_USES) {
        // nginx knows nothing of X-Sendfile.
        if *name == "sendfile" {
            continue;
        }
        for request in [
            Request::get(&format!("/{name}.php")),
            Request::get(&format!("/{name}.php")),
            Request::new("HEAD", &format!("/{name}.php")),
            Request::get(&format!("/{name}.php")).http10(),
        ] {
            assert_same(name, &stock.ask(&request), &ask(&request));
        }
    }
}

#[test]
fn the_bytes_are_those_of_stock_php_fpm() {
    for buffering in ["0", "4096", "On"] {
        let extended = Extended::start(site(), &with_buffering(buffering), &[]);
        let setting = format!("output_buffering={buffering}");
        let stock = Stock::start(extended.site.root(), &[&setting]);
        compare(&stock, |request| extended.server.ask(request));
        assert_eq!(extended.server.get("/sendfile.php").expect(200), pattern(2, 30_000));
    }
}

#[test]
fn scripts_see_nothing_of_it() {
    let extended = Extended::start(site(), "", &[]);
    let stock = Stock::start(extended.site.root(), &[]);
    for request in [
        Request::get("/env.php?a=1"),
        Request::post("/env.php", "application/x-www-form-urlencoded", "c=3&d=4"),
    ] {
        assert_same("env.php", &stock.ask(&request), &extended.server.ask(&request));
    }
    let code = "foreach (['SENDOFF_CHANNEL', 'SENDOFF_ACCEPT'] as $name) {
            var_dump(getenv($name), isset($_SERVER[$name]), isset($_ENV[$name]), filter_input(INPUT_SERVER, $name),
                filter_input(INPUT_ENV, $name), isset(getenv()[$name]));
        }";
    let (response, _) = extended.counted(code);
    let none = "bool(false)\nbool(false)\nbool(false)\nNULL\nNULL\nbool(false)\n";
    assert_eq!(response.text(), none.repeat(2));
}

/// A process that hands nothing over has no links, and no thread that guards files.
#[test]
fn the_channel_is_opened_for_the_first_file() {
    let extended = Extended::start(site(), "pm.max_children = 1", &[]);
    let pid = extended.fpm.running()[0];
    let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count();
    let sockets = || processes::unix_sockets(pid);
    for name in ["quick", "hello", "hello-flush", "hello-finish"] {
        extended.server.get(&format!("/{name}.php"));
    }
    let before = sockets();
    assert_eq!(threads(), 1);
    // The first file of the process is handed over, and the channel stays.
    extended.site.write("first.php", "<?php readfile('a'); echo sendoff_stats()['segments'];");
    assert!(extended.server.get("/first.php").body.ends_with(b"1"));
    assert_eq!(threads(), 2);
    assert!(sockets() > before);
}

/// With another `server_software` the extension still knows its front, and clients cannot pretend
/// to be a front.
#[test]
fn the_front_is_known_under_any_name() {
    let software = ["--server-software", "nginx/1.22"];
    let extended = Extended::start(site(), "", &software);
    let (response, (given, _)) = extended.counted("readfile('a');");
    assert_eq!(response.expect(200), pattern(1, 100_000));
    assert!(given >= 100_000, "{given} bytes handed over");
    let code = "var_dump($_SERVER['SERVER_SOFTWARE'], getenv('SENDOFF_FRONT'), isset($_SERVER['SENDOFF_FRONT']),
        isset(getenv()['SENDOFF_FRONT']), $_SERVER['HTTP_SENDOFF_FRONT'] ?? null);";
    extended.site.write("front.php", format!("<?php {code}"));
    let request = Request::get("/front.php").header("Sendoff-Front", "1");
    let seen =
        "string(10) \"nginx/1.22\"\nbool(false)\nbool(false)\nbool(false)\nstring(1) \"1\"\n";
    assert_eq!(extended.server.ask(&request).text(), seen);
    // A route may change the name as well, and a folder may not make the announcements of a front.
    let route = Extended::start(site(), "", &["--param", "SERVER_SOFTWARE=Apache"]);
    assert!(route.counted("readfile('a');").1.0 >= 100_000);
}

/// Behind nginx no field of a client makes the extension take it for a front.
#[test]
fn a_client_cannot_be_a_front() {
    let site = site();
    site.write("stats.php", "<?php readfile('a'); var_dump(sendoff_stats()['handed_over_bytes']);");
    let stock = Stock::start(site.root(), &[&extension()]);
    for name in ["Sendoff-Front", "SENDOFF_FRONT", "Sendoff_Front"] {
        let response = stock.ask(&Request::get("/stats.php").header(name, "1"));
        assert!(response.text().ends_with("int(0)\n"));
        assert_eq!(response.header("X-Sendoff"), None);
    }
}

/// Behind another web server nothing is handed over, and all responses are equal.
#[test]
fn behind_nginx_it_is_silent() {
    let site = site();
    site.write("stats.php", "<?php readfile('a'); var_dump(sendoff_stats()['handed_over_bytes']);");
    for buffering in ["0", "4096"] {
        let setting = format!("output_buffering={buffering}");
        let stock = Stock::start(site.root(), &[&setting]);
        let extended = Stock::start(site.root(), &[&setting, &extension()]);
        compare(&stock, |request| extended.ask(request));
        for request in [Request::get("/env.php?a=1"), Request::post("/env.php", "text/plain", "x")]
        {
            assert_same("env.php", &stock.ask(&request), &extended.ask(&request));
        }
        assert!(extended.ask(&Request::get("/stats.php")).text().ends_with("int(0)\n"));
    }
}

/// No descriptor passes over TCP, so there the front does not announce anything.
#[test]
fn over_tcp_and_without_leave_to_hand_files_over_it_is_silent() {
    let site = site();
    site.write("stats.php", "<?php readfile('a'); var_dump(sendoff_stats()['handed_over_bytes']);");
    let fpm = Fpm::start_tcp_with(site.root(), "", &[&extension()]);
    let tcp = Server::start(site.root(), &["--fastcgi", &fpm.php()]);
    let unix = Fpm::start_with(site.root(), "", &[&extension()]);
    let relay = Server::start(site.root(), &["--fastcgi", &unix.php(), "--delivery", "relay"]);
    let copy = Server::start(site.root(), &["--fastcgi", &unix.php(), "--snapshot", "copy"]);
    for server in [tcp, relay, copy] {
        for _ in 0..3 {
            let response = server.get("/stats.php");
            assert!(response.text().ends_with("int(0)\n"));
            assert_eq!(response.header("x-sendoff"), None);
        }
    }
}

/// A slow client does not hold the process, because the front has custody of the file.
#[test]
fn a_slow_client_frees_the_process_at_once() {
    let site = site();
    let len = 100 << 20;
    site.write("huge", pattern(5, len));
    site.write("huge.php", "<?php readfile('huge');");
    let extended = Extended::start(site, "pm.max_children = 1", &[]);
    let mut slow = Client::connect_narrow(extended.server.addr(), 4096);
    slow.send(Request::get("/huge.php").bytes());
    slow.read(1000);
    let before = Instant::now();
    assert_eq!(extended.server.page("/quick.php"), "quick");
    let waited = before.elapsed();
    assert!(waited < Duration::from_secs(1), "the process was free after {waited:?}");
    slow.stream().set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    drop(slow);
    let whole = extended.server.get("/huge.php");
    assert!(whole.expect(200) == pattern(5, len));
}

#[test]
fn a_response_streams() {
    let site = site();
    let go_on = site.fifo("go-on");
    site.write(
        "stream.php",
        "<?php readfile('b'); flush(); file_get_contents('go-on'); echo 'more'; flush();
        file_get_contents('go-on'); readfile('b');",
    );
    let extended = Extended::start(site, &with_buffering("0"), &[]);
    let mut client = extended.server.connect();
    client.send(Request::get("/stream.php").bytes());
    client.head().unwrap();
    let mut got = Vec::new();
    while got.len() < 30_000 {
        got.extend(client.chunk());
    }
    go_on.release();
    assert_eq!(client.chunk(), b"more");
    go_on.release();
    while got.len() < 60_000 {
        got.extend(client.chunk());
    }
    assert!(got == [pattern(2, 30_000), pattern(2, 30_000)].concat());
    assert!(client.chunk().is_empty());
}

#[test]
fn php_cgi_hands_files_over_too() {
    let site = site();
    site.write("stats.php", "<?php readfile('a'); var_dump(sendoff_stats()['handed_over_bytes']);");
    let socket = site.outside("cgi.sock");
    let mut command = Command::new("setpriv");
    if rustix::process::getuid().is_root() {
        command.args(["--reuid=www-data", "--regid=www-data", "--clear-groups"]);
    }
    let mut cgi = command
        .args([
            "--pdeathsig",
            "KILL",
            "--",
            &format!("/usr/bin/php-cgi{PHP_VERSION}"),
            "-d",
            &extension(),
            "-b",
        ])
        .arg(&socket)
        .env("PHP_FCGI_MAX_REQUESTS", "0")
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    sendoff_tests::wait::for_some("php-cgi", || {
        std::os::unix::net::UnixStream::connect(&socket).ok()
    });
    let address = format!(".php=unix:{}", socket.display());
    let mut server = Server::start(site.root(), &["--fastcgi", &address]);
    server.expect_linked_processes(1);
    for expected in ["int(0)\n", "int(100000)\n", "int(100000)\n"] {
        let response = server.get("/stats.php");
        assert!(response.body.starts_with(&pattern(1, 100_000)));
        assert_eq!(String::from_utf8_lossy(&response.body[100_000..]), expected);
    }
    cgi.kill().unwrap();
    cgi.wait().unwrap();
}
