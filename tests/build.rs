//! Tells the tests whether they run as root: `#[cfg_attr(not(root), ignore = "needs root: ...")]`.

use std::os::unix::fs::MetadataExt;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(root)");
    // sudo and su change it.
    println!("cargo::rerun-if-env-changed=HOME");
    // The owner of this process.
    if std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
        println!("cargo::rustc-cfg=root");
    }
}
