//! Checks that `include/sendoff.h` is the output of cbindgen for the library's sources, and that a
//! C program that calls every function compiles with the header, links with the library, and serves
//! a request.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::front::{Seen, request, sockets};
use crate::library::library;
use rustix::io::{FdFlags, fcntl_setfd};
use sendoff_fastcgi::handover::{FileId, Record};

fn include_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include")
}

/// The header generated from the crate's sources and `cbindgen.toml`.
fn generated() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    // cbindgen finds the modules from this file. `with_crate` would make Cargo read every package
    // of the workspace.
    let source = folder.join("src/lib.rs");
    let bindings = cbindgen::Builder::new().with_config(config).with_src(source).generate();
    let mut header = Vec::new();
    bindings.unwrap().write(&mut header);
    String::from_utf8(header).unwrap()
}

#[test]
fn the_header_says_what_the_sources_say() {
    let header = fs::read_to_string(include_dir().join("sendoff.h")).unwrap();
    assert!(header == generated(), "include/sendoff.h is out of date; `make header` renews it");
}

#[test]
#[ignore = "writes include/sendoff.h, for `make header`"]
fn renew() {
    fs::write(include_dir().join("sendoff.h"), generated()).unwrap();
}

#[test]
fn a_program_in_c_serves_a_request() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("c-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (program, file) = (folder.join("worker"), folder.join("file"));
    fs::write(&file, [b'f'; 5000]).unwrap();
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o"])
        .arg(&program)
        .arg("-I")
        .arg(include_dir())
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/worker.c"))
        .arg(library())
        .args(["-lpthread", "-ldl", "-lm"])
        .status();
    assert!(compiled.unwrap().success());

    let (mut front, links, guard) = sockets(1);
    fcntl_setfd(&links[0], FdFlags::empty()).unwrap();
    fcntl_setfd(&guard, FdFlags::empty()).unwrap();
    let (link_arg, guard_arg) = (links[0].as_raw_fd().to_string(), guard.as_raw_fd().to_string());
    let mut child = Command::new(&program).args([link_arg, guard_arg]).arg(&file).spawn().unwrap();
    drop((links, guard));
    let pairs = [("REQUEST_METHOD", "POST"), ("GREETING", "hello")];
    front.links[0].send(&request(1, &pairs, b"body"));
    let id = FileId(1);
    let expected = [
        Seen::Stdout(b"\r\n<".to_vec()),
        Seen::Record(Record::Open(id)),
        Seen::Record(Record::Segment { file: id, offset: 1, length: 4999 }),
        Seen::Record(Record::Open(FileId(3))),
        Seen::Record(Record::Segment { file: FileId(3), offset: 0, length: 8 }),
        Seen::Stderr(b"logged\n".to_vec()),
        Seen::Record(Record::Detach),
        Seen::End(7),
    ];
    assert_eq!(front.links[0].response(), expected);
    assert_eq!(front.links[0].next(), Some(Seen::Record(Record::Ready)));
    assert_eq!(front.links[0].next(), Some(Seen::Record(Record::Release(id))));
    assert!(child.wait().unwrap().success());
    assert_eq!(front.links[0].next(), None);
    fs::remove_dir_all(&folder).unwrap();
}
