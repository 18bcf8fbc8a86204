//! Conditions of tests, such as `#[cfg_attr(not(root), ignore = "needs root: ...")]`: `root`;
//! `debian`, whose packages Ubuntu has not all; and `bookworm`, for Debian 12 and the versions of
//! its applications.

use std::os::unix::fs::MetadataExt;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(root, debian, bookworm)");
    // sudo and su change it.
    println!("cargo::rerun-if-env-changed=HOME");
    println!("cargo::rerun-if-changed=/etc/os-release");
    // The owner of this process.
    if std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
        println!("cargo::rustc-cfg=root");
    }
    let system = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    for (line, condition) in [("ID=debian", "debian"), ("VERSION_CODENAME=bookworm", "bookworm")] {
        if system.lines().any(|each| each == line) {
            println!("cargo::rustc-cfg={condition}");
        }
    }
}
