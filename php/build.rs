//! Compiles the C of the SAPI against the distribution's PHP and links its library.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// Debian's name carries the version; elsewhere there is one PHP and a plain name.
const PHP_CONFIG: [&str; 2] = ["php-config8.2", "php-config"];

fn main() {
    let sources = [
        "backtrace",
        "functions",
        "globals",
        "hints",
        "lazy_because",
        "lazy_blob",
        "lazy_chunk",
        "lazy_explain",
        "lazy_file",
        "lazy_globals",
        "lazy_lookup",
        "lazy_match",
        "lazy_module",
        "lazy_open",
        "lazy_output",
        "lazy_search",
        "lazy_stream",
        "named",
        "output",
        "params",
        "request",
        "request_info",
        "sapi",
        "server_vars",
        "settings",
        "slow",
        "status",
        "user_ini",
    ];
    let mut build = cc::Build::new();
    build.include("../include").std("gnu11").warnings(true).extra_warnings(true);
    for flag in include_flags().split_whitespace() {
        // As system headers: their warnings are not ours.
        match flag.strip_prefix("-I") {
            Some(folder) => build.flag("-isystem").flag(folder),
            None => build.flag(flag),
        };
    }
    for source in sources {
        build.file(format!("src/{source}.c"));
    }
    build.compile("sendoff_php_sapi");
    println!("cargo::rustc-link-lib=php");
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=../include");
    tell_tests_about_root();
}

/// As in `tests/build.rs`: `#[cfg_attr(not(root), ignore = "needs root: ...")]`.
fn tell_tests_about_root() {
    println!("cargo::rustc-check-cfg=cfg(root)");
    // sudo and su change it.
    println!("cargo::rerun-if-env-changed=HOME");
    // The owner of this process.
    if std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
        println!("cargo::rustc-cfg=root");
    }
}

fn include_flags() -> String {
    for program in PHP_CONFIG {
        match Command::new(program).arg("--includes").output() {
            Ok(done) if done.status.success() => {
                return String::from_utf8_lossy(&done.stdout).into_owned();
            }
            _ => {}
        }
    }
    let wanted = PHP_CONFIG[0];
    println!("cargo::error={wanted} not found: install php8.2-dev and libphp8.2-embed");
    std::process::exit(1);
}
