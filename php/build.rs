//! Compiles the C of the SAPI against the distribution's PHP and links its library.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// The versions of PHP that `src/php_versions.h` is written for.
const VERSIONS: [&str; 4] = ["8.2.", "8.3.", "8.4.", "8.5."];

fn main() {
    let sources = [
        "backtrace",
        "boot",
        "embed",
        "fragment",
        "fragment_make",
        "fragment_send",
        "fragments",
        "functions",
        "globals",
        "hints",
        "kept",
        "lazy_because",
        "lazy_blob",
        "lazy_chunk",
        "lazy_explain",
        "lazy_file",
        "lazy_globals",
        "lazy_held",
        "lazy_lookup",
        "lazy_match",
        "lazy_module",
        "lazy_open",
        "lazy_output",
        "lazy_search",
        "lazy_stream",
        "limit",
        "modules",
        "named",
        "output",
        "params",
        "renew",
        "report",
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
        // Include them as system headers, so that the compiler does not report their warnings.
        match flag.strip_prefix("-I") {
            Some(folder) => build.flag("-isystem").flag(folder),
            None => build.flag(flag),
        };
    }
    for source in sources {
        build.file(format!("src/{source}.c"));
    }
    // Not bundled: the linker of the program gets it. The Rust library goes without it into modules
    // for stock PHP programs, whose linker would otherwise take limit.c from it.
    build.cargo_metadata(false).compile("sendoff_php_sapi");
    let folder = std::env::var("OUT_DIR").unwrap_or_default();
    println!("cargo::rustc-link-search=native={folder}");
    println!("cargo::rustc-link-lib=static:-bundle=sendoff_php_sapi");
    // Debian's libraries of all PHP versions have the same SONAME, libphp.so, so the library that
    // is linked here may differ from the one at run time. `is_right_library()` in src/sapi.c checks
    // the version at the start.
    println!("cargo::rustc-link-lib=php");
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=../include");
    tell_tests_about_root();
}

/// As in `tests/build.rs`: `#[cfg_attr(not(root), ignore = "needs root: ...")]`.
fn tell_tests_about_root() {
    println!("cargo::rustc-check-cfg=cfg(root)");
    // sudo and su change HOME.
    println!("cargo::rerun-if-env-changed=HOME");
    // /proc/self belongs to the user of this process.
    if std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
        println!("cargo::rustc-cfg=root");
    }
}

/// The flags of the PHP that `crates/config/build.rs` has found.
fn include_flags() -> String {
    let program = std::env::var("DEP_PHP_CONFIG").unwrap_or_default();
    let version = std::env::var("DEP_PHP_VERSION").unwrap_or_default();
    if !VERSIONS.iter().any(|known| version.starts_with(known)) {
        let found = if version.is_empty() { "not found" } else { &version };
        println!(
            "cargo::error=Sendoff builds for PHP 8.2, 8.3, 8.4 and 8.5; {program}: {found}. Install php8.4-dev and \
             libphp8.4-embed (Debian 12: 8.2), or name another php-config in PHP_CONFIG"
        );
        std::process::exit(1);
    }
    let output = Command::new(&program).arg("--includes").output();
    output.map(|done| String::from_utf8_lossy(&done.stdout).into_owned()).unwrap_or_default()
}
