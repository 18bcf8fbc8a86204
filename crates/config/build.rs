//! Finds the PHP that the build is for, and tells the crates that compile or test against it
//! (`DEP_PHP_CONFIG`).

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=PHP_CONFIG");
    println!("cargo::rerun-if-changed=build.rs");
    let program = std::env::var("PHP_CONFIG").unwrap_or_else(|_| "php-config".to_owned());
    let output = Command::new(&program).arg("--version").output();
    let found = output.ok().filter(|done| done.status.success());
    let found = found.map(|done| String::from_utf8_lossy(&done.stdout).trim().to_owned());
    // Without PHP there is no `sendoff-php` to start; the crates that need PHP's headers report the
    // error.
    let version = found.as_deref().and_then(minor).unwrap_or("8.2");
    println!("cargo::rustc-env=SENDOFF_PHP_VERSION={version}");
    println!("cargo::metadata=config={program}");
    if let Some(found) = &found {
        println!("cargo::metadata=version={found}");
    }
}

/// `8.4` of `8.4.24`.
fn minor(version: &str) -> Option<&str> {
    let (first_two, _) = version.rsplit_once('.')?;
    first_two.contains('.').then_some(first_two)
}
