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

fn has_nginx_and_php() -> bool {
    let both = is_installed("nginx") && is_installed(&format!("php-fpm{PHP_VERSION}"));
    if !both {
        eprintln!("skipped: nginx and php-fpm are not both installed");
    }
    both
}

/// Experiments of one server, nginx, which share nothing with other tests.
const EXPERIMENTS: [&str; 5] = ["start-up", "upload", "fixed-rate", "costs", "banking"];

#[test]
fn an_interrupted_run_goes_on_and_is_reported() {
    if !has_nginx_and_php() {
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
fn every_byte_of_the_shop_and_the_support_site_is_right() {
    if !has_nginx_and_php() {
        return;
    }
    let dir = tempfile::tempdir().expect("temporary folder");
    let run = lab(dir.path(), &["run", "ecommerce", "support", "--peers", "nginx+fpm"]);
    assert!(run.status.success(), "{}", text(&run));
    for name in ["ecommerce", "support"] {
        let path = dir.path().join(format!("quick/{name}.jsonl"));
        let results = std::fs::read_to_string(path).expect("results");
        assert_eq!(results.matches("\"good\":").count(), 3, "{results}");
        assert_eq!(results.matches("\"peak\":").count(), 1, "{results}");
    }
}

/// Two of the points that a short run measures. A server failed, another one is not installed.
const RESULTS: &str = include_str!("results/micro.jsonl");

#[test]
fn both_pages_show_the_same_results() {
    let dir = tempfile::tempdir().expect("temporary folder");
    std::fs::create_dir(dir.path().join("quick")).expect("a folder");
    std::fs::write(dir.path().join("quick/micro.jsonl"), RESULTS).expect("written");
    let file = dir.path().join("results.md");
    let report = lab(dir.path(), &["report", "--markdown", file.to_str().expect("a path")]);
    assert!(report.status.success(), "{}", text(&report));
    let page = std::fs::read_to_string(dir.path().join("quick/report.html")).expect("a page");
    let markdown = std::fs::read_to_string(&file).expect("a page");

    for line in [
        "- 2026-01-02 03:04 UTC, Linux 6.1.0, 2 cores (a processor), TCP reno, load 0.2 at the start; rounds: 2, 0.3 s each",
        "  - lighttpd+fpm: left out: lighttpd is not installed",
        "| requests/s | nginx+fpm | sendoff | apache+mod_php |",
        "| 10 KB | 1222 (1111 to 1333) | 2444 (2222 to 2666) | failed |",
        "| requests/s, times nginx + php-fpm | sendoff | apache+mod_php | *Suzumura: zero copy / plain* |",
        "| 10 KB | 2.00 | failed | *1.26* |",
        "| micro | Suzumura et al., figure 3: zero copy is faster at 10 KB | 1.26 | above 1 | 2.00 | holds |",
        "| micro | Suzumura et al., figure 3: zero copy is faster at 60 KB | 2.26 | above 1 | 1.05 (0.90 to 1.20) | unclear: rounds differ |",
        "| micro | Suzumura et al., figure 3: the gain grows from 10 to 60 KB | 1.79 | above 1 | 0.53 (0.45 to 0.60) | does not hold |",
        "| micro | Suzumura et al., figure 6: the gain falls with 50,000 additions |  | below 1 |  | not measured |",
        "- sizes, new connections, 10 KB, apache+mod_php: a &lt;short> answer \\| of 7 bytes",
        "- sizes, new connections, 200 KB",
        "- work, new connections, 50000 additions",
    ] {
        assert!(markdown.lines().any(|found| found == line), "{line}\n{markdown}");
    }
    assert!(markdown.contains("short runs") && page.contains("short runs"), "{markdown}");
    assert!(markdown.contains("\n- start-up: "), "an experiment without results:\n{markdown}");
    let cells = markdown.lines().filter(|line| line.starts_with('|')).flat_map(|l| l.split(" | "));
    let ranges = cells.filter(|cell| cell.contains(" to ") && cell.ends_with(')'));
    let mut count = 0;
    for range in ranges.map(|cell| cell.replace(" (", " <small>(").replace(" to ", "-")) {
        assert!(page.contains(&format!("{range}</small>")), "{range}\n{page}");
        count += 1;
    }
    assert!(count > 5, "{markdown}");
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
