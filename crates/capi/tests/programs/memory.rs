//! A threaded application in C, with a sanitizer and under valgrind: thousands of requests, valid,
//! incomplete and malformed.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::library::library;
use bytes::BytesMut;
use sendoff_fastcgi::record::{Header, Kind};
use sendoff_fastcgi::{Decoder, RecordPart, params};

struct Application {
    folder: PathBuf,
    child: Child,
}

impl Application {
    /// Compiles the program with `flags` and starts it behind `runner`.
    fn start(name: &str, flags: &[&str], runner: &[&str], threads: usize, each: usize) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join("server");
        let compiled = Command::new("cc")
            .args(["-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror"])
            .args(flags)
            .arg("-o")
            .arg(&program)
            .arg("-I")
            .arg(root.join("../../include"))
            .arg(root.join("tests/server.c"))
            .arg(library())
            .args(["-lpthread", "-ldl", "-lm"])
            .status();
        assert!(compiled.unwrap().success());
        let listener = UnixListener::bind(folder.join("socket")).unwrap();
        let mut words = vec!["--pdeathsig", "KILL", "--"];
        words.extend(runner);
        let child = Command::new("setpriv")
            .args(words)
            .arg(&program)
            .args([threads, each].map(|number| number.to_string()))
            .stdin(OwnedFd::from(listener))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { folder, child }
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.folder.join("socket")).unwrap()
    }

    /// Checks that it ends by itself, without any output.
    fn end(mut self) {
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success() && said.is_empty(), "{status}\n{said}");
        fs::remove_dir_all(&self.folder).unwrap();
    }
}

fn stream(wire: &mut Vec<u8>, kind: Kind, id: u16, bytes: &[u8]) {
    for piece in bytes.chunks(30_000).chain([&[][..]]) {
        wire.extend(Header::new(kind, id, piece.len().try_into().unwrap()).encode());
        wire.extend(piece);
    }
}

fn request(id: u16, role: u16, body: &[u8]) -> Vec<u8> {
    let mut wire = Header::new(Kind::BEGIN_REQUEST, id, 8).encode().to_vec();
    wire.extend([0, role.to_be_bytes()[1], 1, 0, 0, 0, 0, 0]);
    let mut text = Vec::new();
    let long = "v".repeat(usize::from(id % 300));
    for (name, value) in [("EMPTY", ""), ("LONG", &*long), ("SENDOFF_ACCEPT", "none")] {
        params::encode(&mut text, name.as_bytes(), value.as_bytes());
    }
    stream(&mut wire, Kind::PARAMS, id, &text);
    stream(&mut wire, Kind::STDIN, id, body);
    if role == 3 {
        stream(&mut wire, Kind::DATA, id, b"the file");
    }
    wire
}

/// The body of one response, which must end correctly.
fn response(socket: &mut UnixStream, buf: &mut BytesMut, decoder: &mut Decoder) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        match decoder.next(buf).unwrap() {
            Some(RecordPart::Stream { kind: Kind::STDOUT, data, .. }) => {
                body.extend_from_slice(&data);
            }
            Some(
                RecordPart::Stream { kind: Kind::STDERR, .. } | RecordPart::EndOfStream { .. },
            ) => {}
            Some(RecordPart::Record { kind: Kind::END_REQUEST, .. }) => return body,
            Some(other) => panic!("{other:?}"),
            None => {
                let mut piece = [0; 65_536];
                let n = socket.read(&mut piece).unwrap();
                assert!(n > 0, "the connection ended");
                buf.extend_from_slice(&piece[..n]);
            }
        }
    }
}

/// Sends each request when the previous response has arrived; the request after `count` is broken
/// off.
fn converse(mut socket: UnixStream, seed: usize, count: u16) {
    let (mut buf, mut decoder) = (BytesMut::new(), Decoder::default());
    for id in 1..=count {
        let role = if id % 7 == 0 { 3 } else { 1 };
        // A long body from time to time.
        let len = if id % 50 == 0 { 200_000 } else { usize::from(id) * (seed + 1) % 5000 };
        let body: Vec<u8> = (b'a'..=b'z').cycle().skip(seed).take(len).collect();
        socket.write_all(&request(id, role, &body)).unwrap();
        let long = "v".repeat(usize::from(id % 300));
        let mut expected = format!("\r\nEMPTY=LONG={long}").into_bytes();
        expected.extend(&body);
        expected.extend(if role == 3 { &b"the file"[..] } else { b"" });
        assert!(response(&mut socket, &mut buf, &mut decoder) == expected, "{seed} {id}");
    }
    let whole = request(9, 1, &[b'x'; 3000]);
    match seed % 3 {
        // Breaks off in the middle of a body or of a record's header, or sends nonsense.
        0 => socket.write_all(&whole[..whole.len() - 1000]).unwrap(),
        1 => socket.write_all(&whole[..5]).unwrap(),
        _ => socket.write_all(&[9; 100]).unwrap(),
    }
}

fn run(application: Application, threads: usize, connections: usize, requests: u16) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let application = &application;
            scope.spawn(move || {
                for turn in 0..connections {
                    converse(application.connect(), thread + turn, requests);
                }
            });
        }
    });
    application.end();
}

#[test]
fn thousands_of_requests_in_eight_threads_with_sanitizers() {
    let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    run(Application::start("asan", &flags, &[], 8, 3), 8, 3, 150);
}

#[test]
fn hundreds_of_requests_in_eight_threads_under_valgrind() {
    let valgrind =
        ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "--fair-sched=yes"];
    run(Application::start("valgrind", &[], &valgrind, 8, 2), 8, 2, 20);
}
