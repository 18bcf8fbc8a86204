//! Files inside pages: the bytes of the unmodified runtime, also if the file changes.

use sendoff_tests::{Client, Pair, Request, Server, Site, pattern};
use std::fs::{self, OpenOptions};
use std::io::{Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

const BUFFERINGS: [&str; 3] = ["0", "4096", "On"];

/// Uses of the contents of files: `$s` and `$t` are read from two files.
const USES: &[(&str, &str)] = &[
    ("echo", "echo $s;"),
    ("papers", "echo 'hello'; echo $s; echo 'world'; echo $t; echo 'bye';"),
    ("list", "echo 'a', $s, 'b', $t, $s;"),
    ("print", "print $s; print 'x'; print $t;"),
    ("tag", "?>before <?= $s ?> after <?= $t ?> end<?php"),
    ("twice", "echo $s; echo $s; $u = $s; echo $u;"),
    ("readfile", "echo readfile('a'), '|', readfile('b');"),
    ("passthru", "$f = fopen('a', 'r'); fseek($f, 1000); echo fpassthru($f);"),
    ("copy", "stream_copy_to_stream(fopen('a', 'r'), fopen('php://output', 'w'));"),
    ("pieces", "$f = fopen('a', 'r'); while (!feof($f)) echo fread($f, 8192);"),
    ("direct", "echo file_get_contents('a'), file_get_contents('b');"),
    ("part", "echo file_get_contents('a', false, null, 100, 20000);"),
    ("length", "header('Content-Length: ' . strlen($s)); echo $s;"),
    ("length-of-two", "header('Content-Length: ' . (strlen($s) + strlen($t))); echo $s, $t;"),
    ("strlen", "echo strlen($s), ' ', md5($s), ' ', crc32($t);"),
    ("substr", "echo substr($s, 10, 30000), substr($s, 0), substr($s, -5);"),
    ("change", "$s[0] = 'X'; $s[strlen($s) - 1] = 'Y'; echo $s;"),
    ("append", "$s .= 'more'; echo $s; $s .= $t; echo $s;"),
    ("concatenate", "echo $s . $t; echo \"<$s>\"; echo <<<E\n$s\nE;"),
    ("replace", "echo str_replace('a', 'bb', $s), strrev($t), strtoupper($s);"),
    ("same", "echo trim($s), str_replace(\"\\0no\\0\", '', $t), strval($s), implode('', [$s]);"),
    ("format", "printf('%s|%s', $s, $t); echo sprintf('%.5s', $s); vprintf('%s', [$t]);"),
    (
        "encode",
        "echo base64_encode($s), serialize($t), bin2hex(substr($s, 0, 50)); var_dump(unserialize(serialize($s)) === $s);",
    ),
    (
        "compare",
        "var_dump($s == $t, $s === file_get_contents('a'), $s <=> $t, strcmp($s, $t), in_array($s, [$t, $s], true));",
    ),
    ("key", "$a = [$s => 1, $t => 2]; echo count($a), array_keys($a)[0], isset($a[$t]);"),
    (
        "regex",
        "echo preg_match('/[a-z]{2,}/', $s, $m), json_encode(bin2hex($m[0] ?? '')), strlen(preg_replace('/a/', '', $t)); echo count(explode('a', $s));",
    ),
    ("capture", "ob_start(); echo $s; $u = ob_get_clean(); echo strlen($u), md5($u), $u;"),
    (
        "nested",
        "ob_start(); echo 'x'; ob_start(); echo $s; ob_end_flush(); echo 'y'; ob_end_flush(); echo $t;",
    ),
    ("callback", "ob_start(fn ($b) => strtoupper($b)); echo 'abc', $s; ob_end_flush();"),
    ("chunked-buffer", "ob_start(null, 10000); echo 'abc'; echo $s; echo 'def'; ob_end_flush();"),
    (
        "flush",
        "echo 'a'; flush(); echo $s; flush(); echo 'b'; if (ob_get_level()) ob_flush(); flush(); echo $t;",
    ),
    ("exit", "echo 'x'; exit($s);"),
    ("shutdown", "register_shutdown_function(function () use ($s) { echo $s; }); echo 'main';"),
    (
        "destructor",
        "class D { public $v; function __destruct() { echo $this->v; } } $d = new D; $d->v = $s; echo 'main';",
    ),
    (
        "toString",
        "class T { public $v; function __toString() { return $this->v; } } $o = new T; $o->v = $s; echo $o, $o;",
    ),
    ("generator", "function g($s, $t) { yield $s; yield $t; } foreach (g($s, $t) as $v) echo $v;"),
    ("reference", "$r = &$s; $r = $t; echo $s; function f(&$x) { $x .= '!'; } f($t); echo $t;"),
    (
        "static",
        "class S { static $v; } S::$v = $s; echo S::$v; define('CONSTANT', $t); echo CONSTANT; $GLOBALS['g'] = $s; echo $g;",
    ),
    (
        "apcu",
        "apcu_store('k', $s); echo apcu_fetch('k'); apcu_store('l', [$t]); echo apcu_fetch('l')[0];",
    ),
    (
        "output-stream",
        "$o = fopen('php://output', 'w'); fwrite($o, $s); fwrite($o, 'x'); fwrite($o, $t); file_put_contents('php://output', $s);",
    ),
    (
        "write",
        "file_put_contents('copy', $s); echo md5_file('copy'), file_get_contents('copy'); unlink('copy');",
    ),
    ("unlinked", "copy('a', 'gone'); $u = file_get_contents('gone'); unlink('gone'); echo $u;"),
    (
        "renamed",
        "copy('a', 'one'); $u = file_get_contents('one'); copy('b', 'two'); rename('two', 'one'); echo $u, file_get_contents('one'); unlink('one');",
    ),
    ("loop", "for ($i = 0; $i < 20; $i++) { echo $i, file_get_contents($i % 2 ? 'a' : 'b'); }"),
    (
        "array",
        "echo implode('-', [$s, 'x', $t]), json_encode(array_map('strlen', [$s, $t])); foreach (str_split($s, 5000) as $p) echo $p;",
    ),
    (
        "exception",
        "try { throw new Exception($s); } catch (Exception $e) { echo $e->getMessage(); }",
    ),
    ("fatal", "echo $s; nope();"),
    ("no-output", "http_response_code(204); echo $s;"),
    ("gzip", "echo strlen(gzencode($s)), md5(gzdeflate($t)), gzuncompress(gzcompress($s));"),
    ("xml", "echo htmlspecialchars($s, ENT_SUBSTITUTE), nl2br($t), strip_tags($s);"),
    (
        "exec",
        "$p = proc_open('cat', [['pipe', 'r'], ['pipe', 'w']], $pipes); fwrite($pipes[0], substr($s, 0, 20000)); fclose($pipes[0]); echo stream_get_contents($pipes[1]); proc_close($p);",
    ),
];

#[test]
fn every_use_of_a_file_gives_the_bytes_stock_php_gives() {
    // Around the threshold, whole pages and not, and large.
    for (number, (one, other)) in
        [(16_384, 16_383), (40_960, 20_001), (300_001, 65_536)].into_iter().enumerate()
    {
        let site = Site::new();
        site.write("a", pattern(1, one));
        site.write("b", pattern(2, other));
        for (name, code) in USES {
            site.write(
                &format!("{name}.php"),
                format!("<?php $s = file_get_contents('a'); $t = file_get_contents('b'); {code}"),
            );
        }
        let setting = format!("output_buffering={}", BUFFERINGS[number]);
        let pair = Pair::start(&site, &[&setting]);
        // Twice: the second time from mappings that were kept.
        for _ in 0..2 {
            for (name, _) in USES {
                pair.same_page(&format!("/{name}.php"));
            }
        }
    }
}

#[test]
fn the_papers_example_in_every_size_and_buffering() {
    let site = Site::with(
        "page.php",
        "<?php echo 'hello'; echo file_get_contents($_GET['a']); echo 'world'; echo file_get_contents($_GET['b']); echo 'bye';",
    );
    let sizes = [0, 1, 4095, 16_384, 60_000, 200_000, 1 << 20, 30 << 20];
    for size in sizes {
        site.write(&format!("f{size}"), pattern(size as u64, size));
    }
    for buffering in BUFFERINGS {
        let memory = "memory_limit=256M";
        let setting = format!("output_buffering={buffering}");
        let server = Server::start(site.root(), &["--php-ini", &setting, "--php-ini", memory]);
        let mut client = server.connect();
        for pair in sizes.windows(2).chain([&[1 << 20, 1 << 20][..]]) {
            let (a, b) = (pair[0], pair[1]);
            let mut expected = b"hello".to_vec();
            expected.extend(pattern(a as u64, a));
            expected.extend_from_slice(b"world");
            expected.extend(pattern(b as u64, b));
            expected.extend_from_slice(b"bye");
            for _ in 0..2 {
                let response = client.ask(&Request::get(&format!("/page.php?a=f{a}&b=f{b}")));
                assert!(
                    response.expect(200) == expected,
                    "{a} and {b}, {buffering}: {} bytes",
                    response.body.len()
                );
            }
        }
    }
}

#[test]
fn the_papers_example_leaves_as_bytes_and_files() {
    let script = "<?php
        echo 'hello'; echo file_get_contents('a'); echo 'world'; echo file_get_contents('b'); echo 'bye';
        while (ob_get_level()) ob_end_flush();
        file_put_contents('stats', json_encode(sendoff_stats()));";
    let site = Site::with("page.php", script);
    site.write("a", pattern(1, 16_384));
    site.write("b", pattern(2, 1_000_000));
    for buffering in ["0", "4096"] {
        let setting = format!("output_buffering={buffering}");
        let server = Server::start(site.root(), &["--php-ini", &setting]);
        server.get("/page.php").expect(200);
        let stats = fs::read_to_string(site.path("stats")).unwrap();
        for part in ["\"handed_over_bytes\":1016384", "\"copied_bytes\":13"] {
            assert!(stats.contains(part), "output_buffering={buffering}: {stats}");
        }
    }
}

#[test]
fn many_files_in_one_page() {
    let site = Site::with(
        "many.php",
        "<?php for ($i = 0; $i < 1500; $i++) { echo $i, ':'; echo file_get_contents(\"many/$i\"); }",
    );
    let mut expected = Vec::new();
    for number in 0..1500 {
        let contents = pattern(number, 16_384 + usize::try_from(number).unwrap());
        site.write(&format!("many/{number}"), &contents);
        expected.extend_from_slice(format!("{number}:").as_bytes());
        expected.extend(contents);
    }
    let server = Server::start(site.root(), &["--workers", "2"]);
    for _ in 0..4 {
        assert!(server.get("/many.php").expect(200) == expected);
    }
}

#[test]
fn files_that_are_no_plain_files() {
    let site = Site::new();
    site.write("odd.php", "<?php
        echo file_get_contents('data:text/plain,data'), strlen(file_get_contents('/dev/null'));
        echo file_get_contents('php://filter/read=string.rot13/resource=a');
        echo file_get_contents('/proc/sys/kernel/ostype'), file_get_contents('link');
        echo var_export(@file_get_contents('.'), true), var_export(@file_get_contents(\"a\\0b\"), true);");
    site.write("a", pattern(3, 50_000));
    std::os::unix::fs::symlink("a", site.path("link")).unwrap();
    let pair = Pair::start(&site, &["display_errors=1"]);
    pair.same_page("/odd.php");
    pair.same_page("/odd.php");
}

/// The page as it stands after `round` changes; its length changes, too.
fn edition(round: u64, size: usize) -> Vec<u8> {
    format!("{round:08}").repeat(size / 8 + usize::try_from(round % 50).unwrap()).into_bytes()
}

#[test]
fn a_script_that_rewrites_what_it_has_read_sends_what_it_read() {
    // After each script the next version of the file is in place; the methods of replacing it take
    // turns.
    let script = "<?php
        [$n, $size] = [(int) $_GET['n'], (int) $_GET['size']];
        $read = file_get_contents('page');
        $next = str_repeat(sprintf('%08d', $n + 1), intdiv($size, 8) + ($n + 1) % 50);
        switch ($n % 6) {
            case 0: file_put_contents('page', $next); break;
            case 1: $f = fopen('page', 'r+'); fwrite($f, $next); ftruncate($f, strlen($next)); break;
            case 2: file_put_contents('new', $next); rename('new', 'page'); break;
            case 3: unlink('page'); file_put_contents('page', $next); break;
            case 4: $f = fopen('page', 'r+'); ftruncate($f, 0); fwrite($f, $next); break;
            case 5: file_put_contents('page', $next, LOCK_EX); break;
        }
        echo 'before', $read, 'after';";
    for (buffering, size) in [("0", 20_000), ("4096", 300_000)] {
        let site = Site::with("self.php", script);
        site.write("page", edition(0, size));
        let setting = format!("output_buffering={buffering}");
        let server = Server::start(site.root(), &["--php-ini", &setting]);
        let mut client = server.connect();
        for round in 0..1000 {
            let body = client.ask(&Request::get(&format!("/self.php?n={round}&size={size}"))).body;
            let page = body.strip_prefix(b"before").and_then(|rest| rest.strip_suffix(b"after"));
            assert!(page == Some(&*edition(round, size)), "round {round}, {} bytes", body.len());
        }
    }
}

/// Changes a file as another process would, in one of several ways. Blocks while a lease is held.
fn change(path: &Path, way: u64, contents: &[u8]) {
    let open = || OpenOptions::new().write(true).open(path).unwrap();
    match way % 5 {
        0 => fs::write(path, contents).unwrap(),
        1 => {
            let mut file = open();
            file.write_all(contents).unwrap();
            let end = file.stream_position().unwrap();
            file.set_len(end).unwrap();
        }
        2 => {
            let new = path.with_extension("new");
            fs::write(&new, contents).unwrap();
            fs::rename(new, path).unwrap();
        }
        3 => {
            open().set_len(0).unwrap();
            open().write_all_at(contents, 0).unwrap();
        }
        _ => {
            fs::remove_file(path).unwrap();
            fs::write(path, contents).unwrap();
        }
    }
}

#[test]
fn a_file_rewritten_by_another_process_is_sent_as_it_was_read() {
    let script = "<?php
        $read = file_get_contents('page');
        file_put_contents('has-read', 'yes');
        file_get_contents('go-on');
        echo $read;";
    let site = Site::with("page.php", script);
    let (has_read, go_on) = (site.fifo("has-read"), site.fifo("go-on"));
    let page = site.write("page", edition(0, 60_000));
    let server = Server::start(site.root(), &[]);
    let mut client = server.connect();
    for round in 0..1000 {
        client.send(Request::get("/page.php").bytes());
        has_read.await_script();
        change(&page, round, &edition(round + 1, 60_000));
        go_on.release();
        assert!(client.response("GET").expect(200) == edition(round, 60_000), "round {round}");
    }
}

#[test]
fn a_file_changed_while_it_is_on_its_way_arrives_as_it_was() {
    let script = "<?php
        $s = file_get_contents('page');
        echo 'x', $s, $s;
        file_put_contents('has-echoed', 'yes');
        echo $s;";
    for (size, rounds) in [(30_000, 100), (200_000, 100), (12 << 20, 15)] {
        let site = Site::with("big.php", script);
        let has_echoed = site.fifo("has-echoed");
        let page = site.write("page", pattern(0, size));
        let server = Server::start(site.root(), &["--php-ini", "memory_limit=256M"]);
        for round in 0..rounds {
            let mut client = Client::connect_narrow(server.addr(), 16 * 1024);
            client.send(Request::get("/big.php").bytes());
            let reader = std::thread::spawn(move || client.response("GET").body);
            has_echoed.await_script();
            change(&page, round, &pattern(round + 1, size));
            let body = reader.join().unwrap();
            let old = pattern(round, size);
            assert_eq!(body.len(), 1 + 3 * size, "round {round} of {size}");
            for (number, part) in body[1..].chunks(size).enumerate() {
                assert!(part == old, "round {round} of {size}, part {number}");
            }
        }
    }
}

#[test]
fn what_was_sent_to_a_reader_that_lags_does_not_change() {
    let site = Site::with("big.php", "<?php echo file_get_contents('page');");
    let size = 12 << 20;
    let page = site.write("page", pattern(0, size));
    let server = Server::start(site.root(), &["--php-ini", "memory_limit=256M"]);
    for round in 0..10 {
        let mut client = Client::connect_narrow(server.addr(), 16 * 1024);
        client.send(Request::get("/big.php").bytes());
        // The script has read its file: the page has begun to come.
        let head = client.head().unwrap();
        let next = pattern(round + 1, size);
        let path = page.clone();
        let writer = std::thread::spawn(move || change(&path, round, &next));
        let body = client.body_of(head, "GET").expect("a whole page").body;
        writer.join().unwrap();
        assert!(body == pattern(round, size), "round {round}");
    }
}

#[test]
fn every_request_sees_the_file_as_it_is_now() {
    let site = Site::with("page.php", "<?php echo file_get_contents('page');");
    let page = site.write("page", edition(0, 30_000));
    let server = Server::start(site.root(), &["--workers", "2"]);
    let mut clients = [server.connect(), server.connect(), server.connect()];
    for round in 0..500 {
        change(&page, round, &edition(round, 30_000));
        for client in &mut clients {
            assert!(
                client.ask(&Request::get("/page.php")).expect(200) == edition(round, 30_000),
                "round {round}"
            );
        }
    }
    // The same length and the same modification time: only the change time tells.
    let before = fs::metadata(&page).unwrap().modified().unwrap();
    let contents = pattern(99, edition(499, 30_000).len());
    let file = OpenOptions::new().write(true).open(&page).unwrap();
    file.write_all_at(&contents, 0).unwrap();
    file.set_modified(before).unwrap();
    drop(file);
    assert!(server.get("/page.php").expect(200) == contents);
}
