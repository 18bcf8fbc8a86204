//! Lazy strings on real PHP: checks what is sent as a file, what is sent as bytes, and that the
//! bytes are right.

use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::process::Command;
use std::thread;

use crate::common::TempDir;
use crate::common::front::{Front, Piece};
use crate::common::link::Request;
use crate::common::master::Master;
use crate::common::site::{SETTINGS, Site, THRESHOLD, bytes, content, same_as_fpm};

#[test]
fn the_papers_example_leaves_as_bytes_file_bytes_file_bytes() {
    for setting in SETTINGS {
        let mut site = Site::new(setting);
        let (a, b) = (content("a", 60_000), content("b", 1_000_000));
        site.file("a", &a);
        site.file("b", &b);
        for _ in 0..3 {
            let pieces = site.ask(
                r#"echo "hello"; echo file_get_contents("$d/a"); echo "world";
                echo file_get_contents("$d/b"); echo "bye";"#,
            );
            let expected = [
                bytes("hello"),
                Piece::File(a.clone()),
                bytes("world"),
                Piece::File(b.clone()),
                bytes("bye"),
            ];
            assert_eq!(pieces, expected, "{setting}");
        }
    }
}

#[test]
fn print_comma_lists_short_tags_and_readfile_hand_over() {
    for setting in SETTINGS {
        let mut site = Site::new(setting);
        let a = content("a", THRESHOLD);
        site.file("a", &a);
        let file = Piece::File(a);
        let pieces = site.ask(
            r#"$f = "$d/a"; print file_get_contents($f); echo 1, file_get_contents($f), 2;
            echo readfile($f); ?>text<?= file_get_contents($f) ?><?php
            chdir($d); echo "|"; readfile("a"); echo "|", substr(file_get_contents("./a"), 0), "|";
            exit(file_get_contents("$d/../" . basename($d) . "/a"));"#,
        );
        let expected = [
            file.clone(),
            bytes("1"),
            file.clone(),
            bytes("2"),
            file.clone(),
            bytes("16384text"),
            file.clone(),
            bytes("|"),
            file.clone(),
            bytes("|"),
            file.clone(),
            bytes("|"),
            file,
        ];
        assert_eq!(pieces, expected, "{setting}");
    }
}

#[test]
fn what_is_no_whole_plain_file_leaves_as_bytes() {
    let mut site = Site::new(SETTINGS[1]);
    let a = content("a", 50_000);
    site.file("a", &a);
    site.file("small", &a[..THRESHOLD - 1]);
    for (code, expected) in [
        (r#"echo file_get_contents("$d/small");"#, a[..THRESHOLD - 1].to_vec()),
        (r#"readfile("$d/small");"#, a[..THRESHOLD - 1].to_vec()),
        (
            r#"echo file_get_contents("php://filter/read=string.rot13|string.rot13/resource=$d/a");"#,
            a.clone(),
        ),
        (r#"echo "-" . file_get_contents("$d/a");"#, [b"-", &a[..]].concat()),
        (r#"echo strrev(file_get_contents("$d/a"));"#, a.iter().rev().copied().collect()),
        (r#"echo "-" . file_get_contents("$d/a", length: 20000);"#, [b"-", &a[..20_000]].concat()),
        (
            r#"ob_start(); echo "-", file_get_contents("$d/a"); ob_end_flush();"#,
            [b"-", &a[..]].concat(),
        ),
        (
            r#"ob_start(fn ($s) => strrev($s)); readfile("$d/a");"#,
            a.iter().rev().copied().collect(),
        ),
    ] {
        assert_eq!(site.ask(code), [Piece::Bytes(expected)], "{code}");
    }
}

#[test]
fn the_threshold_is_a_setting() {
    let a = content("a", 50_000);
    for (setting, expected) in [
        ("sendoff.threshold=0", Piece::Bytes(a.clone())),
        ("sendoff.threshold=50001", Piece::Bytes(a.clone())),
        ("sendoff.threshold=50000", Piece::File(a.clone())),
    ] {
        let mut site = Site::new(setting);
        site.file("a", &a);
        assert_eq!(site.ask(r#"readfile("$d/a");"#), [expected], "{setting}");
    }
}

/// php.ini may set 0 for a folder, which turns lazy strings off there.
#[test]
fn a_folder_can_do_without_lazy_strings() {
    let (ini, dir) = (TempDir::new(), TempDir::new());
    let section = format!("[PATH={}]\nsendoff.threshold=0\n", dir.path().display());
    fs::write(ini.path().join("php.ini"), section).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sendoff-php"));
    let master = Master::spawn(command.env("PHPRC", ini.path()), &[]);
    let a = content("a", 50_000);
    fs::write(dir.path().join("a"), &a).unwrap();
    fs::write(dir.path().join("a.php"), r#"<?php readfile(__DIR__ . "/a");"#).unwrap();
    let pieces = Front::new(master.worker()).ask(&Request::new(&dir.file("a.php")));
    assert_eq!(pieces, [Piece::Bytes(a)]);
}

#[test]
fn memory_limit_does_not_count_lazy_strings() {
    let mut site = Site::new("memory_limit=8M");
    let a = content("a", 20_000_000);
    site.file("a", &a);
    let code = r#"echo file_get_contents("$d/a"); readfile("$d/a");"#;
    assert_eq!(site.ask(code), [Piece::File(a.clone()), Piece::File(a)]);
}

#[test]
fn a_front_that_takes_no_files_gets_bytes() {
    let master = Master::start(&[]);
    let mut worker = master.worker();
    let dir = TempDir::new();
    fs::write(dir.path().join("a"), content("a", 50_000)).unwrap();
    fs::write(dir.path().join("a.php"), r#"<?php echo file_get_contents(__DIR__ . "/a");"#)
        .unwrap();
    let response = worker.link().ask(&Request::new(&dir.file("a.php")));
    assert_eq!(response.body().into_bytes(), content("a", 50_000));
    assert!(response.handover.is_empty(), "{:?}", response.handover);
}

#[test]
fn head_sends_no_file() {
    let mut site = Site::new(SETTINGS[0]);
    site.file("a", &content("a", 50_000));
    let request = site.script(r#"echo file_get_contents("$d/a");"#).with("REQUEST_METHOD", "HEAD");
    assert_eq!(site.front.ask(&request), []);
}

#[test]
fn a_file_that_changes_between_requests_is_sent_as_it_is_now() {
    let mut site = Site::new(SETTINGS[1]);
    let code = r#"readfile("$d/a");"#;
    for (round, len) in [20_000, 20_000, 90_000, 16_384, 300_000].into_iter().enumerate() {
        let now = content(&round.to_string(), len);
        let path = site.dir.path().join("a");
        if round % 2 == 0 {
            // Written in place: the writer waits until the front has released the file.
            let writer = {
                let (path, now) = (path.clone(), now.clone());
                thread::spawn(move || fs::write(path, now).unwrap())
            };
            if round > 0 {
                site.front.until_recall();
            }
            writer.join().unwrap();
        } else {
            site.file("new", &now);
            fs::rename(site.dir.path().join("new"), path).unwrap();
        }
        assert_eq!(site.ask(code), [Piece::File(now)], "round {round}");
    }
}

#[test]
fn a_script_that_rewrites_what_it_read_sends_what_it_read() {
    let mut site = Site::new(SETTINGS[1]);
    site.file("a", &content("0", 100_000));
    let request = site.script(
        r#"$s = file_get_contents("$d/a"); $n = (int) $s;
        file_put_contents("$d/a", str_pad($n + 1, 100000 - $n % 3 * 4096, " and on"));
        echo $s;"#,
    );
    let mut before = content("0", 100_000);
    for n in 1..=1000 {
        let body = site.front.body(&request);
        assert!(body == before, "round {n}");
        before = fs::read(site.dir.path().join("a")).unwrap();
    }
    assert!(site.front.recalls <= 1000);
}

#[test]
fn a_script_may_rewrite_what_it_has_just_handed_over() {
    let mut site = Site::new(SETTINGS[1]);
    site.file("a", &content("0", 100_000));
    let request = site.script(
        r#"$s = file_get_contents("$d/a"); echo $s; flush();
        file_put_contents("$d/a", str_pad((int) $s + 1, 100000, " and on")); echo $s;"#,
    );
    for n in 1..=100 {
        let before = fs::read(site.dir.path().join("a")).unwrap();
        let pieces = site.front.ask(&request);
        assert_eq!(pieces, [Piece::File(before.clone()), Piece::Bytes(before)], "round {n}");
        assert_eq!(site.front.recalls, n);
    }
}

/// A worker gets no lease on a file of another user, unless it has kept the capability.
#[test]
#[cfg_attr(not(root), ignore = "needs root: runs workers as another user")]
fn a_file_of_somebody_else_is_read_plainly() {
    let master = Master::start_unprivileged();
    let mut front = Front::new(master.worker());
    let dir = TempDir::new();
    let (ours, theirs) = (content("ours", 50_000), content("theirs", 50_000));
    fs::write(dir.path().join("theirs"), &theirs).unwrap();
    fs::write(dir.path().join("ours"), &ours).unwrap();
    std::os::unix::fs::chown(dir.path().join("ours"), Some(65534), Some(65534)).unwrap();
    let code = r#"<?php readfile(__DIR__ . "/theirs"); readfile(__DIR__ . "/ours");"#;
    fs::write(dir.path().join("index.php"), code).unwrap();
    for _ in 0..3 {
        let pieces = front.ask(&Request::new(&dir.file("index.php")));
        assert_eq!(pieces, [Piece::Bytes(theirs.clone()), Piece::File(ours.clone())]);
    }
}

/// Runs a script that reads a file, reports it, and writes the file out when told; `meddle` runs in
/// between.
fn meddle(code: &str, meddle: impl FnOnce(&Path) + Send + 'static) -> Vec<u8> {
    let mut site = Site::new(SETTINGS[0]);
    site.file("a", &content("a", 200_000));
    let go = site.dir.path().join("go");
    rustix::fs::mknodat(rustix::fs::CWD, &go, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let request = site.script(&format!(
        r#"$s = file_get_contents("$d/a"); echo "ready"; flush(); fgets(fopen("$d/go", "r")); {code}"#
    ));
    site.front.send(&request);
    site.front.until("ready");
    let path = site.dir.path().join("a");
    let meddler = thread::spawn(move || {
        meddle(&path);
        fs::write(go, "go\n").unwrap();
    });
    let body = site.front.rest().into_iter().flat_map(Piece::into_bytes).collect();
    meddler.join().unwrap();
    body
}

#[test]
fn others_may_do_to_the_file_what_they_like() {
    let expected = [b"ready", &content("a", 200_000)[..]].concat();
    let write = |path: &Path| fs::write(path, "short").unwrap();
    let truncate = |path: &Path| {
        OpenOptions::new().write(true).open(path).unwrap().set_len(0).unwrap();
    };
    let append = |path: &Path| {
        use std::io::Write as _;
        OpenOptions::new().append(true).open(path).unwrap().write_all(b"more").unwrap();
    };
    let remove = |path: &Path| fs::remove_file(path).unwrap();
    for code in ["echo $s;", "echo substr($s, 0, 1), substr($s, 1);", "echo $s; unset($s);"] {
        assert!(meddle(code, write) == expected, "write, {code}");
        assert!(meddle(code, truncate) == expected, "truncate, {code}");
        assert!(meddle(code, append) == expected, "append, {code}");
        assert!(meddle(code, remove) == expected, "remove, {code}");
    }
}

#[test]
fn a_file_that_somebody_writes_to_is_read_plainly() {
    let mut site = Site::new(SETTINGS[0]);
    let a = content("a", 50_000);
    site.file("a", &a);
    let writer = OpenOptions::new().append(true).open(site.dir.path().join("a")).unwrap();
    assert_eq!(site.ask(r#"readfile("$d/a");"#), [Piece::Bytes(a.clone())]);
    drop(writer);
    site.file("b", &a);
    let _reader = File::open(site.dir.path().join("b")).unwrap();
    assert_eq!(site.ask(r#"readfile("$d/b");"#), [Piece::File(a)]);
}

/// The long jump out of the write bypasses the hook, which had taken the buffer off its stack.
#[test]
fn a_client_that_goes_leaves_the_output_buffer_in_place() {
    let mut site = Site::new(SETTINGS[1]);
    site.file("a", &content("a", 50_000));
    let request = site.script(
        r#"register_shutdown_function(fn () => file_put_contents("$d/level", ob_get_level()));
        echo "begun"; ob_flush(); flush(); for (;;) { echo "more", file_get_contents("$d/a"); }"#,
    );
    site.front.send(&request);
    site.front.until("begun");
    site.front.abort();
    site.front.rest();
    assert_eq!(fs::read_to_string(site.dir.path().join("level")).unwrap(), "1");
}

#[test]
fn many_files_in_turn() {
    let mut site = Site::new(SETTINGS[1]);
    for i in 0..200 {
        site.file(&format!("f{i}"), &content(&i.to_string(), 17_000 + i));
    }
    let expected: Vec<u8> = (0..200).flat_map(|i| content(&i.to_string(), 17_000 + i)).collect();
    let request = site.script(r#"for ($i = 0; $i < 200; $i++) { readfile("$d/f$i"); }"#);
    for _ in 0..3 {
        assert!(site.front.body(&request) == expected);
    }
}

#[test]
fn a_script_can_ask_what_it_handed_over() {
    let mut site = Site::new(SETTINGS[0]);
    site.file("a", &content("a", 50_000));
    let mut pieces =
        site.ask(r#"echo "abc"; readfile("$d/a"); echo json_encode(sendoff_stats());"#);
    let told = r#"{"handed_over_bytes":50000,"copied_bytes":3,"segments":1}"#;
    assert_eq!(pieces.pop(), Some(bytes(told)));
}

#[test]
fn strings_are_strings() {
    same_as_fpm("strings.php", 2);
}

#[test]
fn output_is_the_same() {
    same_as_fpm("output.php", 3);
}

#[test]
fn errors_are_phps_own() {
    same_as_fpm("errors.php", 2);
}

#[test]
fn buffers_hold_what_php_puts_there() {
    same_as_fpm("buffers.php", 40);
}

#[test]
fn what_php_keeps_of_a_string_survives_the_request() {
    same_as_fpm("kept.php", 6);
}
