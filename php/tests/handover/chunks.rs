//! Chunk loops: `echo fread($f, 8192)` sends without reading. The bytes are the same as PHP's, even
//! if the file or the stream changes in between.

use std::fs;

use crate::common::TempDir;
use crate::common::front::{Front, Piece, joined};
use crate::common::link::Request;
use crate::common::master::Master;
use crate::common::site::{SETTINGS, Site, bytes, content, same_as_fpm};

fn file(content: &[u8]) -> Piece {
    Piece::File(content.to_vec())
}

fn body(pieces: Vec<Piece>) -> Vec<u8> {
    pieces.into_iter().flat_map(Piece::into_bytes).collect()
}

/// Bytes that the worker has read so far.
const READ: &str =
    r#"preg_match('/rchar: (\d+)/', file_get_contents('/proc/self/io'), $m) ? (int) $m[1] : 0"#;

#[test]
fn what_is_only_written_is_not_read() {
    for setting in SETTINGS {
        let mut site = Site::new(setting);
        let a = content("a", 1_000_000);
        site.file("a", &a);
        for way in [
            "while (!feof($f)) echo fread($f, 8192);",
            "while (!feof($f)) print fread($f, 65536);",
            "while (!feof($f)) { ?><?= fread($f, 20000) ?><?php }",
            "do { echo $x ?? '', fread($f, 16384); } while (!feof($f));",
            "while (!feof($f)) fwrite($out, fread($f, 16384));",
            "while (!feof($f)) fputs($out, fread($f, min(8192, 9000)));",
            r#"while (!$o->eof()) echo $o->fread(8192);"#,
            r#"echo fread($f, filesize("$d/a"));"#,
            r#"$s = fread($f, filesize("$d/a")); echo $s;"#,
            r#"(function () use ($f) { foreach ((fn () => yield from range(1, 200))() as $_) echo fread($f, 8192); })();"#,
        ] {
            let code = format!(
                r#"$f = fopen("$d/a", "r"); $out = fopen("php://output", "w"); $o = new SplFileObject("$d/a");
                $before = {READ}; {way} file_put_contents("$d/read", ({READ}) - $before);"#
            );
            assert_eq!(joined(site.ask(&code)), [file(&a)], "{setting}, {way}");
            let read = fs::read_to_string(site.dir.path().join("read")).unwrap();
            // An odd size makes PHP read ahead once per call.
            let most = if way.contains("20000") { 500_000 } else { 1000 };
            assert!(read.parse::<usize>().unwrap() < most, "{setting}, {way}: {read}");
        }
    }
}

/// Compiled code frees the result of fread() without testing its reference count.
#[test]
fn compiled_loops_too() {
    for jit in ["opcache.jit=tracing", "opcache.jit=function"] {
        let settings = [jit, "opcache.jit_buffer_size=32M", "opcache.file_update_protection=0"];
        let options: Vec<_> = settings.iter().flat_map(|setting| ["--php-ini", setting]).collect();
        let master = Master::start(&options);
        let mut front = Front::new(master.worker());
        let (dir, a) = (TempDir::new(), content("a", 300_000));
        fs::write(dir.path().join("a"), &a).unwrap();
        let code = r#"<?php
            function all($f) { while (!feof($f)) echo fread($f, 8192); }
            function out($f, $out) { while (!feof($f)) fwrite($out, fread($f, 8192)); }
            function data($f) { while (!feof($f)) { $s = fread($f, 8192); echo $s; } }
            $out = fopen("php://output", "w");
            foreach (['all', 'out', 'data'] as $way) { $way(fopen(__DIR__ . "/a", "r"), $out); }"#;
        fs::write(dir.path().join("a.php"), code).unwrap();
        for _ in 0..40 {
            let pieces = joined(front.ask(&Request::new(&dir.file("a.php"))));
            assert!(pieces == [file(&a.repeat(3))], "{jit}");
        }
    }
}

/// Callbacks that run while the result of fread() is written can see the arguments of fwrite().
#[test]
fn backtraces_show_what_is_written() {
    for setting in SETTINGS {
        let mut site = Site::new(setting);
        let a = content("a", 20_000);
        site.file("a", &a);
        let see = "foreach (debug_backtrace() as $c) foreach ($c['function'] == 'fwrite' ? $c['args'] : [] as $x) if (is_string($x)) $seen .= $x;";
        for watch in [
            format!("ob_start(function ($b) use (&$seen) {{ {see} return ''; }}, 1);"),
            format!("header_register_callback(function () use (&$seen) {{ {see} }}); $n = 8192;"),
        ] {
            let code = format!(
                r#"$f = fopen("$d/a", "r"); $out = fopen("php://output", "w"); $seen = ''; $n = 20000;
                {watch} while (!feof($f) && ftell($f) < $n) fwrite($out, fread($f, 8192));
                @ob_end_clean(); file_put_contents("$d/seen", $seen);"#
            );
            site.ask(&code);
            let seen = fs::read(site.dir.path().join("seen")).unwrap();
            let expected = if watch.starts_with("ob") { &a[..] } else { &a[..8192] };
            assert!(seen == expected, "{setting}, {watch}: {} bytes", seen.len());
        }
    }
}

/// Consecutive pieces wait to be joined, and leave before anything else happens to the response.
#[test]
fn what_waits_leaves_before_anything_else_happens() {
    let (mut site, mut plain) = (Site::new(SETTINGS[0]), Site::new("sendoff.threshold=0"));
    let a = content("a", 1_000_000);
    site.file("a", &a);
    plain.file("a", &a);
    for way in [
        r#"$some(3); echo "x"; $some(2); echo "y"; $some(40);"#,
        r#"$some(3); readfile("$d/a"); $some(3); echo file_get_contents("$d/a");"#,
        "$some(3); fastcgi_finish_request(); $some(3); flush();",
        "register_shutdown_function($some, 5); $some(50); exit;",
        "header_register_callback(fn () => $some(3)); $some(2); $some(1);",
        r#"$some(3); $g = fopen("$d/a", "r"); echo fread($g, 8192), fread($f, 8192), fread($g, 8192), fread($g, 8192);"#,
    ] {
        let code = format!(
            r#"while (ob_get_level()) ob_end_clean(); $f = fopen("$d/a", "r");
            $some = function ($n) use ($f) {{ while ($n--) echo fread($f, 8192); }}; {way}"#
        );
        assert!(body(site.ask(&code)) == body(plain.ask(&code)), "{way}");
    }
    let pieces = site.ask(
        r#"$f = fopen("$d/a", "r"); for ($n = 0; $n < 9; $n++) { echo fread($f, 8192); if ($n == 3) flush(); }"#,
    );
    assert_eq!(pieces, [file(&a[..4 * 8192]), file(&a[4 * 8192..9 * 8192])]);
}

/// Another process rewrites, truncates, extends or replaces the file in the middle of a loop.
#[test]
fn a_file_that_somebody_changes_in_the_middle() {
    for setting in SETTINGS {
        for way in [
            "echo fread($f, 8192)",
            "fwrite($out, fread($f, 8192))",
            "$s = fread($f, 8192); echo $s",
        ] {
            let mut site = Site::new(setting);
            let (a, b) = (content("a", 100_000), content("b", 100_000));
            site.file("b", &b);
            for (n, (change, after)) in [
                ("cat b > NAME", &b[40_960..]),
                ("dd if=/dev/null of=NAME bs=50000 seek=1 status=none", &a[40_960..50_000]),
                ("cp b c && mv c NAME", &a[40_960..]),
                ("rm NAME", &a[40_960..]),
            ]
            .into_iter()
            .enumerate()
            {
                let name = format!("a{n}");
                site.file(&name, &a);
                let change = change.replace("NAME", &name);
                let code = format!(
                    r#"$f = fopen("$d/{name}", "r"); $out = fopen("php://output", "w"); $n = 0;
                    while (!feof($f)) {{ {way}; if (++$n == 5) shell_exec("cd $d; {change}"); }}"#
                );
                let body = body(site.ask(&code));
                assert!(body == [&a[..40_960], after].concat(), "{setting}, {way}, {change}");
            }
        }
    }
}

/// Runs code between fread() and echo: when the call's argument is freed, which holds the last
/// reference to the stream.
const LATE: &str = r#"class Late extends php_user_filter {
        function filter($in, $out, &$consumed, bool $closing): int { return PSFS_PASS_ON; }
        function onClose(): void { ($this->params)(); } }
    stream_filter_register("late", "Late");
    $open = function ($do) use ($d) {
        $f = fopen("$d/a", "r"); stream_filter_append($f, "late", STREAM_FILTER_WRITE, $do); return $f; };"#;

#[test]
fn what_happens_between_reading_and_writing() {
    for setting in [SETTINGS[0], SETTINGS[1], "output_buffering=On"] {
        let mut site = Site::new(setting);
        let a = content("a", 100_000);
        site.file("a", &a);
        let pieces = site.ask(&format!(
            r#"{LATE} $f = fopen("$d/a", "r"); echo fread($f, 8192);
            echo fread($open(fn () => print(fread($f, 8192))), 16384);
            echo fread($open(fn () => file_put_contents("$d/a", str_repeat("new", 30000))), 8192);
            echo fread($f, 8192);"#
        ));
        let new = b"new".repeat(30_000);
        let expected =
            [&a[..8192], &a[8192..16_384], &a[..16_384], &a[..8192], &new[16_384..24_576]].concat();
        assert!(body(pieces) == expected, "{setting}");
    }
}

/// A token whose output an exception prevents occupies its slot until the request ends; there is no
/// other effect.
#[test]
fn exceptions_in_between() {
    let mut site = Site::new(SETTINGS[1]);
    let a = content("a", 1_000_000);
    site.file("a", &a);
    for _ in 0..3 {
        let pieces = site.ask(&format!(
            r#"{LATE} for ($i = 0; $i < 40; $i++) {{
                try {{ echo fread($open(fn () => throw new Exception("late")), 8192); }}
                catch (Exception $e) {{ echo $e->getMessage(); }} }}
            $f = fopen("$d/a", "r"); while (!feof($f)) {{ echo fread($f, 8192); }}"#
        ));
        assert_eq!(joined(pieces), [bytes(&"late".repeat(40)), file(&a)]);
    }
}

#[test]
fn what_reads_a_copy_sees_the_file() {
    let mut site = Site::new(SETTINGS[1]);
    let a = content("a", 100_000);
    site.file("a", &a);
    let pieces = site.ask(
        r#"$f = fopen("$d/a", "r"); echo fread($f, 8192); $s = fread($f, 8192); echo $s;
        $s = fread($f, 8192); $t = $s; $s[0] = '#'; $t .= '!'; echo $s, $t, md5(fread($f, 8192));
        ob_start(fn ($s) => strrev($s)); echo fread($f, 8192); ob_end_flush();
        namespace_free(fread($f, 8192)); function namespace_free($s) { echo strlen($s), $s; }"#,
    );
    let chunk = |n: usize| &a[n * 8192..(n + 1) * 8192];
    let mut marked = chunk(2).to_vec();
    marked[0] = b'#';
    let sum = site.ask(r#"echo md5(substr(file_get_contents("$d/a"), 3 * 8192, 8192));"#);
    let reversed: Vec<u8> = chunk(4).iter().rev().copied().collect();
    let expected =
        [chunk(0), chunk(1), &marked, chunk(2), b"!", &body(sum), &reversed, b"8192", chunk(5)];
    assert!(body(pieces) == expected.concat());
}

/// A session's handlers may run at the very end of the request. Their reads must not be attributed
/// to the next request.
#[test]
fn what_is_read_after_the_end_is_forgotten() {
    let mut site = Site::new("session.gc_probability=0");
    let (a, b) = (content("a", 50_000), content("b", 50_000));
    site.file("a", &a);
    site.file("b", &b);
    let code = r#"class Late implements SessionHandlerInterface { public $d;
        function open($p, $n): bool { return true; } function close(): bool { return true; }
        function read($id): string|false { return ""; } function destroy($id): bool { return true; }
        function gc($max): int|false { return 0; }
        function write($id, $data): bool {
            for ($i = 0; $i < 30; $i++) { $f = fopen("$this->d/a", "r"); echo fread($f, 8192); $all[] = $f; }
            echo "-" . file_get_contents("$this->d/a"), file_get_contents("$this->d/a", false, null, 10, 20000);
            return true; } }
        $late = new Late; $late->d = $d; session_set_save_handler($late, false); session_start(); $_SESSION["x"] = 1; echo "done";"#;
    for _ in 0..3 {
        let late = [&a[..8192].repeat(30), &b"-"[..], &a, &a[10..20_010]].concat();
        assert!(body(site.ask(code)) == [b"done", &late[..]].concat());
        let next = r#"for ($i = 0; $i < 30; $i++) { $f = fopen("$d/b", "r"); $all[] = $f; echo fread($f, 8192); }"#;
        assert!(body(site.ask(next)) == b[..8192].repeat(30));
    }
}

/// PHP allocates the whole requested length, and fails if memory_limit forbids it; it then discards
/// its buffer.
#[test]
fn memory_limit_counts_what_is_wanted() {
    let mut site = Site::new("memory_limit=32M");
    let a = content("a", 50_000);
    site.file("a", &a);
    for way in ["echo fread($f, 1 << 30);", "$s = fread($f, 1 << 30); echo $s;"] {
        let pieces = site.ask(&format!(
            r#"ini_set("display_errors", 0); $f = fopen("$d/a", "r"); echo 1; {way} echo 2;"#
        ));
        assert_eq!(pieces, [], "{way}");
    }
}

/// A section of php.ini turns lazy strings off for a folder, including its streams.
#[test]
fn a_folder_can_do_without() {
    let (ini, dir) = (TempDir::new(), TempDir::new());
    let section = format!("[PATH={}]\nsendoff.threshold=0\n", dir.path().display());
    fs::write(ini.path().join("php.ini"), section).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_sendoff-php"));
    let master = Master::spawn(command.env("PHPRC", ini.path()), &[]);
    let a = content("a", 50_000);
    fs::write(dir.path().join("a"), &a).unwrap();
    let code = r#"<?php $f = fopen(__DIR__ . "/a", "r"); while (!feof($f)) echo fread($f, 8192); rewind($f); fpassthru($f);"#;
    fs::write(dir.path().join("a.php"), code).unwrap();
    let pieces = Front::new(master.worker()).ask(&Request::new(&dir.file("a.php")));
    assert_eq!(pieces, [Piece::Bytes(a.repeat(2))]);
}

#[test]
fn streams_are_left_as_php_leaves_them() {
    same_as_fpm("chunks.php", 15);
}
