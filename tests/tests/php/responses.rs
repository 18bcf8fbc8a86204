//! All kinds of responses of scripts: equal to php-fpm's responses in every byte and every header.

use sendoff_tests::{Fpm, Pair, Request, Server, Site, Stock};

/// One behaviour per script. Each is requested with GET and HEAD, with `output_buffering` 0, 4096
/// and On.
const RESPONSES: &[(&str, &str)] = &[
    ("hello", "<?php echo 'hello';"),
    ("nothing", "<?php"),
    ("html", "<p>before</p>\n<?php echo 1 + 1 ?>\n<p>after</p>\n"),
    ("echo-list", "<?php echo 'a', 'b', 3, 4.5, true, null; print 'c';"),
    ("large", "<?php for ($i = 0; $i < 20000; $i++) echo md5($i), \"\\n\";"),
    ("exit", "<?php echo 'before'; exit('message'); echo 'never';"),
    ("exit-code", "<?php echo 'before'; exit(3);"),
    ("exit-in-function", "<?php function f() { echo 'in'; exit; } f();"),
    ("status", "<?php http_response_code(404); echo 'not here';"),
    ("status-418", "<?php header(\"HTTP/1.1 418 I'm a teapot\"); echo 'short and stout';"),
    ("status-reason", "<?php header('HTTP/1.1 200 Everything is fine'); echo 1;"),
    ("status-unknown", "<?php http_response_code(299); echo 1;"),
    ("status-header", "<?php header('Status: 503 Busy'); echo 'busy';"),
    ("status-only-503", "<?php http_response_code(503);"),
    ("created", "<?php header('Location: /new', true, 201); echo 'made';"),
    ("redirect", "<?php header('Location: /elsewhere?x=1');"),
    ("redirect-absolute", "<?php header('Location: http://other.test/', true, 301); exit;"),
    ("no-content", "<?php http_response_code(204);"),
    ("no-content-with-body", "<?php http_response_code(204); echo 'ignored';"),
    ("not-modified", "<?php header('ETag: \"e\"'); http_response_code(304);"),
    ("type", "<?php header('Content-Type: text/plain; charset=iso-8859-1'); echo 'text';"),
    ("type-empty", "<?php header('Content-Type:'); echo 'untyped';"),
    (
        "type-removed",
        "<?php header_remove('Content-Type'); ini_set('default_mimetype', ''); echo 'x';",
    ),
    ("charset", "<?php ini_set('default_charset', 'koi8-r'); echo 'x';"),
    (
        "duplicates",
        "<?php header('X-A: 1'); header('X-A: 2', false); header('x-a: 3', false); header('X-B: 1'); header('X-B: 2');",
    ),
    (
        "cookies",
        "<?php setcookie('a', 'x y', 0, '/'); setcookie('b', '2', ['httponly' => true, 'samesite' => 'Lax']); setrawcookie('c', 'raw'); echo 1;",
    ),
    (
        "headers-sent",
        "<?php echo str_repeat('x', 9000); flush(); var_dump(headers_sent()); @header('X-Late: 1');",
    ),
    (
        "headers-list",
        "<?php header('X-One: 1'); header_remove('X-One'); header('X-Two:2'); echo json_encode(headers_list());",
    ),
    (
        "header-callback",
        "<?php header_register_callback(function () { header('X-Callback: 1'); }); echo 'x';",
    ),
    ("type-and-default", "<?php header('Content-Type: text/plain', false); echo 'x';"),
    ("name-underscore", "<?php header('X_Y: 1'); header('X-Next: 1'); echo 'x';"),
    ("value-tab", "<?php header(\"X-Y: a\\tb\"); header('X-Next: 1'); echo 'x';"),
    ("status-line-late", "<?php header('X-A: 1'); header('http/1.1 404 Not Found'); echo 'x';"),
    ("status-glued", "<?php header('Status:404 Not Found'); echo 'x';"),
    ("content-length", "<?php header('Content-Length: 5'); echo 'exact';"),
    ("content-length-zero", "<?php header('Content-Length: 0');"),
    ("fatal", "<?php echo 'before'; undefined_function(); echo 'never';"),
    ("fatal-late", "<?php echo str_repeat('x', 9000); undefined_function();"),
    ("exception", "<?php throw new RuntimeException('uncaught');"),
    ("parse-error", "<?php echo 'a' 'b';"),
    (
        "warning",
        "<?php echo $undefined; echo 1 / 3; trigger_error('w', E_USER_WARNING); echo 'on';",
    ),
    (
        "display-errors",
        "<?php ini_set('display_errors', '1'); echo $undefined; undefined_function();",
    ),
    (
        "memory",
        "<?php ini_set('memory_limit', '8M'); echo 'a'; $s = str_repeat('x', 20 << 20); echo 'never';",
    ),
    ("time-limit", "<?php echo 'spinning'; set_time_limit(1); while (true);"),
    (
        "shutdown",
        "<?php register_shutdown_function(function () { echo 'shutdown'; }); echo 'main;'; exit(' exit;');",
    ),
    (
        "shutdown-after-fatal",
        "<?php register_shutdown_function(function () { echo error_get_last()['message']; }); nope();",
    ),
    (
        "destructor",
        "<?php class D { function __destruct() { echo 'destroyed'; } } $d = new D; echo 'main;';",
    ),
    (
        "ob",
        "<?php ob_start(); echo 'a'; ob_start(fn ($s) => strrev($s)); echo 'cba'; ob_end_flush(); echo ob_get_level(); $x = ob_get_clean(); echo strtoupper($x);",
    ),
    (
        "ob-level",
        "<?php echo ob_get_level(), json_encode(ob_get_status(true)), ini_get('output_buffering');",
    ),
    ("ob-clean", "<?php echo 'gone'; if (ob_get_level()) ob_clean(); echo 'kept';"),
    ("gzip", "<?php ob_start('ob_gzhandler'); echo str_repeat('compress me ', 1000);"),
    (
        "php-output",
        "<?php $o = fopen('php://output', 'w'); fwrite($o, 'one'); echo 'two'; fwrite($o, str_repeat('three', 3000)); printf('%05d', 4);",
    ),
    ("include", "<?php echo include 'value.inc'; echo get_include_path();"),
    (
        "readfile",
        "<?php echo readfile(__FILE__); readfile('value.inc'); fpassthru(fopen('value.inc', 'r'));",
    ),
    (
        "missing-file",
        "<?php var_dump(@file_get_contents('nope')); echo error_get_last()['message'];",
    ),
    ("utf8-bom", "\u{feff}<?php header('X-After-Bom: 1'); echo 'x';"),
    (
        "binary",
        "<?php header('Content-Type: application/octet-stream'); for ($i = 0; $i < 256; $i++) echo chr($i);",
    ),
    ("shebang", "#!/usr/bin/php\n<?php echo 'after the shebang';"),
    ("phpversion", "<?php echo PHP_VERSION, PHP_SAPI, php_sapi_name(), PHP_OS, PHP_ZTS;"),
    ("implicit", "<?php ob_implicit_flush(); for ($i = 0; $i < 10; $i++) echo $i;"),
    (
        "gc",
        "<?php for ($i = 0; $i < 30000; $i++) { $a = []; $a[] = &$a; } echo gc_collect_cycles() >= 0 ? 'ok' : '';",
    ),
    ("generator", "<?php function g() { yield from range(1, 5); } foreach (g() as $v) echo $v;"),
    (
        "fiber",
        "<?php $f = new Fiber(function () { echo Fiber::suspend(1); }); echo $f->start(); $f->resume('resumed');",
    ),
    ("exec", "<?php echo shell_exec('echo from a shell');"),
    ("default-timezone", "<?php echo date_default_timezone_get(), setlocale(LC_ALL, 0);"),
];

/// nginx passes such lines on, `NoColon` with an empty value. For white space in a name both answer
/// with 502.
#[test]
fn a_line_that_is_no_header_field_is_dropped_and_logged() {
    let site = Site::new();
    let lines = ["NoColon", "X@Y: 1", "X-N\u{e9}: 1", "X-Y: a\u{1}b"];
    for (number, line) in lines.iter().chain(&["X Y: 1", ": 1"]).enumerate() {
        let script = format!(
            "<?php header(\"{line}\"); header('X-Next: 1'); echo str_repeat('x', (int)$_GET['n']);"
        );
        site.write(&format!("{number}.php"), script);
    }
    let server = Server::start(site.root(), &[]);
    for (number, line) in lines.iter().enumerate() {
        // The second response is large enough to be written to the client's socket by the worker.
        for n in [1, 100_000] {
            let page = server.get(&format!("/{number}.php?n={n}"));
            assert_eq!(page.expect(200).len(), n, "{line:?}");
            assert_eq!(page.header("X-Next"), Some("1"), "{line:?}");
            let name = line.split(':').next().unwrap();
            assert_eq!(page.header(name), None, "{line:?}");
        }
        let shown = line.as_bytes().escape_ascii();
        server.await_log(&format!("a line that is no header field, which is dropped: {shown}"));
    }
    for number in lines.len()..lines.len() + 2 {
        assert_eq!(server.get(&format!("/{number}.php?n=1")).status(), 502);
    }
}

/// Clients may have sent the reason; nginx passes it on.
#[test]
fn a_control_character_in_a_reason_leaves_the_status() {
    let site = Site::with(
        "line.php",
        "<?php header(\"HTTP/1.1 $_GET[s] No: a$_GET[m]b\"); echo str_repeat('x', (int)$_GET['n']);",
    );
    site.write(
        "field.php",
        "<?php header(\"Status: $_GET[s] No: a$_GET[m]b\"); echo str_repeat('x', (int)$_GET['n']);",
    );
    let pair = Pair::start(&site, &[]);
    let fpm = Fpm::start(site.root(), "");
    let by_fpm = Server::start(site.root(), &["--fastcgi", &fpm.php()]);
    for (name, status) in [("line", 403), ("line", 500), ("line", 302), ("field", 404)] {
        for (character, n) in [("%1b", 1), ("%01", 1), ("%7f", 1), ("%1b", 100_000)] {
            let target = format!("/{name}.php?s={status}&m={character}&n={n}");
            let stock = pair.stock.ask(&Request::get(&target));
            assert_eq!(stock.status(), status, "{target}");
            for server in [&pair.ours, &by_fpm] {
                let ours = server.get(&target);
                assert_eq!(ours.status(), status, "{target}");
                assert!(ours.body == stock.body, "{target}");
                assert!(!ours.head.reason.contains(char::is_control), "{target}");
            }
        }
        let kept = pair.ours.get(&format!("/{name}.php?s={status}&m=%09&n=1"));
        assert_eq!(&*kept.head.reason, if kept.is_multiplexed() { "" } else { "No: a\tb" });
    }
    for server in [&pair.ours, &by_fpm] {
        server.await_log("a reason phrase with a control character, which is dropped");
    }
}

/// nginx obeys or ignores such fields.
#[test]
fn a_control_character_in_a_field_that_the_server_obeys_is_a_failure() {
    let site = Site::new();
    let fields = [
        "X-Accel-Redirect: /x",
        "X-Accel-Expires: 0",
        "X-Sendfile: /x",
        "X-Sendfile2: /x",
        "x-litespeed-location: /x",
        "X-Reproxy-URL: http://x/",
        "Location: /x",
        "Content-type: text/plain",
    ];
    for (number, field) in fields.iter().enumerate() {
        let script = format!(
            "<?php header('NoColon'); header('X-Next: 1'); header(\"{field}\\x01\"); echo str_repeat('x', (int)$_GET['n']);"
        );
        site.write(&format!("{number}.php"), script);
    }
    let fpm = Fpm::start(site.root(), "");
    for options in [&[][..], &["--fastcgi", &fpm.php()]] {
        let server = Server::start(site.root(), options);
        for (number, field) in fields.iter().enumerate() {
            for n in [1, 100_000] {
                assert_eq!(server.get(&format!("/{number}.php?n={n}")).status(), 502, "{field}");
            }
            let what = "a control character in a field that the server obeys";
            server.await_log(&format!("it sent {what}: {field}"));
        }
    }
}

/// nginx since 1.23 takes the first of each.
#[test]
fn the_last_of_several_content_types_counts_and_all_locations() {
    let types = "<?php header('Content-Type: text/plain'); header('Content-Type: text/css', false); header('content-type: text/csv', false); echo 'x';";
    let locations = "<?php header('Location: /a'); header('Location: /b', false); echo 'x';";
    let site = Site::with("types.php", types);
    site.write("locations.php", locations);
    for buffering in ["0", "4096", "On"] {
        let pair = Pair::start(&site, &[&format!("output_buffering={buffering}")]);
        let ask = |method, target| {
            let request = Request::new(method, target);
            if Stock::is_lenient() { pair.same(&request) } else { pair.ours.ask(&request) }
        };
        for method in ["GET", "HEAD"] {
            let ours = ask(method, "/types.php");
            assert_eq!(ours.status(), 200);
            assert_eq!(ours.header("Content-Type"), Some("text/csv;charset=UTF-8"));
            let ours = ask(method, "/locations.php");
            assert_eq!(ours.status(), 302);
            assert_eq!(ours.head.all("Location").collect::<Vec<_>>(), ["/a", "/b"]);
        }
    }
}

fn answers_as_stock(buffering: &str) {
    let site = Site::with("value.inc", "<?php return \"a value\\n\";");
    for (name, script) in RESPONSES {
        site.write(&format!("{name}.php"), script);
    }
    let setting = format!("output_buffering={buffering}");
    let pair = Pair::start(&site, &[&setting]);
    for (name, _) in RESPONSES {
        let target = format!("/{name}.php");
        pair.same_page(&target);
        if *name != "time-limit" {
            pair.same(&Request::new("HEAD", &target));
        }
    }
    // One script's effects on PHP must not reach the next one: all scripts run again, in another
    // order, on one connection.
    let mut client = pair.ours.connect();
    for (name, _) in RESPONSES.iter().rev().filter(|(name, _)| !name.starts_with("time")) {
        let request = Request::get(&format!("/{name}.php"));
        let ours = client.ask(&request);
        sendoff_tests::assert_same(name, &pair.stock.ask(&request), &ours);
        if ours.head.closes() {
            client = pair.ours.connect();
        }
    }
}

#[test]
fn unbuffered() {
    answers_as_stock("0");
}

#[test]
fn buffered_as_debian_does() {
    answers_as_stock("4096");
}

#[test]
fn buffered_whole() {
    answers_as_stock("On");
}

#[test]
fn sessions_last_from_page_to_page() {
    let site = Site::with(
        "s.php",
        "<?php session_start(); echo $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;",
    );
    let server = Server::start(site.root(), &[]);
    let first = server.get("/s.php");
    assert_eq!(first.text(), "1");
    let cookie = first.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    for expected in 2..20 {
        let request = Request::get("/s.php").header("Cookie", &cookie);
        assert_eq!(server.ask(&request).text(), expected.to_string());
    }
    assert_eq!(server.page("/s.php"), "1");
}

#[test]
fn settings_and_extensions_are_those_of_fpm() {
    let script = "<?php
        $ours = fn ($name) => !preg_match('/^(cgi|fastcgi|fpm|sendoff)/', $name);
        $extensions = array_filter(get_loaded_extensions(), $ours);
        sort($extensions);
        $ini = array_filter(ini_get_all(null, false), $ours, ARRAY_FILTER_USE_KEY);
        ksort($ini);
        echo php_ini_loaded_file(), php_ini_scanned_files(), \"\\n\";
        echo json_encode([$extensions, $ini], JSON_PRETTY_PRINT);";
    let site = Site::with("ini.php", script);
    let pair =
        Pair::start(&site, &["memory_limit=77M", "date.timezone=Asia/Tokyo", "short_open_tag=1"]);
    let page = pair.same_page("/ini.php").text();
    assert!(page.contains("\"memory_limit\": \"77M\""), "{page}");
}

#[test]
fn settings_made_by_a_script_end_with_it() {
    let site = Site::with(
        "set.php",
        "<?php echo ini_get('memory_limit'), setlocale(LC_ALL, 0), umask(); ini_set('memory_limit', '33M'); setlocale(LC_ALL, 'C.UTF-8'); umask(0777); chdir('/'); putenv('A=b'); define('X', 1); function once() {}",
    );
    let server = Server::start(site.root(), &["--workers", "1"]);
    let first = server.page("/set.php");
    assert_eq!(server.page("/set.php"), first);
}

#[test]
fn caches_are_shared_by_the_workers() {
    let script = "<?php apcu_inc('n'); usleep(20000);
        echo opcache_get_status(false)['opcache_enabled'] ? 'opcache' : 'no opcache', ' ', getmypid(), ' ', apcu_fetch('n');";
    let site = Site::with("c.php", script);
    let server = Server::start(site.root(), &[]);
    let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
    let mut workers = std::collections::HashSet::new();
    let mut highest = 0;
    for _ in 0..5 {
        for client in &mut clients {
            client.send(Request::get("/c.php").bytes());
        }
        for client in &mut clients {
            let page = client.response("GET").text();
            let mut words = page.strip_prefix("opcache ").expect(&page).split(' ');
            workers.insert(words.next().unwrap().to_owned());
            highest = highest.max(words.next().unwrap().parse::<u32>().unwrap());
        }
    }
    assert_eq!(highest, 20);
    assert_eq!(workers.len(), 4, "four requests at a time take four workers");
}

#[test]
fn what_scripts_log_is_in_the_log() {
    let script = "<?php error_log('by error_log'); file_put_contents('php://stderr', \"by stderr\\n\"); echo $undefined; nope();";
    let site = Site::with("log.php", script);
    let server = Server::start(site.root(), &[]);
    server.get("/log.php").expect(500);
    for line in [
        "by error_log",
        "by stderr",
        "Undefined variable $undefined",
        "Call to undefined function nope()",
    ] {
        server.await_log(line);
    }
}

#[test]
fn ten_megabytes_of_generated_output() {
    let script = "<?php mt_srand(1); for ($i = 0; $i < 10 << 20; $i += 1000) echo str_repeat(chr(65 + mt_rand(0, 25)), 1000);";
    let site = Site::with("big.php", script);
    let pair = Pair::start(&site, &[]);
    assert!(pair.same_page("/big.php").body.len() >= 10 << 20);
    // A client that leaves in the middle affects no other request.
    for _ in 0..8 {
        let mut client = pair.ours.connect();
        client.send(Request::get("/big.php").bytes());
        client.read(1000);
    }
    assert!(pair.same_page("/big.php").body.len() >= 10 << 20);
}
