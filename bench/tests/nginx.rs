//! Tests the whole program with real servers: a short round against nginx + php-fpm only.

use std::path::Path;
use std::process::Command;

use sendoff_config::PHP_VERSION;

fn installed(names: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = |name: &&str| {
        std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
            || Path::new("/usr/sbin").join(name).is_file()
    };
    names.iter().any(found)
}

#[test]
fn one_short_round_against_nginx() {
    if !installed(&["nginx"]) || !installed(&[&format!("php-fpm{PHP_VERSION}"), "php-fpm"]) {
        eprintln!("skipped: nginx and php-fpm are not both installed");
        return;
    }
    let dir = tempfile::tempdir().expect("temporary folder");
    let out = dir.path().join("report.md");
    let output = Command::new(env!("CARGO_BIN_EXE_sendoff-bench"))
        .args(["--seconds", "0.2", "--rounds", "1", "--peers", "nginx+fpm,nginx+fpm-keepalive"])
        .args(["--only", "60k", "--out"])
        .arg(&out)
        .output()
        .expect("the benchmark runs");
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}\n{messages}");
    assert_eq!(std::fs::read_to_string(out).expect("--out"), report);

    for name in ["file-60k", "mixed-60k", "static-60k"] {
        assert_compares(&report, name);
    }
}

/// A row without failures compares two servers: a name, two rates, a ratio, two CPU times, a ratio,
/// no target.
fn assert_compares(report: &str, name: &str) {
    let row = report
        .lines()
        .find(|line| line.starts_with(&format!("| {name} |")))
        .unwrap_or_else(|| panic!("no row {name} in\n{report}"));
    let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
    assert_eq!(cells.len(), 8, "{row}");
    for rate in &cells[1..3] {
        assert!(rate.parse::<u32>().expect("a rate") > 0, "{row}");
    }
    for ratio in [cells[3], cells[6]] {
        let median = ratio.split('×').next().expect("a ratio");
        assert!(median.parse::<f64>().expect("a ratio") > 0.0, "{row}");
    }
}

#[test]
fn one_short_round_of_proxies() {
    if !installed(&["nginx"]) || !installed(&["haproxy"]) {
        eprintln!("skipped: nginx and haproxy are not both installed");
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_sendoff-bench"))
        .args(["--proxy", "--seconds", "0.2", "--rounds", "1", "--peers", "nginx,haproxy"])
        .output()
        .expect("the benchmark runs");
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}\n{messages}");
    for name in ["proxied-1k", "proxied-10k", "proxied-60k", "proxied-1m"] {
        assert_compares(&report, name);
    }
}

#[test]
fn an_unknown_workload_is_explained() {
    let output = Command::new(env!("CARGO_BIN_EXE_sendoff-bench"))
        .args(["--only", "no-such-workload"])
        .output()
        .expect("the benchmark runs");
    assert!(!output.status.success());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("no workload matches"), "{message}");
    assert!(message.contains("static-1m"), "{message}");
}
