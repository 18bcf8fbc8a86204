//! Builds of the extensions refuse a static library that lacks functions of the header.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sendoff_tests::{Site, repository};

/// A static library with one of libsendoff's functions.
fn outdated(site: &Site) -> PathBuf {
    let source = site.write_at(site.outside("old.c"), "int sendoff_accept(void) { return 0; }");
    let (object, library) = (site.outside("old.o"), site.outside("lib/libsendoff_capi.a"));
    std::fs::create_dir_all(library.parent().unwrap()).unwrap();
    done(Command::new("cc").arg("-c").arg("-o").arg(&object).arg(source));
    done(Command::new("ar").arg("rcs").arg(&library).arg(object));
    library
}

fn done(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

#[track_caller]
fn assert_refused(output: &Output) {
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(!output.status.success(), "{text}");
    for part in
        ["is older than ", "it lacks sendoff_worker_new, ", ", sendoff_tunnel. Build it anew"]
    {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("lacks sendoff_accept,"), "{text}");
}

#[test]
fn the_python_extension_is_not_built_over_an_old_library() {
    let site = Site::new();
    let library = outdated(&site);
    let output = Command::new("python3")
        .args(["setup.py", "-q", "build_ext", "--force", "--build-lib"])
        .arg(site.outside("built"))
        .arg("--build-temp")
        .arg(site.outside("objects"))
        .current_dir(repository::root().join("languages/python"))
        .env("SENDOFF_LIBRARY", library)
        .output()
        .unwrap();
    assert_refused(&output);
}

#[test]
fn the_ruby_extension_is_not_built_over_an_old_library() {
    let site = Site::new();
    let library = outdated(&site);
    let given = library.parent().and_then(Path::parent).unwrap();
    let include = given.join("include");
    std::fs::create_dir_all(&include).unwrap();
    let header = repository::root().join("include/sendoff.h");
    std::fs::copy(header, include.join("sendoff.h")).unwrap();
    let output = Command::new("ruby")
        .arg(repository::root().join("languages/ruby/ext/sendoff/extconf.rb"))
        .arg(format!("--with-sendoff-dir={}", given.display()))
        .current_dir(&include)
        .output()
        .unwrap();
    assert_refused(&output);
}
