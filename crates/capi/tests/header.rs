//! `include/sendoff.h` and the library agree: a C program that calls every function is compiled against the one, linked
//! with the other, and serves a request.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

#[path = "../../worker/tests/front/mod.rs"]
mod front;
mod library;

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use front::{Seen, request, sockets};
use library::library;
use rustix::io::{FdFlags, fcntl_setfd};
use sendoff_fastcgi::handover::{FileId, Record};

/// Names that begin like our functions, in the header.
fn declared() -> Vec<String> {
    let header = fs::read_to_string(include_dir().join("sendoff.h")).unwrap();
    let mut names: Vec<String> = header
        .split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '('))
        .filter_map(|word| Some(word.split_once('(')?.0.to_owned()))
        .filter(|name| name.starts_with("sendoff_"))
        .collect();
    names.sort();
    names.dedup();
    names
}

fn exported() -> Vec<String> {
    let listing =
        Command::new("nm").arg("-g").arg("--defined-only").arg(library()).output().unwrap();
    let listing = String::from_utf8(listing.stdout).unwrap();
    let mut names: Vec<String> = listing
        .lines()
        .filter_map(|line| line.split(" T ").nth(1))
        .filter(|name| name.starts_with("sendoff_"))
        .map(str::to_owned)
        .collect();
    names.sort();
    names
}

fn include_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include")
}

#[test]
fn the_header_declares_what_the_library_exports() {
    assert_eq!(declared(), exported());
    assert!(declared().len() > 20);
}

#[test]
fn the_header_knows_the_limits() {
    let header = fs::read_to_string(include_dir().join("sendoff.h")).unwrap();
    let blobs = format!("#define SENDOFF_BLOBS {}\n", sendoff_worker::MAX_BLOBS);
    let bytes =
        format!("#define SENDOFF_BLOB_BYTES ({}u << 20)\n", sendoff_worker::MAX_BLOB_BYTES >> 20);
    assert!(header.contains(&blobs) && header.contains(&bytes));
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
