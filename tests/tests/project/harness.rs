//! The reference stack and the harness themselves.

use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;

use sendoff_tests::{Pair, Progress, Request, Site, pattern, repository};

#[test]
fn stock_serves_what_debian_serves() {
    let site = Site::with("index.php", "<?php echo 'index ', $_SERVER['REQUEST_URI'];");
    site.write("a.txt", pattern(1, 100_000));
    let stock = sendoff_tests::Stock::start(site.root(), &[]);
    assert_eq!(stock.ask(&Request::get("/a.txt")).expect(200), pattern(1, 100_000));
    assert_eq!(stock.ask(&Request::get("/no/such?x=1")).text(), "index /no/such?x=1");
}

#[test]
#[should_panic(expected = "bodies differ")]
fn a_difference_is_found() {
    let site = Site::with("index.php", "<?php echo 'port ', $_SERVER['SERVER_PORT'];");
    Pair::start(&site, &[]).same_page("/");
}

/// `make test` and `make test-heavy` end with this list.
#[test]
fn tests_that_fail_are_listed_at_the_end_and_the_others_run() {
    let site = Site::new();
    let package = "[package]\nname = 'many'\nversion = '0.1.0'\nedition = '2024'\n[workspace]\n";
    let failing = "#[test] fn bad() { panic!() } #[test] fn good() {}
        mod m { #[test] fn worse() { panic!(\"\\nfailures:\\n    another\") } }";
    for (path, text) in [
        ("Cargo.toml", package),
        ("src/lib.rs", "#[test] fn unit() { panic!() }"),
        ("tests/a.rs", failing),
        ("tests/b.rs", "#[test] fn dies() { std::process::abort() }"),
        ("tests/c.rs", "#[test] fn good() { std::fs::write(\"ran\", \"\").unwrap() }"),
    ] {
        site.write(path, text);
    }
    let run = |arguments: &[&str]| {
        let mut command = Command::new(repository::root().join("tools/cargo-test"));
        command.args(arguments).current_dir(site.root()).env("CARGO_TARGET_DIR", site.path("made"));
        let done = command.output().expect("a shell");
        (done.status.code(), String::from_utf8(done.stdout).expect("text"))
    };
    let (status, said) = run(&["--offline"]);
    let list = said.split("\nTests that have failed:\n").nth(1).unwrap_or(&said);
    let expected = "  tests/a.rs: bad\n  tests/a.rs: m::worse\n  tests/b.rs: ended without a result\n  src/lib.rs: unit\n";
    assert_eq!((status, list), (Some(101), expected));
    assert!(site.path("ran").exists(), "{said}");
    let (status, said) = run(&["--offline", "--test", "c"]);
    assert!(status == Some(0) && !said.contains("failed:"), "{said}");
}

#[test]
fn lines_of_progress_come_until_the_end_and_count() {
    let (say, said) = channel();
    let progress = Progress::every(Duration::from_millis(1), 3, "programs", move |line| {
        let _ = say.send(line);
    });
    progress.advance();
    assert!(said.iter().any(|line| line.starts_with("  1 of 3 programs after ")));
    drop(progress);
    // The reporter has ended, so no line can follow.
    assert!(said.iter().all(|line| line.contains(" of 3 programs after ")));
}
