//! `sendoff explain`: every reason for a copy is named, and an explained request affects no other request.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

use sendoff_tests::{Extended, Fpm, Request, Server, Site, pattern};
use std::os::unix::fs::PermissionsExt;

const SCRIPT: &str = "<?php $case = $_GET['case'] ?? '';
$big = __DIR__ . '/files/big.bin';
if ($case === 'echo') echo file_get_contents($big);
if ($case === 'small') echo file_get_contents(__DIR__ . '/files/small.bin');
if ($case === 'loop') { $f = fopen($big, 'r'); while (!feof($f)) echo fread($f, 8192); }
if ($case === 'join') echo 'head' . file_get_contents($big);
if ($case === 'changed') echo strrev(file_get_contents($big));
if ($case === 'callback') { ob_start(
    fn ($text) => strrev($text));
    echo file_get_contents($big); }
if ($case === 'buffer') { ob_start(); echo 'head'; echo file_get_contents($big); }
if ($case === 'readfile') { ob_start(); readfile($big); }
if ($case === 'passthru') { ob_start(); fpassthru(fopen($big, 'r')); }
if ($case === 'copy') { ob_start(); copy($big, 'php://output'); }
if ($case === 'gzip') { ob_start('ob_gzhandler'); echo file_get_contents($big); }
if ($case === 'writer') { $w = fopen($big, 'r+'); echo file_get_contents($big); }
if ($case === 'url') echo file_get_contents('data:,' . str_repeat('x', 20000));
if ($case === 'part') echo file_get_contents($big, false, null, 100, 50000) . '.';
if ($case === 'sendfile') header('X-Sendfile: ' . $big);
if ($case === 'made') { echo 'one'; echo 'two';
    echo 'three'; }
if ($case === 'late') register_shutdown_function(function () { echo 'bye'; });
if ($case === 'seen') echo isset($_SERVER['HTTP_SENDOFF_EXPLAIN']) ? 'seen' : 'not seen';
if ($case === 'kept') file_put_contents(__DIR__ . '/kept', json_encode($_SERVER));
if ($case === 'many') foreach (glob(__DIR__ . '/many/*') as $file) echo file_get_contents($file);
if ($case === 'endless') { touch(__DIR__ . '/begun'); while (true) echo str_repeat('x', 10000); }
if ($case === 'die') { echo str_repeat('x', 100000); flush(); posix_kill(getmypid(), 9); }
";

fn site() -> Site {
    let site = Site::with("x.php", SCRIPT);
    site.write("files/big.bin", pattern(1, 300_000));
    site.write("files/small.bin", "small");
    site
}

#[track_caller]
fn expect(server: &Server, target: &str, expected: &[&str]) -> String {
    let table = server.explain(target, &["-H", "Accept-Encoding: gzip"]).unwrap();
    // Columns are as wide as they must be.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let plain = words(&table);
    for text in expected {
        assert!(plain.contains(&words(text)), "{target}: {text:?} is not in\n{table}");
    }
    table
}

#[test]
fn each_segment_has_its_origin_and_each_copy_its_reason() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let joined = "not the bytes of a file as they were read: joined, cut or changed";
    for (case, expected) in [
        (
            "echo",
            &[
                "200 OK, 300000 bytes, Content-Length: 300000 answered by worker",
                "300000 file, sendfile x.php:3 files/big.bin",
            ][..],
        ),
        (
            "small",
            &[
                "5 bytes x.php:4 echo",
                "x.php:4 file_get_contents(files/small.bin) smaller than sendoff.threshold",
            ],
        ),
        ("loop", &["file, sendfile x.php:5 files/big.bin"]),
        ("join", &["4 bytes x.php:6 echo", "300000 file, sendfile x.php:6 files/big.bin"]),
        ("changed", &["300000", "bytes x.php:7 echo", joined]),
        (
            "callback",
            &["bytes x.php:10 echo passes the output callback Closure::__invoke at x.php:9"],
        ),
        ("buffer", &["bytes x.php:11 2 writes collected in an output buffer (ob_start())"]),
        ("readfile", &["x.php:12 readfile(files/big.bin) written into an output buffer"]),
        ("passthru", &["x.php:13 fpassthru(files/big.bin) written into an output buffer"]),
        ("copy", &["x.php:14 copy(files/big.bin) written into an output buffer"]),
        ("gzip", &["compressed by PHP (ob_gzhandler)"]),
        (
            "writer",
            &[
                "no lease: EAGAIN (somebody has it open for writing)",
                "bytes x.php:16 echo file_get_contents(files/big.bin): no lease: EAGAIN",
            ],
        ),
        ("url", &["not a plain local file"]),
        ("part", &["x.php:18 file_get_contents(files/big.bin) called with more than a path"]),
        ("sendfile", &["300000 file, sendfile X-Sendfile:"]),
        ("made", &["11 bytes x.php:20-21 3 writes"]),
        ("late", &["3 bytes x.php:22 echo"]),
        ("none", &["200 OK, 0 bytes"]),
    ] {
        expect(&server, &format!("/x.php?case={case}"), expected);
    }
    expect(&server, "/files/big.bin", &["300000 file, sendfile open-file cache /files/big.bin"]);
    expect(&server, "/files/small.bin", &["5 file, from memory open-file cache"]);
    expect(&server, "/none", &["404 Not Found", "answered by the server itself"]);
    for number in 0..130 {
        site.write(&format!("many/{number}"), pattern(number, 20_000));
    }
    expect(&server, "/x.php?case=many", &["2600000 bytes", "too many held files"]);
    let cut = expect(&server, "/x.php?case=die", &["100000", "The response was cut short:"]);
    assert!(cut.contains("died"), "{cut}");
}

#[test]
fn what_the_options_turn_off_is_named() {
    let site = site();
    for (options, expected) in [
        (&["--snapshot", "copy"][..], "no snapshot guard: --snapshot copy"),
        (&["--delivery", "relay"], "the front takes no files: --delivery relay"),
        (&["--php-ini", "sendoff.threshold=0"], "sendoff.threshold is 0"),
    ] {
        let server = Server::start(site.root(), options);
        expect(&server, "/x.php?case=echo", &["300000", "bytes", expected]);
    }
    let fpm = Fpm::start(site.root(), "");
    let server = Server::start(site.root(), &["--fastcgi", &fpm.php()]);
    for _ in 0..2 {
        let nothing = "bytes a FastCGI application it has not said that it knows handover";
        expect(&server, "/x.php?case=echo", &[nothing]);
    }
    expect(&server, "/x.php?case=sendfile", &["300000 file, sendfile X-Sendfile:"]);
}

#[test]
fn what_php_fpm_with_the_extension_hands_over_is_named() {
    let extended = Extended::start(site(), "", &[]);
    let files = "a FastCGI application it hands over files, and copies the rest";
    let expected = format!("300000 file, sendfile {files}");
    expect(&extended.server, "/x.php?case=echo", &[&expected]);
    expect(&extended.server, "/x.php?case=made", &[&format!("11 bytes {files}")]);
    // The application has not announced itself to this front yet, and does so in this response.
    let other = Server::start(extended.site.root(), &["--fastcgi", &extended.fpm.php()]);
    let not_yet =
        "bytes a FastCGI application it can hand over files, but did not in this response";
    expect(&other, "/x.php?case=echo", &[not_yet]);
}

#[test]
fn only_who_has_the_secret_is_told() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let secret = server.secret();
    let file = site.path("../run/sendoff").join(server.addr().to_string());
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let seen = Request::get("/x.php?case=seen");
    assert_eq!(server.ask(&seen).text(), "not seen");
    for wrong in ["", "x", &secret[1..], &format!("{secret}0"), &"0".repeat(64)] {
        let response = server.ask(&seen.clone().header("Sendoff-Explain", wrong));
        assert_eq!(response.text(), "seen", "with the wrong secret it is a field like any other");
        assert_eq!(response.header("sendoff-explain"), None);
    }
    // The application never sees the right secret.
    let kept = Request::get("/x.php?case=kept").header("Sendoff-Explain", &secret);
    let explained = server.ask(&kept);
    assert_eq!(explained.header("sendoff-explain"), Some("yes"));
    let variables = std::fs::read_to_string(site.path("kept")).unwrap();
    assert!(!variables.contains(&secret) && !variables.contains("SENDOFF_ACCEPT"), "{variables}");
    // A restarted front still has the secret.
    let front = server.front();
    sendoff_tests::processes::signal(front, rustix::process::Signal::KILL);
    let again = || server.explain("/x.php?case=made", &[]).is_ok_and(|table| table.contains("11"));
    assert!(sendoff_tests::wait::until(sendoff_tests::LIMIT, again), "{}", server.log());
    drop(server);
    assert!(!file.exists(), "the secret goes with the server");
    let other = Server::start(site.root(), &[]);
    assert_ne!(other.secret(), secret);
}

#[test]
fn without_a_server_there_is_one_sentence() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let file = site.path("../run/sendoff").join(server.addr().to_string());
    std::fs::remove_file(&file).unwrap();
    let port = server.addr().port();
    let error = server.explain("/", &[]).unwrap_err();
    let expected = format!(
        "sendoff: no sendoff server of this user listens on port {port} of this machine: \
             `sendoff status` says where one listens; ask as the user that has started it\n"
    );
    assert_eq!(error, expected);
    std::fs::write(&file, "0".repeat(64)).unwrap();
    let error = server.explain("/x.php", &[]).unwrap_err();
    assert!(error.contains("explains nothing") && error.lines().count() == 1, "{error}");
}

#[test]
fn other_responses_stay_as_they_are() {
    let site = site();
    let server = Server::start(site.root(), &["--workers", "1"]);
    for case in ["echo", "loop", "join", "callback", "made"] {
        let target = format!("/x.php?case={case}");
        let before = server.get(&target);
        server.explain(&target, &[]).unwrap();
        let after = server.get(&target);
        assert!(before.body == after.body, "{case}");
        assert_eq!(before.framing, after.framing, "{case}");
    }
}

/// Nothing is sent before the table is complete, but the front notices that a client has left nevertheless.
#[test]
fn an_endless_script_ends_when_nobody_waits_for_its_table() {
    let site = site();
    let server = Server::start(site.root(), &["--workers", "1"]);
    let mut client = server.connect();
    let request = Request::get("/x.php?case=endless").header("Sendoff-Explain", &server.secret());
    client.send(request.bytes());
    let begun = || site.path("begun").exists();
    assert!(sendoff_tests::wait::until(sendoff_tests::LIMIT, begun));
    drop(client);
    assert_eq!(server.page("/x.php?case=made"), "onetwothree", "the worker is free again");
}

/// What has no body is not short of it, and gets none that would have to be explained.
#[test]
fn a_response_without_a_body_is_explained_as_whole() {
    let site = site();
    site.write(
        "none.php",
        "<?php http_response_code((int) $_GET['status']); header('Content-Length: 50'); echo 'body';",
    );
    let server = Server::start(site.root(), &[]);
    for status in ["204", "304"] {
        let table = server.explain(&format!("/none.php?status={status}"), &[]).unwrap();
        assert!(table.contains(&format!(": {status} ")) && table.contains(" 0 bytes"), "{table}");
        assert!(!table.contains("cut short"), "{table}");
    }
}
