//! Programs in Python with packages from PyPI, for heavy tests.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::child::dies_with_us;
use crate::repository;

/// The folder with packages that `tools/pypi` knows by this name.
///
/// # Panics
/// If they cannot be fetched.
#[must_use]
pub fn packages(name: &str) -> PathBuf {
    let done = Command::new(repository::root().join("tools/pypi")).arg(name).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "tools/pypi {name}: {said}");
    PathBuf::from(String::from_utf8(done.stdout).unwrap().trim())
}

/// A command that runs Python with these packages. The process ends with the test.
#[must_use]
pub fn python(packages: &Path) -> Command {
    let mut command = dies_with_us(Path::new("/usr/bin/python3"), "KILL");
    command.env("PYTHONPATH", packages).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Runs a program of the repository to its end, and returns its output.
///
/// # Panics
/// If it fails.
#[track_caller]
pub fn run(packages: &Path, program: &str, arguments: &[impl AsRef<OsStr>]) -> String {
    let mut command = python(packages);
    let output = command.arg(repository::root().join(program)).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {said}");
    String::from_utf8(output.stdout).unwrap()
}
