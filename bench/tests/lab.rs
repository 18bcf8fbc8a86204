//! Tests the lab from outside: a short experiment, interrupted and continued, and its report.

use std::path::Path;
use std::process::{Command, Output};

use sendoff_config::PHP_VERSION;

fn lab(results: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sendoff-bench"));
    command.args(args).arg("--quick").arg("--results").arg(results);
    command.output().expect("the lab runs")
}

fn text(output: &Output) -> String {
    let messages = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&messages).into_owned()
}

fn is_installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    folders.any(|folder| folder.join(name).is_file())
}

/// Experiments of one server, nginx, which share nothing with other tests.
const EXPERIMENTS: [&str; 3] = ["start-up", "upload", "banking"];

#[test]
fn an_interrupted_run_goes_on_and_is_reported() {
    if !is_installed("nginx") || !is_installed(&format!("php-fpm{PHP_VERSION}")) {
        eprintln!("skipped: nginx and php-fpm are not both installed");
        return;
    }
    let dir = tempfile::tempdir().expect("temporary folder");
    let args = [&["run"], &EXPERIMENTS[..], &["--peers", "nginx+fpm"]].concat();
    let first = lab(dir.path(), &args);
    assert!(first.status.success(), "{}", text(&first));

    // The end of the last line is missing, as after a kill.
    let path = dir.path().join("quick/upload.jsonl");
    let whole = std::fs::read_to_string(&path).expect("results");
    std::fs::write(&path, &whole[..whole.len() - 20]).expect("written");
    let second = lab(dir.path(), &args);
    let said = text(&second);
    assert!(second.status.success(), "{said}");
    assert!(said.contains("start-up: all 1 points are measured"), "{said}");
    assert!(said.contains("upload: 1 points to measure, 0 are there"), "{said}");

    let report = lab(dir.path(), &["report"]);
    assert!(report.status.success(), "{}", text(&report));
    let page = std::fs::read_to_string(dir.path().join("quick/report.html")).expect("a report");
    for name in EXPERIMENTS {
        assert!(page.contains(&format!("<h2 id=\"{name}\">")), "{name}");
    }
    assert!(page.contains("<svg") && page.contains("nginx+fpm") && page.contains("Linux"));
    assert!(!page.contains("class=\"failed\">"), "{page}");
}

#[test]
fn unknown_experiments_and_missing_results_are_explained() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let unknown = lab(dir.path(), &["run", "cooking"]);
    assert!(!unknown.status.success());
    assert!(text(&unknown).contains("no experiment is named \"cooking\""), "{}", text(&unknown));
    assert!(text(&unknown).contains("banking"), "{}", text(&unknown));
    let report = lab(dir.path(), &["report"]);
    assert!(!report.status.success());
    assert!(text(&report).contains("holds no results"), "{}", text(&report));
}

#[test]
fn every_experiment_is_listed() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let list = lab(dir.path(), &["list"]);
    assert!(list.status.success());
    let readme = include_str!("../README.md");
    for line in text(&list).lines() {
        let name = line.split(' ').next().expect("a name");
        assert!(line.contains(" 0 of "), "{line}");
        assert!(readme.contains(&format!("`{name}`")), "bench/README.md does not name {name}");
    }
}
