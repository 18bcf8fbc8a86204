//! `make install` and `make uninstall`, into a folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sendoff_tests::{Site, built};

/// Runs a target with the programs that were built already.
fn make(target: &str, folder: &Path) {
    let repository = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut make = Command::new("make");
    let profile = built().parent().unwrap().file_name().unwrap().to_owned();
    make.args(["--silent", "--old-file=dist", target, "PREFIX=/usr"]).current_dir(repository);
    make.arg(format!("PROFILE={}", profile.display()));
    make.arg(format!("DESTDIR={}", folder.display()));
    let generated = folder.with_file_name("generated");
    succeeds(make.arg(format!("GENERATED={}", generated.display())).output().unwrap());
}

fn succeeds(done: Output) -> String {
    let said = String::from_utf8_lossy(&[&done.stdout[..], &done.stderr[..]].concat()).into_owned();
    assert!(done.status.success(), "{}: {said}", done.status);
    said
}

/// The files below a folder.
fn files(folder: &Path) -> Vec<String> {
    let found = Command::new("find").arg(".").args(["-type", "f"]).current_dir(folder).output();
    let mut found: Vec<_> = succeeds(found.unwrap()).lines().map(str::to_owned).collect();
    found.sort();
    found
}

#[test]
fn what_is_installed_runs_and_is_removed_again_but_for_the_configuration() {
    let site = Site::with("a.txt", "static");
    let folder = site.outside("installed");
    fs::create_dir(&folder).unwrap();
    make("install", &folder);
    let installed = files(&folder);
    for file in [
        "./etc/logrotate.d/sendoff",
        "./etc/sendoff/sendoff.toml",
        "./lib/systemd/system/sendoff.service",
        "./usr/bin/sendoff",
        "./usr/bin/sendoff-lua",
        "./usr/bin/sendoff-php",
        "./usr/share/bash-completion/completions/sendoff",
        "./usr/share/fish/vendor_completions.d/sendoff.fish",
        "./usr/share/man/man1/sendoff-lua.1",
        "./usr/share/man/man1/sendoff-php.1",
        "./usr/share/man/man1/sendoff-run.1",
        "./usr/share/man/man1/sendoff.1",
        "./usr/share/man/man5/sendoff.toml.5",
        "./usr/share/sendoff/html/index.html",
        "./usr/share/zsh/vendor-completions/_sendoff",
    ] {
        assert!(installed.iter().any(|known| known == file), "{file} is not in {installed:#?}");
    }
    // Commands that are not for people have no pages.
    assert!(!installed.iter().any(|file| file.contains("-front") || file.contains("-generate")));
    let program = folder.join("usr/bin/sendoff");
    let symbols = Command::new("nm").arg(&program).output().unwrap();
    assert!(symbols.stdout.is_empty(), "it has its symbols");
    let version =
        |program: &Path| succeeds(Command::new(program).arg("--version").output().unwrap());
    assert_eq!(version(&program), version(&built()));
    let completions = folder.join("usr/share/bash-completion/completions/sendoff");
    succeeds(Command::new("bash").arg("-n").arg(&completions).output().unwrap());
    let page = fs::read_to_string(folder.join("usr/share/man/man1/sendoff-upgrade.1")).unwrap();
    assert!(page.contains(".SH NAME") && page.contains("Replace a running server"), "{page}");
    // The configuration of an operator is not replaced.
    let config = folder.join("etc/sendoff/sendoff.toml");
    fs::write(&config, "threads = 1\n").unwrap();
    make("install", &folder);
    assert_eq!(fs::read_to_string(&config).unwrap(), "threads = 1\n");
    make("uninstall", &folder);
    assert_eq!(files(&folder), ["./etc/sendoff/sendoff.toml"]);
}
